package world

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// settled is a world of an adaptive limit whose parts have met.
func settled(t *testing.T, regions, edges int, spec limit.RateSpec) *World {
	t.Helper()
	spec.Consistency = "adaptive"
	w := wide(t, regions, edges, spec)
	w.Advance(start.Add(2 * time.Second))
	return w
}

// ask has an edge decide a request that costs something.
func ask(w *World, edge string, cost uint64) limit.Decision {
	n := w.Node(edge)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	req.Set("plan", "gold")
	req.Set("class", "batch")
	req.Cost = cost
	w.Touch()
	return n.Check(w.Now(), req)
}

// storm asks all edges, one drawn each time, so often a second, and returns what was
// admitted.
func storm(w *World, hz int, lasts time.Duration, cost uint64) (admitted uint64) {
	rnd := rand.New(rand.NewPCG(1, uint64(hz)))
	from := w.Now()
	for i := range hz * int(lasts/time.Millisecond) / 1000 {
		w.Advance(from.Add(time.Duration(i) * time.Second / time.Duration(hz)))
		if ask(w, w.Edges()[rnd.IntN(len(w.Edges()))], cost).Allowed {
			admitted += cost
		}
	}
	return admitted
}

// Who is alone has all of the limit, and is told as with loose limits.
func TestSharesOfTheOnlyEdge(t *testing.T) {
	w := settled(t, 1, 1, limit.RateSpec{Limit: 20, Per: time.Second})
	for i := range 20 {
		if d := ask(w, "r0-0", 1); !d.Allowed || d.Remaining != uint64(19-i) {
			t.Fatalf("request %d: %+v, want allowed with %d left", i+1, d, 19-i)
		}
	}
	if d := ask(w, "r0-0", 1); d.Allowed || d.Basis.Short || d.RetryAfter <= 500*time.Millisecond {
		t.Errorf("above the limit: %+v, want denied by the limit itself, for nearly a second", d)
	}
}

