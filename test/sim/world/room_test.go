package world

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A key was at all of its limit, which a push told all edges, and most of that was given back since, as
// slots are that are released. An edge that is asked for it then, the first time or again, has all the
// room that there is.
func TestRoomThatCameBackIsRoomEverywhere(t *testing.T) {
	t.Parallel()
	const most = 20
	for name, rate := range ofAllKinds(most) {
		for _, consistency := range []string{"loose", "adaptive"} {
			for _, asked := range []bool{false, true} { // also while it is full
				rate.Consistency = consistency
				doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{rate}}}}
				w := wideOf(t, 1, 3, func(cfg *Config) { cfg.Rules = []limit.Document{doc} })
				at := start.Add(6 * time.Second)
				pass := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
				pass(0)
				var in [][]limit.Charge
				ask := func(edge int, tries int) (allowed int) {
					for range tries {
						node := w.Node(w.Edges()[edge])
						req := node.Rules().Only().NewRequest()
						req.Set("user", "u")
						req.Receipt = true
						w.Touch()
						if d := node.Check(w.Now(), req); d.Allowed {
							allowed++
							in = append(in, slices.Clone(req.Charges))
						}
						req.Release()
						pass(time.Second)
					}
					return allowed
				}
				back := func(to int) {
					for _, charges := range in[to:] {
						w.Touch()
						w.Node(w.Edges()[0]).Refund(w.Now(), charges, 0)
					}
					in = in[:to]
					pass(10 * time.Second)
				}
				ask(0, most+5)
				if asked {
					ask(2, 3)
				}
				back(most - 5)
				for len(in) < most*3/5 && ask(0, 1) > 0 { // half of it in use is pushed again
				}
				back(2)
				if got := ask(2, 3*most); got < most-3 || got > most-2 {
					t.Errorf("%s, %s, asked before: %v: an edge admits %d, and %d of %d are free", name, consistency, asked, got, most-2, most)
				}
			}
		}
	}
}

// Most slots are held for long, and the others come and go: what changed lately was all given back
// then. No edge takes that for a reset, one whose view forgets neither.
func TestShortJobsBesideLongOnesAreNoReset(t *testing.T) {
	t.Parallel()
	const most, long = 20, 18
	for _, forgets := range []float64{0, 1} {
		doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{
			{Algorithm: "concurrency", Limit: most, Lease: time.Hour, Consistency: "loose"},
		}}}}
		w := wideOf(t, 1, 5, func(cfg *Config) { cfg.Rules, cfg.Forgets = []limit.Document{doc}, forgets })
		at := start.Add(6 * time.Second)
		pass := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
		pass(0)
		var in [][]limit.Charge
		ask := func(edge int) {
			if d, c := askFor(w, edge); d.Allowed {
				in = append(in, c)
			}
		}
		for range long {
			ask(0)
			pass(time.Second)
		}
		pass(5 * time.Minute)
		for range 20 {
			ask(0)
			ask(0)
			pass(100 * time.Millisecond)
			for _, charges := range in[long:] {
				w.Touch()
				w.Node(w.Edges()[0]).Refund(w.Now(), charges, 0)
			}
			in = in[:long]
			pass(150 * time.Millisecond)
		}
		pass(3 * time.Second)
		for edge := 1; edge < 5; edge++ {
			for range most {
				ask(edge)
			}
			pass(time.Second)
		}
		if len(in) > most || forgets == 0 && len(in) < most {
			t.Errorf("views that forget %v: %d of %d slots are held", forgets, len(in), most)
		}
	}
}

// askFor asks an edge for user u, and returns the receipt.
func askFor(w *World, edge int) (limit.Decision, []limit.Charge) { return askForCost(w, edge, 1) }

func askForCost(w *World, edge int, cost uint64) (limit.Decision, []limit.Charge) {
	name := w.Edges()[edge]
	req := w.Node(name).Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	req.Receipt, req.Cost = true, cost
	w.Touch()
	return w.Node(name).Check(w.NowAt(name), req), slices.Clone(req.Charges)
}

