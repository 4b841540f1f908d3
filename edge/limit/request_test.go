package limit_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func compileNamespace(t testing.TB, doc limit.Document) *limit.Namespace {
	t.Helper()
	doc.Namespace = "test"
	for i := range doc.Rules {
		if !doc.Rules[i].Allow {
			doc.Rules[i].Rates = []limit.RateSpec{{Limit: 10, Per: time.Minute}}
		}
	}
	set, problems := limit.Compile(doc)
	if problems != nil {
		t.Fatal(problems[0])
	}
	return set.Only()
}

func request(ns *limit.Namespace, attributes map[string]string) *limit.Request {
	req := ns.NewRequest()
	for name, value := range attributes {
		req.Set(name, value)
	}
	return req
}

func ruleNames(rules []*limit.Rule) string {
	var names []string
	for _, r := range rules {
		names = append(names, r.Name)
	}
	return strings.Join(names, " ")
}

func TestPathPatterns(t *testing.T) {
	for _, tc := range []struct {
		pattern string
		yes, no string
	}{
		{"/", "/ /?q", "/a //"},
		{"/a", "/a /a?x=/b", "/a/ /b /a/b a"},
		{"/a/*", "/a/b /a/b?c", "/a /a/ /a/b/c"},
		{"/a/**", "/a /a/ /a/b /a/b/c", "/ab /b"},
		{"/**", "/ /a /a/b", "a *"},
		{"/users/*/keys", "/users/7/keys", "/users//keys /users/7/keys/ /users/7/8/keys"},
		{"/*/x/**", "/a/x /a/x/y", "//x /a/y"},
	} {
		ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{{Name: "a", Match: limit.MatchSpec{Path: []string{tc.pattern}}}}})
		for _, want := range []bool{true, false} {
			paths := tc.yes
			if !want {
				paths = tc.no
			}
			for path := range strings.FieldsSeq(paths) {
				req := request(ns, map[string]string{"path": path})
				if got := len(req.Rules()) == 1; got != want {
					t.Errorf("pattern %q matches %q: %v, want %v", tc.pattern, path, got, want)
				}
			}
		}
	}
}

func TestRulesThatApply(t *testing.T) {
	ns := compileNamespace(t, limit.Document{
		Keys: map[string]limit.KeySource{"user": {From: []string{"header.x-user-id", "header.X-Login"}}},
		Rules: []limit.RuleSpec{
			{Name: "low", Priority: -1},
			{Name: "user", Priority: 10, Key: []string{"user"}},
			{Name: "post", Priority: 20, Match: limit.MatchSpec{Methods: []string{"POST", "PUT"}}},
			{Name: "vip", Priority: 30, Match: limit.MatchSpec{Has: []string{"user"}, Path: []string{"/vip/**"}}, Allow: true},
			{Name: "bots", Priority: 5, Match: limit.MatchSpec{Lacks: []string{"header.User-Agent", "user"}}},
			{Name: "all", Group: "total"},
			{Name: "upload", Group: "total", Priority: 1, Match: limit.MatchSpec{Path: []string{"/up"}}},
		},
	})
	for name, tc := range map[string]struct {
		attributes map[string]string
		want       string
	}{
		"nothing known":                    {nil, "bots all"},
		"the user by the first source":     {map[string]string{"header.X-User-Id": "u"}, "user all"},
		"the user by the second source":    {map[string]string{"header.x-login": "u"}, "user all"},
		"the user as an attribute":         {map[string]string{"user": "u"}, "user all"},
		"an empty user is absent":          {map[string]string{"user": "", "header.User-Agent": "x"}, "low all"},
		"a method":                         {map[string]string{"user": "u", "method": "PUT"}, "post all"},
		"a method in the wrong case":       {map[string]string{"user": "u", "method": "put"}, "user all"},
		"both that a rule asks":            {map[string]string{"user": "u", "path": "/vip/1"}, "vip all"},
		"one of the two that it asks":      {map[string]string{"path": "/vip/1"}, "bots all"},
		"another group has its own choice": {map[string]string{"user": "u", "path": "/up"}, "user upload"},
	} {
		req := request(ns, tc.attributes)
		if got := ruleNames(req.Rules()); got != tc.want {
			t.Errorf("%s: rules %q, want %q", name, got, tc.want)
		}
		req.Release()
	}
}

