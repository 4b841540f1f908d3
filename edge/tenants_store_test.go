package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A tenant whose entry changes has the other limit at once, for what it has counted already, by whatever
// algorithm; others notice nothing, and no rules are compiled.
func TestTenantsOfAStore(t *testing.T) {
	for name, rate := range map[string]limit.RateSpec{
		"sub_windows":    {Limit: 10, Per: time.Minute},
		"fixed_window":   {Algorithm: "fixed_window", Limit: 10, Per: time.Hour},
		"sliding_window": {Algorithm: "sliding_window", Limit: 10, Per: time.Minute},
		"sliding_log":    {Algorithm: "sliding_log", Limit: 10, Per: time.Minute},
		"token_bucket":   {Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 1, Per: time.Hour}},
		"loose":          {Limit: 10, Per: time.Minute, Consistency: "loose"},
	} {
		t.Run(name, func(t *testing.T) {
			tenants := limit.NewTenants(func(err error) { t.Error(err) })
			n := newNode(t, Config{Tenants: tenants}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
			set, problems := limit.Compile(limit.Document{Namespace: "acme", Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 3}},
				Rules: []limit.RuleSpec{{Name: "api", Key: []string{"user"}, TierFrom: "user", Rates: []limit.RateSpec{rate}}}})
			if set == nil {
				t.Fatal(problems)
			}
			if err := n.SetRules(set); err != nil {
				t.Fatal(err)
			}
			now := start.Truncate(time.Hour).Add(time.Minute)
			ask := func(user string) limit.Decision {
				req := n.Rules().Namespace("acme").NewRequest()
				defer req.Release()
				req.Set("user", user)
				return n.Check(now, req)
			}
			passes := func(user string, want int) {
				t.Helper()
				passed := 0
				for passed <= want && ask(user).Allowed {
					passed++
				}
				if passed != want {
					t.Errorf("of %s %d passed, want %d", user, passed, want)
				}
			}
			put := func(e limit.TenantEntry) {
				t.Helper()
				e.Namespace, e.Tenant = "acme", "u"
				if refused := tenants.Put([]limit.TenantEntry{e}); refused != nil {
					t.Fatal(refused)
				}
			}
			passes("u", 10)
			passes("v", 10)
			put(limit.TenantEntry{Tier: "gold"})
			passes("u", 20)
			put(limit.TenantEntry{Multiply: 4, Until: now.Add(time.Second)})
			passes("u", 10)
			put(limit.TenantEntry{Multiply: 5})
			passes("u", 10)
			passes("v", 0)
			put(limit.TenantEntry{Multiply: 2}) // less than it has counted
			passes("u", 0)
			put(limit.TenantEntry{Multiply: 5, Until: now.Add(time.Second)})
			if d := ask("u"); d.Allowed || d.Rate.Limit != 50 {
				t.Errorf("%+v, want a denial by 50", d)
			}
			now = now.Add(time.Second) // it ends by itself
			if d := ask("u"); d.Allowed || d.Rate.Limit != 10 {
				t.Errorf("%+v, want a denial by 10", d)
			}
		})
	}
}
