package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// admits counts how many requests of cost 1 a user gets through out of some.
func admits(n *Node, now time.Time, user string, tries int) (admitted int, zones map[limit.Zone]int) {
	zones = map[limit.Zone]int{}
	for range tries {
		d := check(n, now, user)
		zones[d.Zone]++
		if d.Allowed {
			admitted++
		}
	}
	return admitted, zones
}

func elastic(name string, limitOf uint64, e limit.ElasticSpec) limit.RuleSpec {
	rule := perUser(limit.RateSpec{Limit: limitOf, Per: time.Hour})
	rule.Name, rule.Margin = name, limit.MarginSpec{SoftPercent: 10, Elastic: e}
	return rule
}

// An elastic margin is open while its signal says that there is room, and not a
// decision longer.
func TestElasticFollowsItsSignal(t *testing.T) {
	n := newNode(t, Config{}, elastic("api", 100, limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"}))
	if got, zones := admits(n, start, "u", 200); got != 110 || zones[limit.ZoneSoft] != 10 || zones[limit.ZoneElastic] != 0 {
		t.Fatalf("without a signal %d admitted, %v; want 110, 10 of them soft", got, zones)
	}
	set := func(used float64, ttl time.Duration) {
		t.Helper()
		if err := n.SetCapacity(start, "api", used, ttl); err != nil {
			t.Fatal(err)
		}
	}
	set(0.69, 10*time.Second)
	if got, zones := admits(n, start, "u", 15); got != 15 || zones[limit.ZoneElastic] != 15 {
		t.Fatalf("with room elsewhere %d of 15 admitted, %v; want all, elastic", got, zones)
	}
	set(0.70, 10*time.Second)
	if got, _ := admits(n, start, "u", 10); got != 0 {
		t.Fatalf("with no room elsewhere %d admitted, want none", got)
	}
	set(0.1, 10*time.Second)
	if got, _ := admits(n, start.Add(11*time.Second), "u", 10); got != 0 {
		t.Fatalf("after the signal ran out %d admitted, want none", got)
	}
	set(0.1, 10*time.Second)
	if got, _ := admits(n, start, "u", 100); got != 25 {
		t.Fatalf("open again %d admitted, want the 25 up to 150", got)
	}
	d := check(n, start, "u")
	if d.Allowed || d.RetryAfter <= 0 || d.Remaining != 0 || d.Limit != 100 {
		t.Fatalf("beyond the elastic margin: %+v", d)
	}
}

// What a parent limit leaves unused may be borrowed, whether the parent applies
// to the request by itself or not; it counts against the parent.
func TestElasticBorrowsFromItsParent(t *testing.T) {
	child := func() limit.RuleSpec {
		return elastic("child", 10, limit.ElasticSpec{UpToPercent: 100, Parent: "parent"})
	}
	parent := limit.RuleSpec{Name: "parent", Rates: []limit.RateSpec{{Limit: 33, Per: time.Hour}}}
	applies, aside := parent, parent
	applies.Group = "org"
	aside.Match.Path = []string{"/elsewhere"}
	for name, test := range map[string]struct {
		parent  limit.RuleSpec
		want    []int // admitted of 50, user by user
		charged uint64
	}{
		"applies too": {applies, []int{20, 11 + 2, 0}, 33},
		"aside":       {aside, []int{20, 20, 20, 11 + 0, 11}, 27},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, child(), test.parent)
			var got []int
			for i := range test.want {
				admitted, _ := admits(n, start, string(rune('a'+i)), 50)
				got = append(got, admitted)
			}
			t.Logf("admitted %v", got)
			total := 0
			for _, g := range got {
				total += g
			}
			req := n.Rules().Only().NewRequest()
			req.Set("path", "/elsewhere")
			req.Set("user", "a")
			req.Peek = true
			var used uint64
			for _, b := range n.Inspect(start, req) {
				if b.Rule.Name == "parent" {
					used = b.Total
				}
			}
			if name == "applies too" && (total != 33 || used != 33 || got[0] != 20) {
				t.Errorf("admitted %v with %d charged to the parent; want 20 for the first, 33 in all", got, used)
			}
			// Aside, 11 of each are the child's own; 9 more are borrowed while 33 last.
			if name == "aside" && (got[0] != 20 || got[1] != 20 || got[2] != 20 || got[3] != 17 || got[4] != 11 || used != 33) {
				t.Errorf("admitted %v with %d charged to the parent; want 20 20 20 17 11, 33 lent", got, used)
			}
		})
	}
}