func TestKeys(t *testing.T) {
	ns := compileNamespace(t, limit.Document{
		Keys: map[string]limit.KeySource{
			"ip":  {From: []string{"client_ip"}},
			"net": {From: []string{"client_ip"}, IPv4Prefix: 24, IPv6Prefix: 48},
		},
		Rules: []limit.RuleSpec{{Name: "ip", Key: []string{"ip"}}, {Name: "net", Key: []string{"net"}, Group: "net"}, {Name: "pair", Key: []string{"a", "b"}, Group: "pair"}},
	})
	key := func(rule string, attributes map[string]string) []byte {
		req := request(ns, attributes)
		defer req.Release()
		for _, r := range req.Rules() {
			if r.Name == rule {
				key, ok := r.AppendKey([]byte("x"), req)
				if !ok || key[0] != 'x' {
					t.Fatalf("AppendKey(%v) = %q, %v", attributes, key, ok)
				}
				return key
			}
		}
		t.Fatalf("rule %s does not apply to %v", rule, attributes)
		return nil
	}
	ip := func(rule, addr string) []byte { return key(rule, map[string]string{"client_ip": addr}) }
	for _, tc := range []struct {
		rule, a, b string
		same       bool
	}{
		{"ip", "192.0.2.1", "192.0.2.2", false},
		{"ip", "192.0.2.1", "::ffff:192.0.2.1", true}, // mapped
		{"ip", "192.0.2.1", "::ffff:c000:201", true},
		{"ip", "2001:db8::1", "2001:db8:0:0:ffff::2", true}, // one /64
		{"ip", "2001:db8::1", "2001:db8:0:1::1", false},
		{"ip", "fe80::1%eth0", "fe80::1%eth1", true},
		{"ip", "2001:DB8::1", "2001:db8:0::1", true},
		{"ip", "::", "0.0.0.0", false},
		{"ip", "not an address", "nor this", false},
		{"ip", "::", "not an address", false},
		{"net", "192.0.2.1", "192.0.2.200", true},
		{"net", "192.0.2.1", "192.0.3.1", false},
		{"net", "2001:db8:7:1::", "2001:db8:7:ffff::", true},
		{"net", "2001:db8:7::", "2001:db8:8::", false},
	} {
		if got := bytes.Equal(ip(tc.rule, tc.a), ip(tc.rule, tc.b)); got != tc.same {
			t.Errorf("%s: keys of %q and %q are the same: %v, want %v", tc.rule, tc.a, tc.b, got, tc.same)
		}
	}
	pair := func(a, b string) []byte { return key("pair", map[string]string{"a": a, "b": b}) }
	for _, other := range [][2]string{{"ab", "c"}, {"abc", ""}, {"a\x00", "bc"}, {"bc", "a"}, {"a", "b,c"}} {
		if other[1] == "" {
			req := request(ns, map[string]string{"a": other[0]})
			if strings.Contains(ruleNames(req.Rules()), "pair") {
				t.Error("a rule applies though a part of its key is absent")
			}
			continue
		}
		if bytes.Equal(pair("a", "bc"), pair(other[0], other[1])) {
			t.Errorf("(a, bc) and %q have the same key", other)
		}
	}
}

func TestCost(t *testing.T) {
	ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{{Name: "a", Cost: limit.CostSpec{
		Default: 2, Max: 50, ByRoute: map[string]uint64{"POST /search": 5, "/bulk/**": 7, "GET /free": 0},
	}}}})
	for _, tc := range []struct {
		method, path string
		named, want  uint64
	}{
		{"GET", "/x", 0, 2}, {"POST", "/search", 0, 5}, {"GET", "/search", 0, 2}, {"PUT", "/bulk/1", 0, 7},
		{"GET", "/free", 0, 0}, {"POST", "/search", 3, 3}, {"GET", "/x", 51, 50}, {"GET", "/x", 1 << 63, 50},
	} {
		req := request(ns, map[string]string{"method": tc.method, "path": tc.path})
		req.Cost = tc.named
		if got := req.Rules()[0].CostOf(req); got != tc.want {
			t.Errorf("%s %s, %d named: cost %d, want %d", tc.method, tc.path, tc.named, got, tc.want)
		}
	}
}