// All slots were held for a moment, minutes ago, and most of them since, and renewed: an edge that is
// asked for the first time has those that are free, whatever pushes said then, be it with or without
// a view.
func TestSlotsThatWereAllHeldOnceAreFree(t *testing.T) {
	t.Parallel()
	slots := limit.RateSpec{Algorithm: "concurrency", Limit: 20, Lease: time.Minute, Consistency: "loose"}
	doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{slots}}}}
	for _, forgets := range []float64{0, 1} {
		w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Rules, cfg.Forgets = []limit.Document{doc}, forgets })
		at := start.Add(6 * time.Second)
		w.Advance(at)
		var held [][]limit.Charge
		ask := func(edge int) bool {
			d, c := askFor(w, edge)
			if d.Allowed {
				held = append(held, c)
			}
			return d.Allowed
		}
		for range 20 {
			ask(0)
		}
		for second := range 300 {
			at = at.Add(time.Second)
			w.Advance(at)
			w.Touch()
			switch {
			case second == 10:
				for _, c := range held[17:] {
					w.Node(w.Edges()[0]).Refund(w.Now(), c, 0)
				}
				held = held[:17]
			case second%20 == 0:
				for _, c := range held {
					w.Node(w.Edges()[0]).Renew(w.Now(), c)
				}
			}
		}
		for free := range 4 {
			if got := ask(1); got != (free < 3) {
				t.Errorf("a view forgets %v of all: with %d of 20 slots free one is admitted: %v", forgets, 3-free, got)
			}
		}
	}
}

// Nearly all of a limit was used, which edges were told of, and is given back at once: they are told that,
// too, so that the first request elsewhere is admitted, and none is told to come again in an hour.
func TestRoomThatCameBackAtOnceIsTold(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]limit.RateSpec{
		"slots": {Algorithm: "concurrency", Limit: 20, Lease: 5 * time.Minute}, "sub_windows": {Limit: 20, Per: time.Hour},
	} {
		doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{rate}}}}
		for _, forgets := range []float64{0, 1} {
			for _, keeps := range []int{0, 2} {
				if keeps > 0 && forgets > 0 && rate.Lease == 0 {
					continue // of one wide slice nobody who forgot sees that this is all
				}
				w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Rules, cfg.Forgets = []limit.Document{doc}, forgets })
				at := start.Add(6 * time.Second)
				pass := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
				pass(0)
				var held [][]limit.Charge
				for range 20 {
					_, c := askFor(w, 0)
					held = append(held, c)
					pass(400 * time.Millisecond)
				}
				for _, c := range held[keeps:] {
					w.Touch()
					w.Node(w.Edges()[0]).Refund(w.Now(), c, 0)
				}
				pass(time.Second)
				if d, _ := askFor(w, 1); !d.Allowed {
					t.Errorf("%s, a view forgets %v of all: with %d of 20 used the first request elsewhere is denied for %v", name, forgets, keeps, d.RetryAfter)
				}
			}
		}
	}
}

// However it comes back, at once, in two steps, or as jobs end one by one; though the limit was not
// full, as what is left is less than a request costs; and where somebody was denied there meanwhile.
func TestAllThatCameBackIsRoomElsewhere(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]limit.RateSpec{
		"slots": {Algorithm: "concurrency", Limit: 20, Lease: 10 * time.Hour}, "sub_windows": {Limit: 20, Per: 10 * time.Hour},
		"a day": {Algorithm: "fixed_window", Limit: 20, Per: 24 * time.Hour}, "log": {Algorithm: "sliding_log", Limit: 20, Per: 10 * time.Hour},
		"bucket": {Algorithm: "token_bucket", Capacity: 20, Refill: limit.Flow{Units: 20, Per: 24 * time.Hour}},
		"meter":  {Algorithm: "leaky_bucket", Capacity: 20, Outflow: limit.Flow{Units: 20, Per: 24 * time.Hour}},
	} {
		rate.Consistency = "loose"
		doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{rate}}}}
		for _, forgets := range []float64{0, 1} {
			for _, cost := range []uint64{1, 3} {
				if cost > 1 && rate.Lease > 0 {
					continue // a slot is one
				}
				for how, pause := range map[string]func(back int) time.Duration{
					"at once":    func(int) time.Duration { return 0 },
					"in two":     func(back int) time.Duration { return map[int]time.Duration{2: 10 * time.Second}[back] },
					"one by one": func(int) time.Duration { return time.Second },
				} {
					for _, asked := range []bool{false, true} {
						w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Rules, cfg.Forgets = []limit.Document{doc}, forgets })
						used, denied, got := usedAndGivenBack(w, cost, asked, pause)
						least := used
						if rate.Capacity > 0 { // of the last unit so much has drained by then that it is told as nothing
							least--
						}
						if used != int(20/cost) || !denied || got < least || got > used {
							t.Errorf("%s, a view forgets %v of all, asked %v: %d of cost %d were given back %s (one more was denied: %v), and %d are admitted elsewhere", name, forgets, asked, used, cost, how, denied, got)
						}
					}
				}
			}
		}
	}
}

