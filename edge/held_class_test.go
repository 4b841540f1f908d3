package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// classed is a rule of 20 an hour, of which batch may use 13 and normal 15.
func classed() limit.RuleSpec {
	rule := perUser(limit.RateSpec{Limit: 20, Per: time.Hour, Scope: "edge"})
	rule.Classes = limit.ClassesSpec{From: "class", Order: []string{"batch", "normal", "critical"}, Reserve: map[string]float64{"normal": 10, "critical": 25}}
	return rule
}

// asClass is how many of so many requests of a class are admitted.
func asClass(n *Node, now time.Time, user, class string, tries int) (got int) {
	req := requestOf(n, user)
	defer req.Release()
	req.Set("class", class)
	for range tries {
		if n.Check(now, req).Allowed {
			got++
		}
	}
	return got
}

// A key whose class has used up its part of the limit stays limited in a flood of keys, as
// one that has used up all of it does: be it that the flood is far from its limits, or has
// used them up itself, so that the key is known by 16 bits alone.
func TestFloodAfterAClassIsThrough(t *testing.T) {
	alone.Mark(t)
	for name, cost := range map[string]uint64{"far": 14, "through": 20} {
		for class, want := range map[string]int{"batch": 13, "normal": 15, "critical": 20} {
			n, now, next := newNode(t, Config{MaxKeys: shards * maxCounters}, classed()), start, 0
			got := []int{asClass(n, now, "u", class, 30)}
			for range 3 {
				for range 20_000 {
					next++
					req := requestOf(n, fmt.Sprint("flood", next))
					req.Set("class", "critical")
					req.Cost = cost
					n.Check(now, req)
					req.Release()
					if now = now.Add(time.Millisecond); next%100 == 0 {
						n.Tick(now)
					}
				}
				got = append(got, asClass(n, now, "u", class, 30))
			}
			if s := fmt.Sprint(got); s != fmt.Sprint([]int{want, 0, 0, 0}) {
				t.Errorf("%s, flood %s: %s admitted, with floods in between, want %d and no more", class, name, s, want)
			}
		}
	}
}

// What is kept of a forgotten key is what it had used: higher classes may spend what it left,
// and one that only they asked of is as far from its limit as it is by theirs.
func TestForgottenKeyOfAClass(t *testing.T) {
	for _, c := range []struct {
		class       string
		used, batch int // admitted to batch after that,
		critical    int // and to critical
	}{
		{"batch", 13, 0, 7}, {"batch", 11, 2, 7}, {"normal", 15, 0, 5}, {"normal", 12, 1, 7}, {"critical", 16, 0, 4},
		{"batch", 9, 13, 7}, {"critical", 14, 13, 7}, // less than 80 % of theirs: forgotten
	} {
		n := newNode(t, Config{}, classed())
		asClass(n, start, "u", c.class, c.used)
		forgetAll(n, start)
		if got := asClass(n, start, "u", "batch", 30); got != c.batch {
			t.Errorf("%d used by %s: %d of batch admitted, want %d", c.used, c.class, got, c.batch)
		}
		forgetAll(n, start)
		if got := asClass(n, start, "u", "critical", 30); got != c.critical {
			t.Errorf("%d used by %s: %d of critical admitted, want %d", c.used, c.class, got, c.critical)
		}
		forgetAll(n, start)
		if got := asClass(n, start, "u", "critical", 30); got != 0 {
			t.Errorf("%d used by %s: %d more admitted, want none", c.used, c.class, got)
		}
		later := start.Add(2*time.Hour + time.Minute)
		if got := asClass(n, later, "u", "batch", 30); got != 13 {
			t.Errorf("%d used by %s: %d of batch admitted when all has left the window, want 13", c.used, c.class, got)
		}
	}
}

// A bucket goes on from what the class had taken of it.
func TestForgottenBucketOfAClass(t *testing.T) {
	rule := perUser(limit.RateSpec{Algorithm: "token_bucket", Capacity: 20, Refill: limit.Flow{Units: 1, Per: time.Minute}, Scope: "edge"})
	rule.Classes = classed().Classes
	for where, most := range map[string]int{"table": 64, "filter": 0} {
		n := newNode(t, Config{}, rule)
		for i := range n.shards {
			n.shards[i].blocked = blocked{most: most, filter: filter{most: 16}}
		}
		if got := asClass(n, start, "u", "batch", 30); got != 13 {
			t.Fatalf("%s: %d of batch admitted, want 13", where, got)
		}
		for range 3 {
			forgetAll(n, start)
			if got := asClass(n, start, "u", "batch", 30); got != 0 {
				t.Errorf("%s: %d more of batch admitted, want none", where, got)
			}
		}
		if got := asClass(n, start.Add(30*time.Minute), "u", "batch", 30); got == 0 {
			t.Errorf("%s: denied when all has drained", where)
		}
	}
}

// The least class keeps the key near its limit, whoever asks next.
func TestHigherClassDoesNotHideALowerOne(t *testing.T) {
	n := newNode(t, Config{}, classed())
	for hour := range 3 {
		now := start.Add(time.Duration(hour) * 2 * time.Hour)
		if got := asClass(n, now, "u", "batch", 30); got != 13 {
			t.Fatalf("hour %d: %d of batch admitted, want 13", hour, got)
		}
		now = now.Add(10 * time.Minute) // the allowance is over: it is folded anew
		if got := asClass(n, now, "u", "critical", 1); got != 1 {
			t.Fatalf("hour %d: critical was denied", hour)
		}
		forgetAll(n, now)
		if got := asClass(n, now, "u", "batch", 30); got != 0 {
			t.Errorf("hour %d: %d more of batch admitted after a request of critical, want none", hour, got)
		}
	}
}

// Of a class that may use nothing, no key is near the limit.
func TestClassOfNothing(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 1, Per: time.Hour, Scope: "edge"})
	rule.Classes = classed().Classes
	n := newNode(t, Config{}, rule)
	for i, want := range []int{0, 1, 0} {
		class := []string{"batch", "critical", "critical"}[i]
		if got := asClass(n, start, "u", class, 3); got != want {
			t.Errorf("step %d: %d of %s admitted, want %d", i, got, class, want)
		}
		forgetAll(n, start)
	}
}