func TestReleasedRequestsForget(t *testing.T) {
	ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{{Name: "a", Key: []string{"user"}}}})
	for range 100 { // some of these come from the pool
		req := ns.NewRequest()
		if req.Get("user") != "" || req.Cost != 0 || req.Peek || req.Details || len(req.States) != 0 {
			t.Fatal("a request from the pool remembers the one before")
		}
		if !req.Set("user", "u") || req.Set("unread", "x") {
			t.Fatal("Set is wrong about which attributes some rule reads")
		}
		req.Cost, req.Peek, req.Details = 3, true, true
		req.States = append(req.States, limit.State{Denied: true})
		req.Release()
	}
}

// hotPath is what every check does before it counts.
func hotPath(ns *limit.Namespace, header map[string][]string) {
	req := ns.NewRequest()
	describeAndMatch(req, header)
	req.Release()
}

func describeAndMatch(req *limit.Request, header map[string][]string) {
	req.SetHTTP("GET", "/api/items/7", "shop.example", "2001:db8::1", header)
	for _, r := range req.Rules() {
		key, _ := r.AppendKey(req.Scratch(), req)
		req.KeepScratch(key)
		r.CostOf(req)
	}
}

func hotNamespace(t testing.TB) (*limit.Namespace, map[string][]string) {
	ns := compileNamespace(t, limit.Document{
		Keys: map[string]limit.KeySource{"ip": {From: []string{"client_ip"}}, "user": {From: []string{"header.X-User-Id"}}},
		Rules: []limit.RuleSpec{
			{Name: "login", Priority: 3, Match: limit.MatchSpec{Path: []string{"/login"}, Methods: []string{"POST"}}, Key: []string{"user", "ip"}},
			{Name: "user", Priority: 2, Key: []string{"user"}, Match: limit.MatchSpec{Path: []string{"/api/**"}}, Cost: limit.CostSpec{ByRoute: map[string]uint64{"GET /api/search": 5}}},
			{Name: "ip", Key: []string{"ip"}, Group: "ip"},
		},
	})
	return ns, map[string][]string{"X-User-Id": {strings.Repeat("u", 200)}, "Accept": {"*/*"}}
}

func TestHotPathAllocatesNothing(t *testing.T) {
	ns, header := hotNamespace(t)
	req := ns.NewRequest()
	if n := testing.AllocsPerRun(1000, func() { describeAndMatch(req, header) }); n != 0 {
		t.Errorf("%v allocations to describe and match a request, want 0", n)
	}
	req.Release()
	if raceEnabled {
		return // sync.Pool drops a part of what it is given then, on purpose
	}
	if n := testing.AllocsPerRun(1000, func() { hotPath(ns, header) }); n != 0 {
		t.Errorf("%v allocations a request, want 0", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	ns, header := hotNamespace(b)
	b.ReportAllocs()
	for b.Loop() {
		hotPath(ns, header)
	}
}

// A slot that does not exist is no other attribute's: who goes on with what Slot
// returned has set nothing.
func TestNoSlotSetsNothing(t *testing.T) {
	ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{{Name: "r", Key: []string{"user"}}}})
	req := request(ns, map[string]string{"method": "GET", "user": "u"})
	defer req.Release()
	slot, ok := ns.Slot("usr")
	if ok {
		t.Fatalf("Slot finds an attribute that no rule reads, at %d", slot)
	}
	req.SetSlot(slot, "x")
	for name, want := range map[string]string{"method": "GET", "path": "", "host": "", "client_ip": "", "user": "u"} {
		if got := req.Get(name); got != want {
			t.Errorf("%s = %q after SetSlot of no slot, want %q", name, got, want)
		}
	}
	if slot, ok = ns.Slot("user"); !ok {
		t.Fatal("Slot does not find user")
	}
	req.SetSlot(slot, "v")
	if got := req.Get("user"); got != "v" {
		t.Errorf("user = %q, want v", got)
	}
}

func TestSameAttribute(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"user", "user", true}, {"user", "User", false}, {"", "", true},
		{"header.X-User-Id", "header.x-user-id", true}, {"header.X-User-Id", "header.X-USER-ID", true},
		{"header.X-User-Id", "header.X-User", false}, {"header.X-User-Id", "X-User-Id", false}, {"header.X-User-Id", "Header.X-User-Id", false},
		{"host", "header.Host", false}, {"host", "Host", false}, {"host", "header.X-Host", false},
		{"header.K", "header.\u212a", false}, // the sign of Kelvin
	} {
		if limit.SameAttribute(c.a, c.b) != c.want || limit.SameAttribute(c.b, c.a) != c.want {
			t.Errorf("%q and %q are taken for the same: %v, want %v", c.a, c.b, !c.want, c.want)
		}
	}
}
