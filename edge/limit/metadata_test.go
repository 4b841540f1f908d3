package limit_test

import (
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
