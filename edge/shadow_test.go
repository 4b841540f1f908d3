package edge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// A rule on trial says of each request what it would say if it was enforced: what it would
// have denied is not charged to it, to none of its rates.
func TestShadowRuleDecidesAsIfItWereLive(t *testing.T) {
	alone.Mark(t)
	for name, rates := range map[string][]limit.RateSpec{
		"sub_windows":    {{Limit: 50, Per: 10 * time.Second}},
		"sliding_window": {{Algorithm: "sliding_window", Limit: 50, Per: 10 * time.Second}},
		"sliding_log":    {{Algorithm: "sliding_log", Limit: 50, Per: 10 * time.Second}},
		"fixed_window":   {{Algorithm: "fixed_window", Limit: 50, Per: 10 * time.Second}},
		"token_bucket":   {{Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 5, Per: time.Second}}},
		"two rates":      {{Limit: 20, Per: 10 * time.Second}, {Limit: 5, Per: time.Second}},
		"count_denied":   {{Algorithm: "sliding_log", Limit: 50, Per: 10 * time.Second, CountDenied: true}},
		"loose":          {{Limit: 50, Per: 10 * time.Second, Consistency: "loose"}},
		"of an edge":     {{Limit: 50, Per: 10 * time.Second, Scope: "edge"}},
	} {
		for _, charge := range []string{"all_or_nothing", "each"} {
			if charge == "each" && name == "token_bucket" {
				continue // refused
			}
			t.Run(name+" "+charge, func(t *testing.T) {
				live, trial := perUser(rates...), perUser(rates...)
				live.Charge, trial.Charge, trial.Mode = charge, charge, "shadow"
				enforced, tried := newNode(t, Config{}, live), newNode(t, Config{}, trial)
				rng := rand.New(rand.NewPCG(1, 2))
				now, denied := start, 0
				for i := range 3000 {
					now = now.Add(time.Duration(rng.ExpFloat64() * float64(100*time.Millisecond)))
					want, got := check(enforced, now, "u"), check(tried, now, "u")
					if !got.Allowed {
						t.Fatalf("request %d: %+v: a trial denies nothing", i, got)
					}
					if would := got.Zone == limit.ZoneShadow; would == want.Allowed {
						t.Fatalf("request %d: the trial would deny: %t; live: %+v", i, would, want)
					}
					if got.Remaining != want.Remaining && want.Allowed {
						t.Fatalf("request %d: the trial has %d remaining, live %d", i, got.Remaining, want.Remaining)
					}
					if !want.Allowed {
						denied++
					}
				}
				if denied < 100 || denied == 3000 {
					t.Errorf("%d of 3000 denied: the limit hardly bound", denied)
				}
			})
		}
	}
}

// What a trial would have denied is given through to the rules that are in force, and
// charged to them.
func TestShadowRuleLeavesOthersAlone(t *testing.T) {
	live, trial := perUser(limit.RateSpec{Limit: 5, Per: time.Minute}), perUser(limit.RateSpec{Limit: 2, Per: time.Minute})
	trial.Name, trial.Group, trial.Mode = "trial", "trial", "shadow"
	n := newNode(t, Config{}, live, trial)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	var zones []limit.Zone
	for range 6 {
		req.Reset()
		req.Set("user", "u")
		req.Receipt = true
		d := n.Check(start, req)
		zones = append(zones, d.Zone)
		if want := map[limit.Zone]int{limit.ZoneNormal: 2, limit.ZoneShadow: 1, limit.ZoneHard: 0}[d.Zone]; len(req.Charges) != want {
			t.Errorf("zone %v: %d charges, want %d", d.Zone, len(req.Charges), want)
		}
	}
	for i, want := range []limit.Zone{limit.ZoneNormal, limit.ZoneNormal, limit.ZoneShadow, limit.ZoneShadow, limit.ZoneShadow, limit.ZoneHard} {
		if zones[i] != want {
			t.Fatalf("zones %v; want two normal, three shadow, then hard", zones)
		}
	}
}

// The tightest that is told is one in force, be there a trial that is tighter; and the
// trial where it would have denied.
func TestTightestIsInForce(t *testing.T) {
	live, trial := perUser(limit.RateSpec{Limit: 100, Per: time.Minute}), perUser(limit.RateSpec{Limit: 2, Per: time.Minute})
	trial.Name, trial.Group, trial.Mode = "trial", "a", "shadow"
	n := newNode(t, Config{}, live, trial)
	for i, want := range []string{"api", "api", "trial", "trial"} {
		d := check(n, start, "u")
		if d.Rule.Name != want || (d.Zone == limit.ZoneShadow) != (want == "trial") {
			t.Errorf("request %d: rule %s, zone %v, %d of %d left; want rule %s", i+1, d.Rule.Name, d.Zone, d.Remaining, d.Limit, want)
		}
	}
	if d := check(newNode(t, Config{}, trial), start, "u"); d.Rule.Name != "trial" || d.Remaining != 1 {
		t.Errorf("a trial alone: %+v, want it told", d)
	}
}

