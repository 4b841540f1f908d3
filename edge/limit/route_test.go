package limit

import "testing"

// Of the routes that a request takes the most specific says what it costs, in
// whatever order they are written: a name before "*" before "**" where their
// paths differ first, and then one that names the method.
func TestMostSpecificRouteCosts(t *testing.T) {
	rule := RuleSpec{Name: "r", Rates: []RateSpec{{Limit: 1000, Per: 1e9}}}
	rule.Cost = CostSpec{Default: 9, ByRoute: map[string]uint64{
		"POST /api/search": 50, "/api/search": 2,
		"GET /api/**": 1, "GET /api/export": 100,
		"/x/*": 3, "/x/**": 4, "/x/heavy": 20, "/x": 5,
		"/users/*/keys": 6, "/users/root/**": 7, "DELETE /users/root/**": 8,
		"GET /a/**": 10, "/a/b": 11, "/my docs": 12, "PUT /my docs": 13,
	}}
	set, problems := Compile(Document{Namespace: "t", Rules: []RuleSpec{rule}})
	if set == nil {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		method, path string
		want         uint64
	}{
		{"POST", "/api/search", 50}, {"PUT", "/api/search", 2}, {"GET", "/api/search", 2},
		{"GET", "/api/export", 100}, {"GET", "/api/other", 1}, {"GET", "/api", 1},
		{"GET", "/x/heavy", 20}, {"GET", "/x/light", 3}, {"GET", "/x", 5}, {"GET", "/x/y/z", 4}, {"GET", "/x/", 4},
		{"GET", "/users/root/keys", 7}, {"GET", "/users/u1/keys", 6}, {"DELETE", "/users/root/keys", 8},
		{"GET", "/a/b", 11}, {"GET", "/a/c", 10}, {"POST", "/a/c", 9},
		{"GET", "/my docs", 12}, {"PUT", "/my docs", 13},
	} {
		req := set.Only().NewRequest()
		req.SetHTTP(c.method, c.path, "h", "192.0.2.1", nil)
		if got := req.Rules()[0].CostOf(req); got != c.want {
			t.Errorf("%s %s costs %d, want %d", c.method, c.path, got, c.want)
		}
		req.Release()
	}
}

// The order of patterns is one, so that sorting by it is.
func TestPatternsHaveAnOrder(t *testing.T) {
	var all []pattern
	for _, s := range []string{"/a/b", "/a/*", "/a/**", "/a", "/**", "/*/b", "/*", "/*/**", "/", "/a/", "/b/c/d"} {
		p, err := compilePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for i := range all {
		for k := range all {
			if x, y := all[i].compare(&all[k]), all[k].compare(&all[i]); (x > 0) != (y < 0) || (x == 0) != (i == k) {
				t.Errorf("%v and %v compare as %d and %d", all[i], all[k], x, y)
			}
			for m := range all {
				if all[i].compare(&all[k]) < 0 && all[k].compare(&all[m]) < 0 && all[i].compare(&all[m]) >= 0 {
					t.Errorf("%v, %v, %v: no order", all[i], all[k], all[m])
				}
			}
		}
	}
}
