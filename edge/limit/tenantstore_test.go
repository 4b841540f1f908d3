package limit_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// tenanted is a set whose rule multiplies for organisations, with a store.
func tenanted(t testing.TB, tiers map[string]limit.TenantSpec, rates ...limit.RateSpec) (*limit.Tenants, *limit.Set, *[]string) {
	t.Helper()
	set, problems := limit.Compile(limit.Document{
		Namespace: "acme", Tenants: tiers, Keys: map[string]limit.KeySource{"org": {From: []string{"header.X-Org"}}},
		Rules: []limit.RuleSpec{{Name: "api", Key: []string{"org"}, TierFrom: "org", Rates: rates}},
	})
	if set == nil {
		t.Fatal(problems)
	}
	set.Seal(7, func([]byte) [2]uint64 { return [2]uint64{1, 2} })
	told := new([]string)
	store := limit.NewTenants(func(err error) { *told = append(*told, err.Error()) })
	store.Use(set)
	return store, set, told
}

var (
	hundred = limit.RateSpec{Limit: 100, Per: time.Minute}
	gold    = map[string]limit.TenantSpec{"gold": {Multiply: 10}, "silver": {Multiply: 2}}
)

func org(t testing.TB, store *limit.Tenants, entries ...limit.TenantEntry) map[int]error {
	t.Helper()
	for i := range entries {
		entries[i].Namespace = "acme"
	}
	return store.Put(entries)
}

// ruleFor is the rule as a tenant has it.
func ruleFor(t testing.TB, set *limit.Set, tenant string, now time.Time) (*limit.Rule, limit.Tenancy) {
	t.Helper()
	req := set.Namespace("acme").NewRequest()
	defer req.Release()
	req.Set("header.X-Org", tenant)
	req.At(now.UnixNano())
	rule := req.Rules()[0]
	tenancy, ok := rule.Tenancy(req)
	if !ok {
		t.Fatalf("of %s nothing is known", tenant)
	}
	return rule, tenancy
}

func TestTenantsByStore(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	store, set, told := tenanted(t, gold, hundred)
	refused := org(t, store,
		limit.TenantEntry{Tenant: "acme", Tier: "gold"},
		limit.TenantEntry{Tenant: "own", Multiply: 3.5},
		limit.TenantEntry{Tenant: "ends", Tier: "gold", Until: now.Add(time.Minute)},
		limit.TenantEntry{Tenant: "typo", Tier: "golf"},
		limit.TenantEntry{Tenant: "gold", Tier: "silver"}, // a tenant that is called as a tier is
		limit.TenantEntry{Tenant: "tiny", Multiply: 0.001},
		limit.TenantEntry{Tenant: "as silver", Multiply: 2},
		limit.TenantEntry{Tenant: "gone", Tier: "gold"},
		limit.TenantEntry{Tenant: "gone", Deleted: true},
	)
	if len(refused) > 0 {
		t.Errorf("refused are %v", refused)
	}
	for _, tc := range []struct {
		tenant string
		limit  uint64
		want   limit.Tenancy
	}{
		{"acme", 1000, limit.Tenancy{Tier: "gold", Multiply: 10, Stored: true}},
		{"own", 350, limit.Tenancy{Multiply: 3.5, Stored: true}},
		{"ends", 1000, limit.Tenancy{Tier: "gold", Multiply: 10, Stored: true, Until: now.Add(time.Minute)}},
		{"typo", 100, limit.Tenancy{Tier: "golf", Multiply: 1, Stored: true, Unknown: true}},
		{"gold", 200, limit.Tenancy{Tier: "silver", Multiply: 2, Stored: true}},
		{"silver", 200, limit.Tenancy{Tier: "silver", Multiply: 2}},
		{"tiny", 100, limit.Tenancy{Multiply: 1, Stored: true, Unknown: true}},
		{"as silver", 200, limit.Tenancy{Multiply: 2, Stored: true}},
		{"gone", 100, limit.Tenancy{Multiply: 1}},
		{"nobody", 100, limit.Tenancy{Multiply: 1}},
	} {
		tc.want.Tenant = tc.tenant
		rule, got := ruleFor(t, set, tc.tenant, now)
		if rule.Rates[0].Limit != tc.limit || got != tc.want {
			t.Errorf("%s has %d, %+v, want %d, %+v", tc.tenant, rule.Rates[0].Limit, got, tc.limit, tc.want)
		}
	}
	if rule, _ := ruleFor(t, set, "ends", now.Add(time.Minute)); rule.Rates[0].Limit != 100 {
		t.Errorf("what has ended has %d", rule.Rates[0].Limit)
	}
	if len(*told) != 2 || !strings.Contains((*told)[0], `no tier "golf"`) || !strings.Contains((*told)[0], "gold, silver") || !strings.Contains((*told)[1], "multiply: 0.001: rule api") {
		t.Errorf("told is %q, want of golf, and of 0.001", *told)
	}
	if n := store.Sweep(now.Add(time.Hour)); n != 1 || store.Len("acme") != 6 {
		t.Errorf("%d have ended, and %d are left, want 1 and 6", n, store.Len("acme"))
	}
}

