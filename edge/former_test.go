package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

func bucketOf(capacity uint64, refill limit.Flow) limit.RuleSpec {
	return perUser(tokens(capacity, refill))
}

// A changed capacity or refill judges what was taken before, however much it was
// changed, and goes on from there.
func TestChangedBucketKeepsItsLevel(t *testing.T) {
	perSecond := func(n uint64) limit.Flow { return limit.Flow{Units: n, Per: time.Second} }
	for _, forgotten := range []bool{false, true} {
		for _, to := range []struct {
			capacity uint64
			refill   limit.Flow
		}{{90, perSecond(1)}, {110, perSecond(1)}, {160, perSecond(1)}, {200, perSecond(1)}, {50, perSecond(1)}, {100, perSecond(10)}, {400, perSecond(50)}} {
			n := newNode(t, Config{View: mapView{}}, bucketOf(100, perSecond(1)))
			through(n, start, "u", 100)
			if forgotten {
				forgetAll(n, start)
			}
			n.SetRules(compile(t, bucketOf(to.capacity, to.refill)))
			want := max(0, int(to.capacity)-100)
			if got := through(n, start, "u", 500); got != want {
				t.Errorf("forgotten %v: 100 of 100 taken, then %d at %v: %d admitted, want %d", forgotten, to.capacity, to.refill, got, want)
			}
			if to.capacity < 100 {
				continue
			}
			if got := through(n, start.Add(time.Second), "u", 500); got != int(to.refill.Units) {
				t.Errorf("forgotten %v: a second after %d at %v: %d admitted, want %d", forgotten, to.capacity, to.refill, got, to.refill.Units)
			}
		}
	}
}

// Changes there and back leave nothing behind, also for keys that sat some out.
func TestBucketChangedThereAndBack(t *testing.T) {
	refill := limit.Flow{Units: 1, Per: time.Hour}
	n := newNode(t, Config{}, bucketOf(100, refill))
	through(n, start, "u", 60)
	through(n, start, "idle", 60)
	for _, step := range []struct {
		capacity uint64
		want     int
	}{{1000, 40}, {100, 0}, {400, 40}, {1600, 40}} {
		n.SetRules(compile(t, bucketOf(step.capacity, refill)))
		if got := through(n, start, "u", 40); got != step.want {
			t.Errorf("after a change to %d: %d admitted, want %d", step.capacity, got, step.want)
		}
	}
	n.SetRules(compile(t, bucketOf(100, refill)))
	if got := through(n, start, "idle", 100); got != 40 {
		t.Errorf("after four changes a key that was not asked: %d admitted, want the 40 that were left", got)
	}
	if got := through(n, start, "u", 100); got != 0 {
		t.Errorf("%d admitted of a bucket that was more than used up under larger ones", got)
	}
}

// What others took is taken over too, and told on.
func TestChangedBucketKeepsWhatOthersTook(t *testing.T) {
	refill := limit.Flow{Units: 1, Per: time.Minute}
	n := newNode(t, Config{}, bucketOf(100, refill))
	check(n, start, "u")
	rate := n.Rules().Rules()[0].Rates[0]
	answer(t, n, start, upOf(t, n.Flush(start)), peersAt(rate.SliceAt(start.UnixNano()), 89))
	n.SetRules(compile(t, bucketOf(1000, refill)))
	n.SetRules(compile(t, bucketOf(200, refill)))
	if got := through(n, start, "u", 500); got != 110 {
		t.Errorf("90 of 100 taken, most of it by others, then 200: %d admitted, want 110", got)
	}
	up := upOf(t, n.Flush(start))
	var carry crdt.Carry
	for _, sec := range up.Sections {
		for _, d := range sec.Deltas {
			if d.Key == keyOf(n, "u") {
				carry = d.Carry
			}
		}
	}
	if carry.Level != 90_000_000 {
		t.Errorf("told a carry of %d millionths, want 90 units", carry.Level)
	}
}

// What is in a bucket drains by its new pace from the change on, whenever it is asked for
// next, and whether it was swept meanwhile.
func TestChangedBucketDrainsSinceTheChange(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second, 5 * time.Second, 10 * time.Second, time.Minute} {
		n := newNode(t, Config{}, bucketOf(1000, limit.Flow{Units: 100, Per: time.Second}))
		if got := through(n, start, "u", 1000); got != 1000 {
			t.Fatalf("%d of 1000 admitted", got)
		}
		n.SetRules(compile(t, bucketOf(10, limit.Flow{Units: 1, Per: time.Minute})))
		for now := start; !now.After(start.Add(pause)); now = now.Add(100 * time.Millisecond) {
			n.Tick(now)
		}
		if d, left := check(n, start.Add(pause), "u"), 991*time.Minute-pause; d.Allowed || d.RetryAfter < left-time.Minute || d.RetryAfter > left+time.Minute {
			t.Errorf("after %v: %+v, want about %v to wait", pause, d, left)
		}
	}
	n := newNode(t, Config{}, bucketOf(10, limit.Flow{Units: 10, Per: 24 * time.Hour}))
	through(n, start, "u", 10)
	n.SetRules(compile(t, bucketOf(10, limit.Flow{Units: 10, Per: time.Hour})))
	n.Tick(start)
	n.SetRules(compile(t, bucketOf(10, limit.Flow{Units: 10, Per: time.Minute}))) // half an hour later
	n.Tick(start.Add(30 * time.Minute))
	if got := through(n, start.Add(30*time.Minute+6*time.Second), "u", 10); got != 6 {
		t.Errorf("%d admitted, want 5 of the half hour and 1 since", got)
	}
}

