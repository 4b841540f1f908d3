package edge

import (
	"strconv"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Who is kept out stays so over changes of a bucket, as long as it was told and no longer:
// be its key live, forgotten here, or kept out by others.
func TestChangedBucketKeepsAPenalty(t *testing.T) {
	rule := func(capacity uint64) limit.RuleSpec {
		r := bucketOf(capacity, limit.Flow{Units: 100, Per: time.Second})
		r.Penalty.For = 10 * time.Minute
		return r
	}
	for name, punish := range map[string]func(n *Node, view mapView){
		"live": func(n *Node, _ mapView) { through(n, start, "u", 101) },
		"forgotten": func(n *Node, view mapView) {
			through(n, start, "u", 101)
			forgetAll(n, start)
			clear(view)
		},
		"by others": func(n *Node, view mapView) {
			view[keyOf(n, "u")] = Totals{Heard: start.UnixNano(), Until: start.Add(10 * time.Minute).UnixNano()}
		},
	} {
		view := mapView{}
		n := newNode(t, Config{View: view}, rule(100))
		punish(n, view)
		for _, capacity := range []uint64{1000, 10_000} {
			n.SetRules(compile(t, rule(capacity)))
			n.Tick(start)
		}
		for _, after := range []time.Duration{0, 5 * time.Minute, 599 * time.Second, 601 * time.Second} {
			if d := check(n, start.Add(after), "u"); d.Allowed != (after > 10*time.Minute) {
				t.Errorf("%s: after %v: %+v, want 10 minutes of penalty", name, after, d)
			}
		}
	}
}

// Of a key that was forgotten the edge knows itself that it had used most.
func TestChangedBucketKeepsWhatWasForgotten(t *testing.T) {
	refill := limit.Flow{Units: 1, Per: time.Hour}
	n := newNode(t, Config{}, bucketOf(100, refill))
	through(n, start, "u", 100)
	forgetAll(n, start)
	n.SetRules(compile(t, bucketOf(400, refill)))
	if got := through(n, start, "u", 500); got != 300 {
		t.Errorf("100 of 100 taken, forgotten, then 400: %d admitted, want 300", got)
	}

	// What was taken over is known there alone: it is not found again after a change back.
	for _, view := range []View{nil, mapView{}} {
		for _, forgotten := range []bool{false, true} {
			n = newNode(t, Config{View: view}, bucketOf(100, refill))
			through(n, start, "u", 100)
			if forgotten {
				forgetAll(n, start)
			}
			n.SetRules(compile(t, bucketOf(400, limit.Flow{Units: 50, Per: time.Second})))
			check(n, start, "u")
			n.SetRules(compile(t, bucketOf(100, refill)))
			if got := through(n, start.Add(10*time.Second), "u", 500); got < 99 {
				t.Errorf("view %T, forgotten %t, taken over, drained, and changed back: %d admitted, want 100", view, forgotten, got)
			}
		}
	}
}

// Of what a bucket starts with once, as much stays spent, or to be spent, for tenants as
// multiplied; whether a key is asked for first, or swept.
func TestChangedBucketKeepsWhatItStartsWith(t *testing.T) {
	for _, tc := range []struct {
		initial, takes, then, left uint64 // for a capacity of 100, and then of 400
	}{
		{0, 40, 0, 360},
		{150, 90, 0, 360},   // 50 of 90 were what it started with
		{150, 40, 0, 400},   // 10 of which were left
		{0, 40, 500, 360},   // it has started
		{150, 90, 450, 360}, // as before
	} {
		for plan, by := range map[string]uint64{"": 1, "gold": 10} {
			for _, swept := range []bool{false, true} {
				n := newNode(t, Config{View: mapView{}}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
				change := func(capacity, initial uint64) {
					spec := tokens(capacity, limit.Flow{Units: 1, Per: time.Hour})
					spec.Initial = initial
					rule := perUser(spec)
					rule.TierFrom = "plan"
					set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}, Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}}})
					if set == nil {
						t.Fatal(problems)
					}
					n.SetRules(set)
				}
				ask := func(cost uint64, peek bool) limit.Decision {
					req := requestOf(n, "u")
					defer req.Release()
					req.Set("plan", plan)
					req.Cost, req.Peek = cost, peek
					return n.Check(start, req)
				}
				change(100, tc.initial)
				ask(tc.takes*by, false)
				change(400, tc.then)
				for range 12 {
					if swept {
						n.Tick(start)
					}
				}
				if left := ask(1, true).Remaining; left != tc.left*by {
					t.Errorf("%+v, plan %q, swept %v: %d left, want %d", tc, plan, swept, left, tc.left*by)
				}
			}
		}
	}
}

// A key that goes on after a change has others stay limited that were forgotten: what it
// looks back on is over, and no clock was set back.
func TestChangedBucketFreesNobodyElse(t *testing.T) {
	rule := func(capacity uint64) limit.RuleSpec {
		return bucketOf(capacity, limit.Flow{Units: 1, Per: time.Minute})
	}
	view := mapView{}
	n := newNode(t, Config{View: view}, rule(100))
	through(n, start, "live", 50)
	n.SetRules(compile(t, rule(1000)))
	n.Tick(start)
	var others []string
	for _, user := range neighbours(n, 3) {
		if user != "live" {
			others = append(others, user)
		}
	}
	now := start.Add(time.Hour)
	for _, user := range others {
		through(n, now, user, 1000)
	}
	forgetAll(n, now)
	clear(view)
	before := through(n, now, others[0], 2000)
	for i := range 500 { // some share their shard
		check(n, now, "u"+strconv.Itoa(1000+i))
	}
	for _, user := range others[1:] {
		if after := through(n, now, user, 2000); after > before {
			t.Errorf("%d of %s's requests pass, want %d, as before others went on", after, user, before)
		}
	}
}