// Entries that are wrong in themselves are refused, each alone, and what was there before stays.
func TestTenantsRefused(t *testing.T) {
	store, set, _ := tenanted(t, gold, hundred)
	org(t, store, limit.TenantEntry{Tenant: "acme", Tier: "gold"})
	for name, e := range map[string]limit.TenantEntry{
		"nothing": {}, "both": {Tier: "gold", Multiply: 2}, "less than nothing": {Multiply: -1}, "too much": {Multiply: 1e7}, "no UTF-8": {Tier: "\xff"},
	} {
		e.Tenant = "acme"
		if refused := org(t, store, limit.TenantEntry{Tenant: "b", Tier: "silver"}, e); len(refused) != 1 || refused[1] == nil {
			t.Errorf("%s: refused is %v, want the second", name, refused)
		}
	}
	if refused := org(t, store, limit.TenantEntry{Tier: "gold"}); len(refused) != 1 {
		t.Error("a tenant without a name is taken")
	}
	if rule, _ := ruleFor(t, set, "acme", time.Now()); rule.Rates[0].Limit != 1000 {
		t.Errorf("acme has %d, want what it had", rule.Rates[0].Limit)
	}
	for name, tc := range map[string]struct {
		entry limit.TenantEntry
		code  string
	}{
		"a tier":       {limit.TenantEntry{Tier: "gold"}, ""},
		"a multiplier": {limit.TenantEntry{Multiply: 3}, ""},
		"removal":      {limit.TenantEntry{Deleted: true}, ""},
		"no tier":      {limit.TenantEntry{Tier: "golf"}, "E342"},
		"nothing left": {limit.TenantEntry{Multiply: 0.001}, "E196"},
		"nobody":       {limit.TenantEntry{Namespace: "other", Tier: "gold"}, "E343"},
	} {
		if tc.entry.Tenant = "t"; tc.entry.Namespace == "" {
			tc.entry.Namespace = "acme"
		}
		p := set.CheckTenant(&tc.entry)
		if code := ""; p != nil && p.Code != tc.code || p == nil && code != tc.code {
			t.Errorf("%s: %+v, want %q", name, p, tc.code)
		}
	}
}

// A multiplier is in force in rules that come later, and goes with the last tenant that has it: another
// takes its place. Of each set and multiplier the epoch is another, so that no allowance is taken for one
// of another limit.
func TestOwnMultipliers(t *testing.T) {
	now := time.Now()
	store, set, _ := tenanted(t, gold, hundred)
	entries := make([]limit.TenantEntry, 4*limit.MaxOwnMultipliers)
	for i := range entries {
		entries[i] = limit.TenantEntry{Tenant: fmt.Sprint(i), Multiply: float64(i + 3)}
	}
	if refused := org(t, store, entries...); len(refused) > 0 {
		t.Fatal(refused)
	}
	one := limit.TenantEntry{Tenant: "one too many", Multiply: 999}
	if refused := org(t, store, one); !errors.Is(refused[0], limit.ErrTooManyMultipliers) {
		t.Errorf("one too many: %v", refused)
	}
	epochs := map[uint32]bool{}
	see := func(set *limit.Set, tenant string, want uint64) {
		t.Helper()
		rule, _ := ruleFor(t, set, tenant, now)
		if rule.Rates[0].Limit != want || rule.Epoch == 0 || epochs[rule.Epoch] || !set.Has(rule.Rates[0]) {
			t.Errorf("tenant %s has %d in epoch %d, want %d in one of its own", tenant, rule.Rates[0].Limit, rule.Epoch, want)
		}
		epochs[rule.Epoch] = true
	}
	see(set, "0", 300)
	see(set, "63", 6600)
	if refused := org(t, store, limit.TenantEntry{Tenant: "0", Multiply: 999}, one); len(refused) > 0 {
		t.Errorf("in the place of another: %v", refused)
	}
	see(set, "0", 99900)
	_, next, _ := tenanted(t, gold, hundred)
	store.Use(next)
	see(next, "0", 99900)
	see(next, "63", 6600)
	see(next, "nobody", 100)
}