// The least class leaves to the others what is reserved for them.
func TestClasses(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 100, Per: time.Hour})
	rule.Classes = limit.ClassesSpec{From: "class", Order: []string{"batch", "normal", "critical"}, Reserve: map[string]float64{"normal": 20, "critical": 10}}
	n := newNode(t, Config{}, rule)
	ask := func(class string) (admitted int) {
		for range 200 {
			req := n.Rules().Only().NewRequest()
			req.Set("user", "u")
			req.Set("class", class)
			d := n.Check(start, req)
			req.Release()
			if !d.Allowed {
				if d.RetryAfter <= 0 {
					t.Fatalf("%s denied with no wait: %+v", class, d)
				}
				break
			}
			admitted++
		}
		return admitted
	}
	for _, step := range []struct {
		class string
		want  int
	}{{"batch", 70}, {"unheard-of", 0}, {"normal", 20}, {"batch", 0}, {"critical", 10}, {"normal", 0}, {"critical", 0}} {
		if got := ask(step.class); got != step.want {
			t.Errorf("%s: %d admitted, want %d", step.class, got, step.want)
		}
	}
}

// Above the limit requests are dropped at random, the more the nearer the
// ceiling is.
func TestProbabilisticDrop(t *testing.T) {
	draw := 0.0
	rule := perUser(limit.RateSpec{Limit: 100, Per: time.Hour})
	rule.Margin.SoftPercent, rule.Drop = 50, "probabilistic"
	n := newNode(t, Config{Rand: func() float64 { return draw }}, rule)
	if got, _ := admits(n, start, "u", 100); got != 100 {
		t.Fatalf("%d of the limit admitted, want all 100", got)
	}
	draw = 0.999
	if got, _ := admits(n, start, "u", 25); got != 25 {
		t.Fatalf("luckiest draws: %d of 25 admitted, want all", got)
	}
	for _, step := range []struct {
		draw float64
		want bool
	}{{0.49, false}, {0.51, true}, {0.51, false}, {0.53, true}} { // half of the margin is used: 25, then 26 of 50
		draw = step.draw
		d := check(n, start, "u")
		if d.Allowed != step.want {
			t.Fatalf("a draw of %v: %+v, want allowed %v", step.draw, d, step.want)
		}
		if d.Allowed && d.Zone != limit.ZoneSoft || !d.Allowed && (d.RetryAfter <= 0 || d.Zone != limit.ZoneHard) {
			t.Fatalf("a draw of %v: %+v", step.draw, d)
		}
	}
	draw = 0.9999
	if got, _ := admits(n, start, "u", 100); got != 23 {
		t.Fatalf("%d more admitted, want the 23 up to the ceiling", got)
	}
}

func TestNearLimit(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 10, Per: time.Hour})
	rule.NearLimitPercent = 80
	n := newNode(t, Config{}, rule)
	for i := 1; i <= 12; i++ {
		if d := check(n, start, "u"); d.Near != (i >= 8) {
			t.Errorf("request %d of 10: near %v, want %v", i, d.Near, i >= 8)
		}
	}
}

// It is near if any of its rates is, tightest or not.
func TestNearLimitOfAnyRate(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 10, Per: time.Hour})
	rule.NearLimitPercent, rule.MinGap = 80, time.Second
	n := newNode(t, Config{}, rule)
	for i := 1; i <= 10; i++ {
		if d := check(n, start.Add(time.Duration(i)*time.Second), "u"); !d.Allowed || d.Near != (i >= 8) {
			t.Errorf("request %d of 10: %+v, want near %v", i, d, i >= 8)
		}
	}
}

