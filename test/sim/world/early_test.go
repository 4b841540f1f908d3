package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// early is a key that is asked for twice as often as its limit of 100 a second allows, at all
// edges in turn (or less, by pause), as a region is cut off a while after that began.
type early struct {
	*World
	t     *testing.T
	spec  limit.RateSpec
	pause time.Duration // between requests
	level float64       // of a bucket of all that is admitted
	most  float64       // that it was above the capacity
}

func newEarly(t *testing.T, size [2]int, spec limit.RateSpec) *early {
	spec.Name, spec.Consistency = "q", "adaptive"
	w := wideOf(t, size[0], size[1], func(cfg *Config) { cfg.Seed, cfg.Expects = 5, true }, spec)
	w.Advance(start.Add(6 * time.Second))
	return &early{World: w, t: t, spec: spec, pause: 5 * time.Millisecond}
}

func bucketOf(capacity uint64) limit.RateSpec {
	return limit.RateSpec{Algorithm: "token_bucket", Capacity: capacity, Refill: limit.Flow{Units: 100, Per: time.Second}}
}

func (e *early) run(lasts time.Duration) (admitted int) {
	for i := range int(lasts / e.pause) {
		e.Advance(e.Now().Add(e.pause))
		if e.level = max(0, e.level-0.5); ask(e.World, e.Edges()[i*7%len(e.Edges())], 1).Allowed {
			admitted, e.level = admitted+1, e.level+1
		}
		e.most = max(e.most, e.level-float64(e.spec.Capacity))
	}
	return admitted
}

// told is the most that an edge says of how far the limit may be exceeded.
func (e *early) told() (most uint64) {
	for _, edge := range e.Edges() {
		req := e.Node(edge).Rules().Only().NewRequest()
		req.Set("user", "u")
		req.Bounds, req.Peek = true, true
		e.Node(edge).Check(e.Now(), req)
		most = max(most, req.Bound.Now)
		req.Release()
	}
	return most
}

// A bucket that drains faster than one edge fills it never comes near its limit there: of one
// that was first asked for shortly before a cut, or in it, both sides have their parts of the
// refill all the same, and not all of it each.
func TestSidesOfACutShareTheRefillOfANewBucket(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		size  [2]int
		after time.Duration // the first request; before it, if negative
	}{
		{[2]int{2, 1}, 100 * time.Millisecond}, {[2]int{2, 1}, 700 * time.Millisecond}, {[2]int{2, 1}, -10 * time.Second},
		{[2]int{2, 3}, 400 * time.Millisecond}, {[2]int{3, 1}, 900 * time.Millisecond}, {[2]int{5, 2}, -10 * time.Second},
	} {
		e := newEarly(t, c.size, bucketOf(1000))
		e.run(max(0, c.after))
		e.Cut("r1", true)
		e.Advance(e.Now().Add(max(0, -c.after)))
		e.run(25 * time.Second)
		during, told := e.run(20*time.Second), e.told()
		e.Cut("r1", false)
		e.run(3 * time.Second)
		after := e.run(5 * time.Second)
		t.Logf("%v, cut %v after the first request: %d in 20 s of it, %d in 5 s after it, %v above the capacity, %d told", c.size, c.after, during, after, e.most, told)
		if during < 1800 || during > 2100 || after < 400 || e.most > float64(told) {
			t.Errorf("%v, cut %v after the first request: %d of a refill of 100/s in 20 s of it, %d in 5 s after it, %v above the capacity, error_bound %d", c.size, c.after, during, after, e.most, told)
		}
	}
}

// Of a key that is new more and more is known of what is asked for: in a cut both sides go by
// what both can know of that, not each by what it knows of itself and heard of the other. So
// their parts are about one in all.
func TestSidesOfACutShareAYoungKey(t *testing.T) {
	t.Parallel()
	window := limit.RateSpec{Limit: 1000, Per: 10 * time.Second}
	fixed := limit.RateSpec{Algorithm: "fixed_window", Limit: 1000, Per: 10 * time.Second}
	const ms = time.Millisecond
	for _, c := range []struct {
		size  [2]int
		spec  limit.RateSpec
		after time.Duration
	}{
		{[2]int{2, 1}, window, 2500 * ms}, {[2]int{2, 1}, window, 3250 * ms}, {[2]int{2, 6}, window, 3000 * ms}, {[2]int{2, 1}, fixed, 3500 * ms},
		{[2]int{2, 6}, bucketOf(100), 1250 * ms}, {[2]int{2, 6}, bucketOf(100), 3000 * ms}, {[2]int{2, 1}, bucketOf(1000), 4000 * ms}, {[2]int{2, 6}, bucketOf(1000), 5500 * ms}, {[2]int{3, 2}, bucketOf(1000), 4000 * ms},
	} {
		e := newEarly(t, c.size, c.spec)
		e.run(c.after)
		e.Cut("r1", true)
		e.run(20 * time.Second)
		during := e.run(40 * time.Second)
		t.Logf("%v, %s of %d, cut %v after the first request: %d in 40 s of it", c.size, c.spec.Algorithm, c.spec.Limit+c.spec.Capacity, c.after, during)
		if during < 3400 || during > 4120 {
			t.Errorf("%v, %s of %d, cut %v after the first request: %d of 100/s in 40 s of it", c.size, c.spec.Algorithm, c.spec.Limit+c.spec.Capacity, c.after, during)
		}
	}
}

// What a key far from its limit was left, before a cut was known, is left no longer: in windows that
// last, and slots, each side would use up all of it else.
func TestSidesOfACutShareWhatWasFar(t *testing.T) {
	t.Parallel()
	kinds := map[string]limit.RateSpec{"slots": {Algorithm: "concurrency", Limit: 100, Lease: 10 * time.Minute}}
	for _, algorithm := range []string{"fixed_window", "sliding_window", "sub_windows"} {
		kinds[algorithm] = limit.RateSpec{Algorithm: algorithm, Limit: 100, Per: 10 * time.Minute}
	}
	const ms = time.Millisecond
	for name, spec := range kinds {
		for _, size := range [][2]int{{2, 1}, {3, 1}, {5, 1}} {
			for _, after := range []time.Duration{-500 * ms, 0, 1000 * ms} { // the first request; before it, if negative
				e := newEarly(t, size, spec)
				e.pause = 50 * ms
				if after < 0 {
					e.Cut("r1", true)
					e.Advance(e.Now().Add(-after))
				}
				admitted := e.run(max(0, after))
				e.Cut("r1", true)
				if admitted += e.run(30 * time.Second); admitted < 98 || admitted > 108 {
					t.Errorf("%v, %s, cut %v after the first request: %d of 100 admitted", size, name, after, admitted)
				}
			}
		}
	}
}