// A tenant's bucket goes on from its own level, whatever the rule's own starts
// with or how fast it fills.
func TestChangedBucketOfATenant(t *testing.T) {
	for _, tc := range []struct {
		plan     string
		by       float64
		override uint64
	}{{"", 1, 0}, {"gold", 10, 0}, {"trial", 0.5, 0}, {"", 1, 500}, {"gold", 10, 5000}} {
		for _, initial := range []uint64{0, 50} {
			for _, forgotten := range []bool{false, true} {
				rule := func(capacity uint64) limit.RuleSpec {
					spec := tokens(capacity, limit.Flow{Units: 2, Per: time.Hour})
					if spec.Name = "r"; initial > 0 {
						spec.Initial = capacity + initial
					}
					rule := perUser(spec)
					rule.TierFrom = "plan"
					return rule
				}
				n := newNode(t, Config{View: mapView{}}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
				change := func(capacity uint64) {
					set, problems := limit.Compile(limit.Document{
						Namespace: "test", Rules: []limit.RuleSpec{rule(capacity)},
						Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}, "trial": {Multiply: 0.5}},
					})
					if set == nil {
						t.Fatal(problems)
					}
					n.SetRules(set)
				}
				ask := func(cost uint64) (used, of uint64) {
					req := requestOf(n, "u")
					defer req.Release()
					req.Set("plan", tc.plan)
					if tc.override > 0 {
						req.Override("api.r", tc.override)
					}
					req.Cost, req.Peek = max(cost, 1), cost == 0
					d := n.Check(start, req)
					return d.Limit - d.Remaining, d.Limit
				}
				change(100)
				before, _ := ask(40)
				if forgotten {
					forgetAll(n, start)
				}
				change(400)
				after, of := ask(0)
				want, slack := before, uint64(0)
				if forgotten { // what is known by slice has drained as if charged when that began
					slack = of / limit.DefaultSlices
				}
				if before != 40 || after > want+1 || after+slack < want {
					t.Errorf("%q, overridden to %d, %d at first, forgotten %v: %d used, then four times the capacity: %d of %d", tc.plan, tc.override, initial, forgotten, before, after, of)
				}
			}
		}
	}
}

// Who looks at no problems has the rules that were good go on.
func TestNoRulesChangeNothing(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	set, problems := limit.Compile(limit.Document{Rules: []limit.RuleSpec{{Name: "bad name"}}})
	if set != nil || len(problems) == 0 {
		t.Fatalf("%v, %v: want a mistake", set, problems)
	}
	n.SetRules(set)
	if before, after := check(n, start, "u"), check(n, start, "u"); !before.Allowed || after.Allowed {
		t.Errorf("%+v, then %+v: want one of 1", before, after)
	}
}

// A bucket whose rules change again and again, faster than a unit drains, drains by each of
// them for as long as it is in force: whether this edge or others have taken what is in it.
func TestBucketThatChangesAllTheTime(t *testing.T) {
	alone.Mark(t)
	paces := []time.Duration{time.Second, 1600 * time.Millisecond}
	ofBuckets(t, func(t *testing.T, kind, scope string) {
		for _, every := range []time.Duration{300 * time.Millisecond, 900 * time.Millisecond, 5 * time.Second} {
			n := newNode(t, Config{View: mapView{}}, bucketAt(kind, scope, paces[0]))
			if scope == "edge" {
				through(n, start, "u", 40)
			} else {
				check(n, start, "u")
				answer(t, n, start, upOf(t, n.Flush(start)), peersAt(n.Rules().Rules()[0].Rates[0].SliceAt(start.UnixNano()), 39))
			}
			in, change, turn := 0, start.Add(every), 0
			for now := start; now.Before(start.Add(4 * time.Minute)); now = now.Add(100 * time.Millisecond) {
				if !now.Before(change) {
					turn, change = 1-turn, change.Add(every)
					n.SetRules(compile(t, bucketAt(kind, scope, paces[turn])))
				}
				n.Tick(now)
				if check(n, now, "u").Allowed {
					in++
				}
			}
			if in < 190 || in > 200 {
				t.Errorf("full, and one every %v or %v, changed every %v: %d pass in 4 minutes, want 195", paces[0], paces[1], every, in)
			}
		}
	})
}
