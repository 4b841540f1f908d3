package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Who waits in a queue that rules make faster keeps his turn, and who comes later waits
// behind him: however much faster it is, whenever it is asked for next, whoever was told
// to wait, and whether the key was forgotten.
func TestTurnsOfAQueueMadeFaster(t *testing.T) {
	queue := func(units uint64, per, maxWait time.Duration) limit.RuleSpec {
		return perUser(limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: units, Per: per}, Queue: true, MaxWait: maxWait})
	}
	for _, waiting := range []int{36, 15} { // of 40: so many that it stays limited when it is forgotten, and fewer
		for _, pace := range []time.Duration{840 * time.Millisecond, 500 * time.Millisecond, 100 * time.Millisecond, time.Millisecond} {
			for _, maxWait := range []time.Duration{0, 38 * time.Second, 60 * time.Second} {
				for _, pause := range []time.Duration{0, 9777 * time.Millisecond} {
					for _, how := range []string{"", "by way of another", "forgotten", "elsewhere"} {
						t.Run(fmt.Sprintf("%d, %v, max_wait %v, after %v, %s", waiting, pace, maxWait, pause, how), func(t *testing.T) {
							n, here := newNode(t, Config{View: mapView{}}, queue(1, time.Second, maxWait)), waiting
							if how == "elsewhere" {
								here = 1
							}
							last := time.Duration(-time.Second)
							join1 := func(at time.Duration) (turn time.Duration, ok bool) {
								w, ok := join(t, n, start.Add(at), 1)
								return w.turn.Sub(start), ok
							}
							for range here {
								last, _ = join1(0)
							}
							if how == "elsewhere" {
								rate := n.Rules().Rules()[0].Rates[0]
								answer(t, n, start, upOf(t, n.Flush(start)), peersAt(rate.SliceAt(start.UnixNano()), uint64(waiting-1)))
								last = time.Duration(waiting-1) * time.Second
							}
							if how == "by way of another" {
								n.SetRules(compile(t, queue(1, 700*time.Millisecond, maxWait)))
							}
							n.SetRules(compile(t, queue(1, pace, maxWait)))
							if how == "forgotten" {
								forgetAll(n, start)
							}
							told, before := 0, last
							for range 50 {
								turn, ok := join1(pause)
								if !ok {
									break
								}
								if told++; turn < last+pace-time.Microsecond {
									t.Fatalf("told to come at %v, and the one before at %v", turn, last)
								}
								if turn > before+time.Second+time.Duration(told)*pace+820*time.Millisecond { // what is known of the forgotten is rounded up, by a slice at the most
									t.Fatalf("number %d is told to come at %v, and the last one before the change at %v", told, turn, before)
								}
								if maxWait > 0 && turn > pause+maxWait {
									t.Fatalf("told to wait for %v", turn-pause)
								}
								last = turn
							}
							if told < 3 {
								t.Errorf("%d were admitted, want 3 at the least", told)
							}
						})
					}
				}
			}
		}
	}
}

// Who leaves a queue that was made faster gives back its place where it is the last one,
// and else leaves it empty, as ever.
func TestPlacesInAQueueMadeFaster(t *testing.T) {
	queue := func(per time.Duration) limit.RuleSpec {
		return perUser(limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: per}, Queue: true})
	}
	for _, test := range []struct {
		name  string
		pace  time.Duration
		leave []int // of ten that came at once, at 0 to 9 s, one after the change, and one at 8 s
		next  time.Duration
	}{
		{"nobody", 800 * time.Millisecond, nil, 11600 * time.Millisecond},
		{"the last of before", 800 * time.Millisecond, []int{9}, 11600 * time.Millisecond},
		{"the last", 800 * time.Millisecond, []int{11}, 10800 * time.Millisecond},
		{"the last two", 800 * time.Millisecond, []int{11, 10}, 10 * time.Second},
		{"nobody", 100 * time.Millisecond, nil, 10200 * time.Millisecond},
		{"the last of before", 100 * time.Millisecond, []int{9}, 10200 * time.Millisecond},
		{"the last", 100 * time.Millisecond, []int{11}, 10100 * time.Millisecond},
	} {
		n := newNode(t, Config{}, queue(time.Second))
		waiters, now := make([]*waiter, 0, 12), start
		for i := range 12 {
			switch i {
			case 10:
				n.SetRules(compile(t, queue(test.pace)))
			case 11:
				now = now.Add(8 * time.Second)
			}
			w, _ := join(t, n, now, 1)
			waiters = append(waiters, w)
		}
		for _, i := range test.leave {
			n.Refund(now, waiters[i].charges, 0)
		}
		for i := range 3 {
			if w, ok := join(t, n, now, 1); !ok || (w.turn.Sub(start)-test.next-time.Duration(i)*test.pace).Abs() > time.Microsecond {
				t.Errorf("one every %v, %s left: number %d of the next is told %v (%t), want %v", test.pace, test.name, i, w.turn.Sub(start), ok, test.next+time.Duration(i)*test.pace)
			}
		}
	}
}