// usedAndGivenBack has one edge use a limit up, and give it back with pauses; the other is asked for more
// before that, if it is, and then for as many as were used.
func usedAndGivenBack(w *World, cost uint64, asked bool, pause func(back int) time.Duration) (used int, denied bool, got int) {
	at := start.Add(6 * time.Second)
	pass := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
	pass(0)
	var held [][]limit.Charge
	for range 30 {
		if d, c := askForCost(w, 0, cost); d.Allowed {
			held = append(held, c)
		}
		pass(100 * time.Millisecond)
	}
	pass(20 * time.Second)
	denied = true
	if asked {
		d, _ := askForCost(w, 1, cost)
		denied = !d.Allowed
		pass(5 * time.Second)
	}
	for i, c := range held {
		w.Touch()
		w.Node(w.Edges()[0]).Refund(w.Now(), c, 0)
		pass(pause(i + 1))
	}
	pass(5 * time.Second)
	for range held {
		if d, _ := askForCost(w, 1, cost); d.Allowed {
			got++
		}
	}
	return len(held), denied, got
}

// A region that lost its store, and starts anew, knows nothing of a key that it had told everybody is used
// up: what it answers frees nobody, also where who counted is gone.
func TestRegionThatLostAllFreesNobody(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]limit.RateSpec{
		"slots": {Algorithm: "concurrency", Limit: 100, Lease: time.Hour}, "sub_windows": {Limit: 100, Per: time.Hour},
		"bucket": {Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 100, Per: 10 * time.Minute}},
	} {
		rate.Consistency = "loose"
		doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{rate}}}}
		for _, dies := range []bool{false, true} {
			w := wideOf(t, 1, 3, func(cfg *Config) { cfg.Rules, cfg.Forgets = []limit.Document{doc}, 1 })
			at := start.Add(6 * time.Second)
			begun := at
			pass := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
			pass(0)
			in := 0
			for range 130 {
				if d, _ := askFor(w, 0); d.Allowed {
					in++
				}
				pass(100 * time.Millisecond)
			}
			pass(2 * time.Second)
			if dies {
				w.Crash(w.Edges()[0])
			}
			w.Store("r0").Wipe()
			for i := range w.Servers("r0") {
				w.restart(t, "r0", i)
			}
			for range 500 {
				if d, _ := askFor(w, 1); d.Allowed {
					in++
				}
				pass(10 * time.Millisecond)
			}
			drained := 0
			if rate.Capacity > 0 { // more of it than it has: what is charged meanwhile is no answer to what was told
				for range 900 {
					pass(time.Second)
					if d, _ := askFor(w, 1); d.Allowed {
						in++
					}
				}
				drained = int(at.Sub(begun)/(6*time.Second)) + 2 // what was on its way when it was lost
			}
			if in > 100+drained {
				t.Errorf("%s, who counted dies %v: %d of %d", name, dies, in, 100+drained)
			}
		}
	}
}

// But one whose aggregators restart, or hand their lanes on, with the store whole, knows all of it: who asks
// for what has left the window has it at other edges, too, and not when the hold would end.
func TestRestartsHoldNobody(t *testing.T) {
	t.Parallel()
	for name, rate := range map[string]limit.RateSpec{
		"slots": {Algorithm: "concurrency", Limit: 20, Lease: time.Hour}, "sub_windows": {Limit: 20, Per: time.Hour},
	} {
		doc := limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "own", Key: []string{"user"}, Rates: []limit.RateSpec{rate}}}}
		for _, what := range []string{"restart before", "restart", "leave"} {
			w := wideOf(t, 1, 2, func(cfg *Config) {
				cfg.Rules, cfg.Forgets, cfg.Aggregators, cfg.Lanes = []limit.Document{doc}, 1, 2, 2
			})
			at := start.Add(6 * time.Second)
			pass := func(d time.Duration) { at = at.Add(d); w.Advance(at) }
			pass(0)
			ten := func(edge int) (admitted int) {
				for range 10 {
					if d, _ := askFor(w, edge); d.Allowed {
						admitted++
					}
					pass(100 * time.Millisecond)
				}
				return admitted
			}
			restart := func() {
				for i := range w.Servers("r0") {
					w.restart(t, "r0", i)
				}
			}
			in := ten(0)
			pass(30 * time.Minute)
			if what == "restart before" {
				restart()
			}
			in += ten(0)
			pass(time.Minute)
			switch what {
			case "restart":
				restart()
			case "leave":
				w.Leave(w.Servers("r0")[0])
			}
			pass(32 * time.Minute)                    // the first ten have left the window
			if more := ten(1); in != 20 || more < 9 { // the first is asked about
				t.Errorf("%s, %s: %d of 20, and then %d where 10 are free", name, what, in, more)
			}
		}
	}
}