// What a trial would have denied is asked for all the same: the region hears of that
// demand, and the edge wants to hear of others.
func TestTrialTellsItsDemand(t *testing.T) {
	trial := perUser(adaptive(limit.RateSpec{Name: "r", Limit: 10, Per: time.Second}))
	trial.Mode = "shadow"
	n, r := sharing(t, &deltasync.Share{Omega: 0.2, Sum: 1, Demand: 1, Window: 1}, trial)
	now := start.Add(1020 * time.Millisecond)
	for range 50 {
		if d := check(n, now, "u"); !d.Allowed {
			t.Fatalf("%+v: a trial denies nothing", d)
		}
	}
	charged := r.block.share.spent + r.fresh
	demand := r.block.share.own
	demand.Turn(limit.SpansOf(time.Second), now.Add(100*time.Millisecond).UnixNano())
	if asked := demand.Fast; charged > 10 || asked < 10*float64(charged)/2 {
		t.Errorf("%d charged, and a demand of %.0f a second told of 50 within a tenth of one", charged, asked)
	}
}

// A trial that counts responses charges what a live rule would, its open margin included.
func TestShadowRuleCountsResponsesInAnOpenMargin(t *testing.T) {
	for _, open := range []bool{true, false} {
		var denied [2]int
		for k, mode := range []string{"enforce", "shadow"} {
			rule := elastic("api", 10, limit.ElasticSpec{UpToPercent: 100, While: "capacity.api < 50%"})
			rule.Mode, rule.CountWhen = mode, "response.status == 401"
			n := newConditionNode(t, rule)
			if err := n.SetCapacity(start, "api", map[bool]float64{true: .1, false: .9}[open], time.Hour); err != nil {
				t.Fatal(err)
			}
			for i := range 1600 {
				at := start.Add(time.Duration(i) * 625 * time.Millisecond)
				req := requestOf(n, "u")
				d := n.Check(at, req)
				if !d.Allowed || d.Zone == limit.ZoneShadow {
					denied[k]++
				}
				if d.Allowed {
					req.Set("response.status", "401")
					n.Answered(at, req)
				}
				req.Release()
			}
		}
		if denied[0] != denied[1] || denied[0] < 100 {
			t.Errorf("open %t: live denies %d, the trial would %d; want as many, and some", open, denied[0], denied[1])
		}
	}
}

// What is told of a limit is the same whether details were asked for before, or not: they
// have a denial remembered that a trial else is not.
func TestDetailsBeforeTellNothingElse(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 15))
		rule := perUser(tokens(5+rng.Uint64N(40), limit.Flow{Units: 1 + rng.Uint64N(30), Per: 5 * time.Second}))
		rule.Mode, rule.NearLimitPercent = "shadow", float64(1+rng.IntN(100))
		if rng.IntN(2) == 0 {
			rule.Margin.SoftPercent = 30
		}
		if rng.IntN(2) == 0 {
			rule.Classes = limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 30}}
		}
		plain, detailed := newNode(t, Config{}, rule), newNode(t, Config{}, rule)
		now := start
		for i := range 500 {
			now = now.Add(time.Duration(rng.Int64N(int64(300 * time.Millisecond))))
			cost, class := rng.Uint64N(4), []string{"low", "high"}[rng.IntN(2)]
			ask := func(n *Node, details bool) limit.Decision {
				req := requestOf(n, "u")
				defer req.Release()
				req.Set("class", class)
				req.Cost, req.Details = cost, details
				return n.Check(now, req)
			}
			want, got := ask(plain, false), ask(detailed, true)
			if got.Remaining != want.Remaining || got.Near != want.Near || got.Zone != want.Zone {
				t.Fatalf("seed %d, request %d: with details %+v, without %+v", seed, i, got, want)
			}
		}
	}
}

// The zone of a shadow rule's requests is that of any of its rates, as of one in force:
// it does not depend on which of two that have nothing left is told.
func TestShadowRuleTellsTheZoneOfAnyRate(t *testing.T) {
	for name, details := range map[string]bool{"short": false, "long": true} {
		for _, mode := range []string{"enforce", "shadow"} {
			rule := perUser(limit.RateSpec{Limit: 2, Per: time.Minute, Algorithm: "fixed_window"}, limit.RateSpec{Limit: 3, Per: time.Hour, Algorithm: "fixed_window"})
			rule.Margin.SoftPercent, rule.Mode = 100, mode
			n := newNode(t, Config{}, rule)
			ask := func(now time.Time, peek bool) limit.Zone {
				req := requestOf(n, "u")
				defer req.Release()
				req.Peek, req.Details = peek, details
				return n.Check(now, req).Zone
			}
			for i, want := range []limit.Zone{limit.ZoneNormal, limit.ZoneNormal, limit.ZoneNormal, limit.ZoneSoft} { // of the fourth the minute's rate has none left, too
				now := start.Truncate(time.Hour).Add(time.Duration(i/2) * time.Minute)
				peeked := ask(now, true)
				if got := ask(now, false); got != want || peeked != want {
					t.Errorf("%s, %s, request %d: zone %v, peeked %v, want %v", name, mode, i+1, got, peeked, want)
				}
			}
		}
	}
}