// Where others leave, elsewhere, who waits here keeps his turn, and nobody who comes later
// is told it or one before, whoever leaves here.
func TestTurnsWhereOthersLeave(t *testing.T) {
	n := newNode(t, Config{}, turnsOf(1)["queue"])
	slice := n.Rules().Rules()[0].Rates[0].SliceAt(start.UnixNano())
	first, _ := join(t, n, start, 1)
	others := deltasync.Totals{Peers: []crdt.Cell{{Slice: slice, Charges: 5}}}
	answer(t, n, start, upOf(t, n.Flush(start)), others)
	middle, _ := join(t, n, start, 1)
	last, _ := join(t, n, start, 1)
	if got := last.turn.Sub(start); first.turn != start || got.Round(time.Millisecond) != 7*time.Second {
		t.Fatalf("told %v behind two here and five elsewhere, want 7s", got)
	}
	others.Peers[0].Refunds = 5
	now := start.Add(time.Second / 10)
	n.Tick(now)
	answer(t, n, now, upOf(t, n.Flush(now)), others)
	for _, who := range []*waiter{nil, middle} {
		if who != nil {
			n.Refund(now, who.charges, 0)
		}
		w, _ := join(t, n, now, 1)
		if got := w.turn.Sub(last.turn); got != time.Second {
			t.Errorf("told %v after the last one, want 1s", got)
		}
		last = w
	}
}

// A request that has a queue decide by a limit of its own, and waits at that one's pace,
// has nobody else wait for it.
func TestTurnsOfOtherPaces(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: time.Second}, Queue: true}))
	req := requestOf(n, "u")
	defer req.Release()
	req.Override("api.q", 1)
	if d := n.Check(start, req); !d.Allowed || d.Limit != 1 {
		t.Fatalf("%+v, want it admitted by a limit of 1", d)
	}
	for i := range 5 {
		at := start.Add(time.Second)
		if w, ok := join(t, n, at, 1); !ok || w.turn.Sub(at) > time.Duration(i)*time.Second {
			t.Errorf("number %d after it: %v, to wait %v, want %d s at the most", i, ok, w.turn.Sub(at), i)
		}
	}
}

// Turns outlive the level: who waits in a queue that was made faster is not forgotten as
// its key is swept.
func TestTurnsAreNotSwept(t *testing.T) {
	queue := func(per time.Duration) limit.RuleSpec {
		return perUser(limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: per}, Queue: true, Scope: "edge"})
	}
	n, last := newNode(t, Config{View: mapView{}}, queue(time.Second)), start
	for range 36 {
		w, _ := join(t, n, start, 1)
		last = w.turn
	}
	n.SetRules(compile(t, queue(100*time.Millisecond)))
	w, _ := join(t, n, start, 1)
	last = w.turn
	now := start
	for ; now.Before(start.Add(20 * time.Second)); now = now.Add(100 * time.Millisecond) {
		n.Tick(now)
	}
	if w, ok := join(t, n, now, 1); !ok || !w.turn.After(last) {
		t.Errorf("%v, told to come at %v, and the one before at %v", ok, w.turn.Sub(start), last.Sub(start))
	}
}

// Who waits by the pace that a queue had keeps his turn where the rules were loaded again
// since, before anybody came, with a pace and a capacity that grew alike: the queue is full as
// long as before.
func TestTurnsOfAPaceTwoLoadsAgo(t *testing.T) {
	for _, loads := range []int{1, 2, 3} {
		n := newNode(t, Config{View: mapView{}}, queueOf(""))
		load := func(rule limit.RuleSpec) {
			set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}})
			if set == nil {
				t.Fatal(problems)
			}
			n.SetRules(set)
		}
		load(queueOf(""))
		var last time.Time
		for range 30 {
			w, _ := join(t, n, start, 1)
			last = w.turn
		}
		faster := queueOf("")
		faster.Rates[0].Capacity, faster.Rates[0].Outflow.Units = 80, 2
		for range loads {
			load(faster)
		}
		forgetAll(n, start)
		if w, ok := join(t, n, start, 1); !ok || w.turn.Before(last.Add(time.Second-time.Microsecond)) {
			t.Errorf("loaded %d times: admitted %v, told %v, behind one who was told %v", loads, ok, w.turn.Sub(start), last.Sub(start))
		}
	}
}