// All may have another multiplier, one after the other, though there are as many different ones as there may be.
func TestAllOwnMultipliersChange(t *testing.T) {
	store, set, _ := tenanted(t, gold, hundred)
	tenants := func(more float64) (entries []limit.TenantEntry) {
		for i := range 4 * limit.MaxOwnMultipliers {
			entries = append(entries, limit.TenantEntry{Tenant: fmt.Sprint(i), Multiply: float64(i%limit.MaxOwnMultipliers) + 2 + more})
		}
		return entries
	}
	for _, more := range []float64{0, 0.5, 0.25, 0} {
		for _, e := range tenants(more) {
			if refused := org(t, store, e); len(refused) > 0 {
				t.Fatalf("%v more: %v", more, refused)
			}
		}
		if rule, _ := ruleFor(t, set, "70", time.Now()); rule.Rates[0].Limit != uint64((8+more)*100) {
			t.Errorf("%v more: tenant 70 has %d", more, rule.Rates[0].Limit)
		}
	}
}

// A document need not have any tier, and says so.
func TestTenantsInStoreAlone(t *testing.T) {
	store, set, _ := tenanted(t, map[string]limit.TenantSpec{}, hundred)
	org(t, store, limit.TenantEntry{Tenant: "acme", Multiply: 2})
	if rule, _ := ruleFor(t, set, "acme", time.Now()); rule.Rates[0].Limit != 200 {
		t.Errorf("acme has %d, want 200", rule.Rates[0].Limit)
	}
	_, problems := limit.Compile(limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{Name: "api", TierFrom: "host", Rates: []limit.RateSpec{hundred}}}})
	if len(problems) != 1 || len(problems[0]) != 1 || problems[0][0].Code != "E193" || !strings.Contains(problems[0][0].Hint, "tenants: {}") {
		t.Errorf("a document that says nothing: %v, want E193", problems)
	}
}

// Requests are judged while tenants and rules change.
func TestTenantsWhileAsked(t *testing.T) {
	store, set, _ := tenanted(t, gold, hundred)
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				rule, _ := ruleFor(t, set, "acme", time.Now())
				if !slices.Contains([]uint64{100, 1000, 300, 700}, rule.Rates[0].Limit) {
					t.Errorf("acme has %d", rule.Rates[0].Limit)
					return
				}
			}
		})
	}
	for i := range 3000 {
		e := []limit.TenantEntry{{Tier: "gold"}, {Multiply: 3}, {Multiply: 7}, {Deleted: true}}[i%4]
		e.Tenant = "acme"
		org(t, store, e)
	}
	close(stop)
	all.Wait()
}

func many(t testing.TB, n int) (*limit.Tenants, *limit.Set) {
	t.Helper()
	store, set, _ := tenanted(t, gold, hundred)
	entries := make([]limit.TenantEntry, n)
	for i := range entries {
		entries[i] = limit.TenantEntry{Tenant: fmt.Sprintf("tenant-%06d", i), Tier: "gold"}
	}
	org(t, store, entries...)
	return store, set
}

// What a tenant takes is bounded.
func TestTenantBytes(t *testing.T) {
	const n = 100_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	store, _ := many(t, n)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - before.HeapAlloc) / n; store.Len("acme") != n || each > 120 {
		t.Errorf("%d tenants take %d bytes each, names of 13 among them, want at most 120", store.Len("acme"), each)
	} else {
		t.Logf("a tenant takes %d bytes", each)
	}
}

func BenchmarkTenants(b *testing.B) {
	store, set := many(b, 100_000)
	names := make([]string, 1<<14)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%06d", i*6)
	}
	rule := set.Rules()[0]
	b.Run("For", func(b *testing.B) {
		req := set.Namespace("acme").NewRequest()
		slot, _ := set.Namespace("acme").Slot("header.X-Org")
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			req.SetSlot(slot, names[i%len(names)])
			rule.For(req)
		}
	})
	b.Run("Put", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			org(b, store, limit.TenantEntry{Tenant: names[i%len(names)], Tier: "silver"})
		}
	})
}