// Nor need the tightest rate be the one that is near: of what a bucket starts
// with beyond its capacity little may be left long before that is.
func TestNearLimitBesideTheTightest(t *testing.T) {
	rule := perUser(
		limit.RateSpec{Name: "window", Limit: 100, Per: time.Hour, Algorithm: "fixed_window"},
		limit.RateSpec{Name: "bucket", Algorithm: "token_bucket", Capacity: 60, Initial: 90, Refill: limit.Flow{Units: 1, Per: time.Hour}})
	rule.NearLimitPercent = 50
	n := newNode(t, Config{}, rule)
	for i := 1; i <= 60; i++ {
		if d := check(n, start, "u"); !d.Allowed || d.Near != (i >= 50) {
			t.Errorf("request %d of 100: %+v, want near %v", i, d, i >= 50)
		}
	}
}

// With charge: each a request that one rate denies is charged to all, as
// Envoy's reference does.
func TestChargeEach(t *testing.T) {
	for charge, want := range map[string]uint64{"all_or_nothing": 2, "each": 6} {
		rule := perUser(
			limit.RateSpec{Limit: 2, Per: time.Minute, Algorithm: "fixed_window"},
			limit.RateSpec{Limit: 100, Per: time.Hour, Algorithm: "fixed_window"})
		rule.Charge = charge
		n := newNode(t, Config{}, rule)
		if got, _ := admits(n, start, "u", 6); got != 2 {
			t.Errorf("%s: %d admitted, want 2", charge, got)
		}
		req := n.Rules().Only().NewRequest()
		req.Set("user", "u")
		if got := n.Inspect(start, req)[1].Total; got != want {
			t.Errorf("%s: the hour has %d, want %d", charge, got, want)
		}
	}
}

// Requests are kept apart, whatever they cost.
func TestMinGap(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 1000, Per: time.Hour})
	rule.MinGap = 200 * time.Millisecond
	n := newNode(t, Config{}, rule)
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {199*time.Millisecond + 999999, false}, {200 * time.Millisecond, true}, {399 * time.Millisecond, false}, {time.Hour, true}} {
		d := checkCost(n, start.Add(step.after), "u", 50)
		if d.Allowed != step.want {
			t.Errorf("after %v: %+v, want allowed %v", step.after, d, step.want)
		}
	}
	rule.Cost.ByRoute = map[string]uint64{"/free": 0}
	n = newNode(t, Config{}, rule)
	got := 0
	for range 10 {
		req := requestOf(n, "u")
		req.Set("path", "/free")
		if n.Check(start, req).Allowed {
			got++
		}
	}
	if got != 1 {
		t.Errorf("%d free requests at one instant, want 1", got)
	}
}

// A header names the cost of trusted callers only.
func TestCostFromHeader(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 1 << 40, Per: time.Hour})
	rule.Cost = limit.CostSpec{FromHeader: "X-Tokens", Max: 1 << 30}
	n := newNode(t, Config{}, rule)
	for _, test := range []struct {
		value   string
		trusted bool
		want    uint64
	}{{"250000", true, 250000}, {"250000", false, 1}, {"-5", true, 1}, {"1e9", true, 1}, {"", true, 1}, {"99999999999999999999999", true, 1 << 30}, {"2000000000", true, 1 << 30}} {
		req := n.Rules().Only().NewRequest()
		req.Set("user", "u")
		req.Set("header.X-Tokens", test.value)
		req.Trusted = test.trusted
		if d := n.Check(start, req); d.Cost != test.want {
			t.Errorf("%q, trusted %v: cost %d, want %d", test.value, test.trusted, d.Cost, test.want)
		}
	}
	if got := n.Rules().Rules()[0].BadCosts(); got != 2 {
		t.Errorf("%d bad costs counted, want 2", got)
	}
}