// Ten times the limit at once, everywhere: what all admit together is about the
// limit, where loose edges admit it over and over.
func TestSharesHoldASurge(t *testing.T) {
	for _, c := range []struct {
		name  string
		hz    int
		spec  limit.RateSpec
		cost  uint64
		least uint64
		most  uint64
	}{
		{"a second", 1000, limit.RateSpec{Limit: 100, Per: time.Second}, 1, 90, 115},
		{"weighted", 200, limit.RateSpec{Limit: 100, Per: time.Second}, 5, 60, 130},
		{"ten seconds", 1000, limit.RateSpec{Limit: 1000, Per: 10 * time.Second}, 1, 900, 1080},
		{"a token bucket", 1000, limit.RateSpec{Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 100, Per: time.Second}}, 1, 160, 230},
		{"a region's", 1000, limit.RateSpec{Limit: 100, Per: time.Second, Scope: "region"}, 1, 450, 600},
	} {
		w := settled(t, 5, 2, c.spec)
		lasts := 900 * time.Millisecond
		if c.spec.Per > time.Second {
			lasts = 2 * time.Second
		}
		if got := storm(w, c.hz, lasts, c.cost); got < c.least || got > c.most {
			t.Errorf("%s: %d admitted, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}

// A request that has to be denied as the share is used up, while the limit has room,
// says so, is told to come again soon, and is not punished for it.
func TestShortOfAShare(t *testing.T) {
	docs := rules(limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "adaptive"})
	docs[0].Rules[0].Penalty = limit.Penalty{For: time.Minute}
	w := newWorld(t, docs)
	w.Advance(start.Add(2 * time.Second))
	short := 0
	for range 60 { // at one of four edges, at once
		d := ask(w, "eu-1", 1)
		if d.Allowed {
			continue
		}
		short++
		if !d.Basis.Short || d.RetryAfter <= 0 || d.RetryAfter > time.Second || d.Remaining < 40 {
			t.Fatalf("%+v: want it short of a share, with more than 40 left, and a wait of at most a second", d)
		}
	}
	if short == 0 {
		t.Fatal("a quarter of the limit was enough for 60 of 100 requests")
	}
	w.Advance(w.Now().Add(1500 * time.Millisecond))
	if d := ask(w, "eu-1", 1); !d.Allowed {
		t.Errorf("later: %+v, want allowed, as nobody was above the limit", d)
	}
}

// A region that is cut off goes on with its part, and so do the others with theirs:
// together that is the limit.
func TestSharesOfACutRegion(t *testing.T) {
	docs := rules(limit.RateSpec{Limit: 100, Per: 10 * time.Second, Consistency: "adaptive"})
	docs[0].Rules[0].TierFrom = "plan" // whose limit is ten times that of the rule
	docs[0].Tenants = map[string]limit.TenantSpec{"gold": {Multiply: 10}}
	w := settled(t, 4, 2, limit.RateSpec{Limit: 100, Per: 10 * time.Second})
	if err := w.SetRules("", docs); err != nil {
		t.Fatal(err)
	}
	storm(w, 200, 4*time.Second, 1)
	w.Cut("r1", true)
	storm(w, 200, 2*time.Second, 1) // they see that it is
	w.Advance(w.Now().Add(11 * time.Second))
	if got := storm(w, 200, 9*time.Second, 1); got < 850 || got > 1100 {
		t.Errorf("%d admitted in a window with a region cut off, want about 1000", got)
	}
	w.Cut("r1", false)
	w.Advance(w.Now().Add(12 * time.Second))
	if got := storm(w, 200, 9*time.Second, 1); got < 950 || got > 1060 {
		t.Errorf("%d admitted in a window after the cut, want 1000", got)
	}
}

// An edge that nobody answers has its part of the limit in each window anew, also of
// keys that it was never told anything of; and no more, however far off the limit is.
func TestSharesOfACutEdge(t *testing.T) {
	for _, window := range []time.Duration{time.Second, time.Minute} {
		w := newWorld(t, rules(limit.RateSpec{Limit: 100, Per: window, Consistency: "adaptive"}))
		w.Advance(start.Add(2 * time.Second))
		w.CutPath("eu-1", "eu", true)
		w.CutPath("eu", "eu-1", true)
		check(w, "eu-1", "another") // nobody answers this
		w.Advance(start.Add(3 * time.Second))
		for nth := range 6 {
			from, admitted := w.Now(), 0
			for i := range 100 {
				w.Advance(from.Add(time.Duration(i) * window / 100))
				if check(w, "eu-1", "new").Allowed {
					admitted++
				}
			}
			if admitted < 22 || admitted > 32 {
				t.Errorf("window %d of %v: %d admitted by one of four edges, want about 25 of 100", nth, window, admitted)
			}
		}
	}
}

// What is reserved for those who matter more has to be left of the limit, not of the
// share of an edge: or nobody else would ever be admitted where shares are small.
func TestSharesAndReserves(t *testing.T) {
	docs := rules(limit.RateSpec{Limit: 100, Per: time.Second, Consistency: "adaptive"})
	docs[0].Rules[0].Classes = limit.ClassesSpec{From: "class", Order: []string{"batch", "critical"}, Reserve: map[string]float64{"critical": 30}}
	w := newWorld(t, docs)
	w.Advance(start.Add(2 * time.Second))
	if got := storm(w, 60, time.Second, 1); got < 45 || got > 72 {
		t.Errorf("%d of 60 a second admitted, want nearly all of them", got)
	}
	w.Advance(w.Now().Add(3 * time.Second))
	if got := storm(w, 1000, 900*time.Millisecond, 1); got < 50 || got > 80 {
		t.Errorf("%d of a surge admitted, want about 70 of 100 where 30 are reserved", got)
	}
}

// One request for half of the limit comes to each of many edges at once: about two of
// them pass, where loose edges pass each.
func TestHeavyRequestsAtOnce(t *testing.T) {
	for _, edges := range [][2]int{{5, 2}, {10, 2}} {
		sum := uint64(0)
		const rounds = 20
		w := settled(t, edges[0], edges[1], limit.RateSpec{Limit: 100, Per: time.Second})
		for range rounds {
			w.Advance(w.Now().Add(15 * time.Second)) // nobody asked for it lately
			for _, e := range w.Edges() {
				if ask(w, e, 50).Allowed {
					sum += 50
				}
			}
		}
		if mean := sum / rounds; mean > 150 {
			t.Errorf("%d x %d edges: %d of 100 admitted at once, on average of %d rounds", edges[0], edges[1], mean, rounds)
		} else {
			t.Logf("%d x %d edges: %d", edges[0], edges[1], mean)
		}
	}
}
