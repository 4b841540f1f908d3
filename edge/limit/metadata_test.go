package limit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestSetCallReadsHeadersInLowerCase(t *testing.T) {
	long := "X-" + strings.Repeat("Long-", 20) + "Name" // longer than the room on the stack
	set, problems := limit.Compile(limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{
		Name: "r", Key: []string{"header.X-User-Id", "header." + long, "client_ip"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}},
	}}})
	if set == nil {
		t.Fatal(problems)
	}
	req := set.Only().NewRequest()
	defer req.Release()
	md := map[string][]string{"x-user-id": {"u1", "u2"}, strings.ToLower(long): {"l"}, "X-Other": {"o"}, "x-empty": {}}
	req.SetCall("POST", "/pkg.Svc/M", "shop.example", "192.0.2.1", md)
	for name, want := range map[string]string{
		"method": "POST", "path": "/pkg.Svc/M", "host": "shop.example", "client_ip": "192.0.2.1",
		"header.X-User-Id": "u1", "header." + long: "l",
	} {
		if got := req.Get(name); got != want {
			t.Errorf("Get(%q) = %q, want %q", name, got, want)
		}
	}
	if raceEnabled {
		return // it allocates by itself
	}
	delete(md, strings.ToLower(long))
	if n := testing.AllocsPerRun(100, func() { req.SetCall("POST", "/pkg.Svc/M", "shop.example", "192.0.2.1", md) }); n > 1 {
		t.Errorf("%v allocations, want at most one, for the name that is longer than a stack's room", n)
	}
}

// byHeaders is a request before so many rules, each of which reads a header of its own.
func byHeaders(t testing.TB, names int) *limit.Request {
	t.Helper()
	doc := limit.Document{Namespace: "acme"}
	for i := range names {
		doc.Rules = append(doc.Rules, limit.RuleSpec{Name: fmt.Sprint("r", i), Key: []string{fmt.Sprint("header.X-K", i)}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}, Priority: i})
	}
	set, problems := limit.Compile(doc)
	if set == nil {
		t.Fatal(problems)
	}
	req := set.Only().NewRequest()
	t.Cleanup(req.Release)
	return req
}

// However many names rules read, a request is read by its own, where these are fewer: it has the same
// of them, and takes no longer.
func TestRequestsAreReadByTheirOwnHeaders(t *testing.T) {
	header, metadata := map[string][]string{"Accept": {"*/*"}, "X-K3": {}, "x-k5": {"no"}, "X-K7": {"a", "b"}}, map[string][]string{"x-k7": {"a", "b"}, "X-K5": {"no"}, "x-k3": {}}
	for _, names := range []int{8, 9, 1000} {
		for how, set := range map[string]func(req *limit.Request){
			"SetHTTP": func(req *limit.Request) { req.SetHTTP("GET", "/", "h", "192.0.2.1", header) },
			"SetCall": func(req *limit.Request) { req.SetCall("POST", "/", "h", "192.0.2.1", metadata) },
		} {
			req := byHeaders(t, names)
			set(req)
			for name, want := range map[string]string{"header.X-K7": "a", "header.X-K3": "", "header.X-K5": "", "client_ip": "192.0.2.1"} {
				if got := req.Get(name); got != want {
					t.Errorf("%s of %d names: %s is %q, want %q", how, names, name, got, want)
				}
			}
			if rules := req.Rules(); len(rules) != 1 || rules[0].Name != "r7" {
				t.Errorf("%s of %d names: %d rules apply", how, names, len(rules))
			}
		}
	}
}

func BenchmarkSetHTTP(b *testing.B) {
	for _, names := range []int{1, 10, 10_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			req := byHeaders(b, names)
			header := map[string][]string{}
			for _, name := range []string{"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Content-Type", "Cookie", "Origin", "Referer", "User-Agent", "X-K0"} {
				header[name] = []string{"x"}
			}
			for b.Loop() {
				req.SetHTTP("GET", "/", "h", "192.0.2.1", header)
			}
		})
	}
}
