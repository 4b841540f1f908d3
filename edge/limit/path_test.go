package limit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestPathReadings(t *testing.T) {
	for _, test := range []struct {
		text, path string
		others     []string
	}{
		{"/api/1", "/api/1", nil},
		{"/api/%6Cogin", "/api/login", nil},
		{"/api/1%2F2", "/api/1/2", []string{"/api/1%2F2"}},
		{`//x\a/login`, `/x\a/login`, []string{`//x\a/login`, "/x/a/login", "/a/login", "/login"}},
		{"/api/1%2f", "/api/1/", []string{"/api/1%2F"}},
		{"/api/1%2F..%2F..%2Fpublic", "/public", []string{"/api/1%2F..%2F..%2Fpublic", "/api/1/../../public"}},
		{"/a%2Fb/../login", "/a/login", []string{"/a%2Fb/../login", "/a/b/../login", "/login"}},
		{"/a%2fb/%2e%2e/login", "/a/login", []string{"/a%2Fb/../login", "/a/b/../login", "/login"}},
		{"/x/../api/users//..", "/api", []string{"/x/../api/users//..", "/api/users/"}},
		{"/login/.", "/login", []string{"/login/.", "/login/"}},
		{"/login/x/..", "/login", []string{"/login/x/..", "/login/"}},
		{"/..", "/", []string{"/.."}},
		{"/a%2Fb/../x%2F..%2Flogin", "/a/login", []string{"/a%2Fb/../x%2F..%2Flogin", "/a/b/../x/../login", "/x%2F..%2Flogin", "/login"}},
		{"//x/login", "/x/login", []string{"//x/login", "/login"}},
		{"///x/y/../login", "/x/login", []string{"///x/y/../login", "/y/../login", "/login"}},
		{"//login", "/login", []string{"//login", "/"}},
		{`/\\x/login`, `/\\x/login`, []string{"/x/login", "/login"}},
		{`/a\..\login`, `/a\..\login`, []string{"/login"}},
		{"/a%5C..%5clogin", `/a\..\login`, []string{"/login"}},
		{`/a%2Fb\c\..\`, `/a/b\c\..\`, []string{`/a%2Fb\c\..\`, "/a/b/", "/a%2Fb/"}},
		{"/api/..%2Fx", "/x", []string{"/api/..%2Fx", "/api/../x"}},
		{"/api/%2e%2E/x", "/x", []string{"/api/../x"}},
		{"/api/../x", "/x", []string{"/api/../x"}},
		{"/api/./x/", "/api/x/", []string{"/api/./x/"}},
		{"/api/%2ewell-known", "/api/.well-known", nil},
		{"/.well-known/x", "/.well-known/x", nil},
		{"//api//%20%2F", "/api/ /", []string{"//api// %2F", "//api// /", "/api/ %2F", "// %2F", "// /", "/ /", "/ %2F"}},
		{"/a%3F%2F", "/a%3F/", []string{"/a%3F%2F"}},
		{"/a%252F", "/a%2F", nil},
		{"/100%2", "/100%2", nil},
		{"/%zz%2F%", "/%zz/%", []string{"/%zz%2F%"}},
		{"/", "/", nil},
		{"/login;a=1", "/login;a=1", []string{"/login"}},
		{"/login%3ba", "/login;a", []string{"/login"}},
		{"/;a/login;b/", "/;a/login;b/", []string{"//login/", "/login/"}},
		{"/x/..;a/login", "/x/..;a/login", []string{"/x/../login", "/login"}},
		{"/login/.;a", "/login/.;a", []string{"/login/.", "/login", "/login/"}},
		{"/login;a/../x", "/x", []string{"/login;a/../x", "/login/../x"}},
		{"/login;a%2F../x", "/x", []string{"/login;a%2F../x", "/login;a/../x", "/login/x", "/login/../x"}},
		{`/x\..;a\login`, `/x\..;a\login`, []string{`/x\..`, "/x/..;a/login", "/login"}},
		{"//h;p/login;a", "/h;p/login;a", []string{"//h;p/login;a", "//h/login", "/h/login", "/login;a", "/login"}},
	} {
		if path, others := limit.PathReadings(test.text); path != test.path || !slices.Equal(others, test.others) || path != limit.NormalPath(test.text) {
			t.Errorf("PathReadings(%q) = %q, %q; want %q, %q", test.text, path, others, test.path, test.others)
		}
	}
}

// The rules of all readings of a path apply, whichever stands first in their group: who
// chooses how his path is read chooses none that lets him through.
func TestRulesOfAllReadings(t *testing.T) {
	path := func(group, name string, priority int, patterns ...string) limit.RuleSpec {
		return limit.RuleSpec{Name: name, Group: group, Priority: priority, Match: limit.MatchSpec{Path: patterns}}
	}
	open := path("g", "open", 9, "/public/**")
	open.Allow = true
	costly := path("z", "costly", 1, "/**")
	costly.Cost = limit.CostSpec{Default: 2, ByRoute: map[string]uint64{"/public/**": 0, "/api/**": 5}}
	ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{open, path("g", "api", 5, "/api/*", "/public/*/x"), path("g", "rest", 1), path("h", "one", 1, "/api/*/*"), costly}})
	for _, test := range []struct {
		text, want string
		cost       uint64
	}{
		{"/api/1", "api costly", 5},
		{"/public/1", "open costly", 0},
		{"/else", "rest costly", 2},
		{"/api/1%2F..%2F..%2Fpublic", "open costly api rest", 5},
		{"/public/..%2Fapi%2F1", "api costly open", 5},
		{"/api/1%2F2", "rest one costly api", 5},
		{"/api/%2e%2e/public", "open costly rest one", 5},
		{"/api/%2e", "rest costly api", 5},
		{"/api/../public", "open costly rest one", 5},
		{"/api/../else", "rest costly one", 5},
	} {
		req := ns.NewRequest()
		path, others := limit.PathReadings(test.text)
		req.SetHTTP("GET", path, "", "", nil)
		req.AlsoPaths(others)
		for range 2 { // asking twice changes nothing
			var names []string
			cost := uint64(0)
			for _, r := range req.Rules() {
				names = append(names, r.Name)
				if r.Name == "costly" {
					cost = r.CostOf(req)
				}
			}
			if got := strings.Join(names, " "); got != test.want || cost != test.cost {
				t.Errorf("%s: %s at cost %d, want %s at %d", test.text, got, cost, test.want, test.cost)
			}
		}
		if got := req.Get("path"); got != path {
			t.Errorf("%s: the path is %q now, want %q", test.text, got, path)
		}
		req.Reset()
		if req.SetHTTP("GET", "/else", "", "", nil); ruleNames(req.Rules()) != "rest costly" {
			t.Errorf("after %s and Reset: %s", test.text, ruleNames(req.Rules()))
		}
		req.Release()
	}
}