// Requests over a limit may wait for room, as long as the rule lets them.
func TestMaxDelay(t *testing.T) {
	rule := perUser(tokens(2, limit.Flow{Units: 10, Per: time.Second}))
	rule.MaxDelay = 250 * time.Millisecond
	n := newNode(t, Config{}, rule)
	for i, want := range []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond} {
		if d := check(n, start, "u"); !d.Allowed || d.Delay != want {
			t.Fatalf("request %d: %+v, want it to wait %v", i, d, want)
		}
	}
	if d := check(n, start, "u"); d.Allowed || d.Delay != 0 || d.RetryAfter != 300*time.Millisecond {
		t.Fatalf("the fifth: %+v, want denied, as it would wait 300ms", d)
	}
	if d := check(n, start.Add(50*time.Millisecond), "u"); !d.Allowed || d.Delay != 250*time.Millisecond {
		t.Fatalf("the fifth, later: %+v, want it to wait 250ms", d)
	}
	if d := checkCost(n, start, "u", 3); d.Allowed {
		t.Fatalf("more than ever fits: %+v", d)
	}
}

// A request in a margin is marked so, whatever other limit it uses up, and told
// of the limit that is tightest, which a gap between requests is not.
func TestMarkOfAnyRate(t *testing.T) {
	soft := limit.RuleSpec{Name: "soft", Group: "soft", Rates: []limit.RateSpec{{Limit: 10, Per: time.Hour}}, Margin: limit.MarginSpec{SoftPercent: 10}}
	other := limit.RuleSpec{Name: "other", Group: "other", Rates: []limit.RateSpec{{Limit: 11, Per: time.Hour}}}
	apart := other
	apart.MinGap = time.Millisecond
	for name, second := range map[string]limit.RuleSpec{"used up": other, "apart": apart} {
		n := newNode(t, Config{}, second, soft)
		for i := 1; i <= 11; i++ {
			req := n.Rules().Only().NewRequest()
			req.Details = i%2 == 0 // decided at length
			d := n.Check(start.Add(time.Duration(i)*time.Second), req)
			want := limit.ZoneNormal
			if i == 11 {
				want = limit.ZoneSoft
			}
			if !d.Allowed || d.Zone != want {
				t.Errorf("%s: request %d: %+v, want zone %v", name, i, d, want)
			}
		}
	}
	rule := perUser(limit.RateSpec{Limit: 1000, Per: time.Hour})
	rule.MinGap = 100 * time.Millisecond
	n := newNode(t, Config{}, rule)
	if d := check(n, start, "u"); d.Limit != 1000 || d.Remaining != 999 {
		t.Errorf("the first of 1000: limit %d, %d remaining by %s", d.Limit, d.Remaining, d.Rate.Policy)
	}
	if d := check(n, start, "u"); d.Allowed || !d.Rate.PerRequest || d.RetryAfter != 100*time.Millisecond {
		t.Errorf("the second at once: %+v, want it denied by the gap", d)
	}
}

// What a decision was made from is told also where it is bytes.
func TestBasisOfBytes(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 1e12, Per: time.Hour})
	rule.Cost.Max = 1e12
	n := newNode(t, Config{}, rule)
	for k := uint64(1); k <= 9; k++ {
		d := checkCost(n, start.Add(time.Duration(k)*2*time.Minute), "u", 1e11)
		if d.Basis.Local != k*1e11 || d.Basis.Merged != 0 {
			t.Fatalf("%d bytes counted: basis %+v", k*1e11, d.Basis)
		}
	}
}

// Whoever is dropped at random is told when there is room below the limit, where
// nobody is; what costs nothing is never dropped.
func TestDroppedWaitForTheLimit(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 100, Per: time.Minute})
	rule.Margin.SoftPercent, rule.Drop = 50, "probabilistic"
	rule.Cost.ByRoute = map[string]uint64{"/free": 0}
	draw := 0.999
	n := newNode(t, Config{Rand: func() float64 { return draw }}, rule)
	if got, _ := admits(n, start, "u", 120); got != 120 {
		t.Fatalf("%d admitted by lucky draws, want 120", got)
	}
	draw = 0
	d := check(n, start, "u")
	if d.Allowed {
		t.Fatalf("in the margin, by the unluckiest draw: %+v", d)
	}
	if again := check(n, start.Add(d.RetryAfter-time.Millisecond), "u"); again.Allowed {
		t.Errorf("a millisecond before the wait of %v is over: %+v", d.RetryAfter, again)
	}
	free := requestOf(n, "u")
	free.Set("path", "/free")
	if d := n.Check(start, free); !d.Allowed {
		t.Errorf("what costs nothing was dropped: %+v", d)
	}
	if again := check(n, start.Add(d.RetryAfter), "u"); !again.Allowed {
		t.Errorf("after the wait of %v: %+v", d.RetryAfter, again)
	}
}

// Denied requests that are charged all the same spend nothing of what is kept for higher
// classes.
func TestDeniedRequestsSpendNoReserve(t *testing.T) {
	classes := limit.ClassesSpec{From: "header.X-Class", Order: []string{"batch", "critical"}, Reserve: map[string]float64{"critical": 30}}
	for name, rule := range map[string]limit.RuleSpec{
		"plain":        {Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}},
		"each":         {Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}, Charge: "each"},
		"count_denied": {Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute, Algorithm: "sliding_log", CountDenied: true}}},
	} {
		rule.Name, rule.Classes = "r", classes
		n := newNode(t, Config{}, rule)
		for _, c := range []struct {
			class string
			want  int
		}{{"batch", 7}, {"critical", 3}} {
			got := 0
			for range 20 {
				req := n.Rules().Only().NewRequest()
				req.Set("header.X-Class", c.class)
				if n.Check(start, req).Allowed {
					got++
				}
				req.Release()
			}
			if got != c.want {
				t.Errorf("%s: %d of %s admitted, want %d", name, got, c.class, c.want)
			}
		}
	}
}

// What is dropped at random in a soft margin goes by the ceiling that is in force: the elastic
// one, where that is open.
func TestDropsGoByTheCeilingInForce(t *testing.T) {
	for _, c := range []struct {
		used float64
		want uint64 // half are dropped in the middle of the margin
	}{{0.1, 151}, {0.9, 106}} {
		rule := perUser(limit.RateSpec{Limit: 100, Per: time.Hour, Algorithm: "fixed_window", Scope: "edge"})
		rule.Margin = limit.MarginSpec{SoftPercent: 10, Elastic: limit.ElasticSpec{UpToPercent: 100, While: "capacity.api < 70%"}}
		rule.Drop = "probabilistic"
		n := newNode(t, Config{Rand: func() float64 { return 0.5 }}, rule)
		n.SetCapacity(start, "api", c.used, time.Hour)
		admitted := uint64(0)
		for range 300 {
			if check(n, start, "u").Allowed {
				admitted++
			}
		}
		if admitted != c.want {
			t.Errorf("capacity %v used: %d admitted of 100 and a margin, want %d", c.used, admitted, c.want)
		}
	}
}

// Whoever asks for more than there is again and again is told what there is by then.
func TestDenialsTellWhatIsLeftByThen(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "sliding_window", Limit: 100, Per: 100 * time.Second, Scope: "edge"}))
	checkCost(n, start.Add(99*time.Second), "u", 100)
	for _, second := range []time.Duration{0, 38, 95} {
		for range 2 {
			if d, want := checkCost(n, start.Add((100+second)*time.Second), "u", 100), uint64(second); d.Allowed || d.Remaining < want || d.Remaining > want+1 {
				t.Errorf("%d s after the window: allowed %v, %d remain; want %d", second, d.Allowed, d.Remaining, want)
			}
		}
	}
}
