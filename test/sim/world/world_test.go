package world

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func rules(rates ...limit.RateSpec) []limit.Document {
	return []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{{Name: "api", Key: []string{"user"}, Rates: rates}}}}
}

func newWorld(t testing.TB, docs []limit.Document) *World {
	t.Helper()
	w, err := New(Config{
		Regions: []Region{{Name: "eu", Edges: []string{"eu-1", "eu-2"}}, {Name: "us", Edges: []string{"us-1", "us-2"}}},
		Rules:   docs, Start: start,
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return w
}

func check(w *World, edge, user string) limit.Decision {
	n := w.Node(edge)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	w.Touch()
	return n.Check(w.Now(), req)
}

// TestOneLimitOverTwoRegions: 20 requests a second in round robin over four
// edges against 100 a minute.
func TestOneLimitOverTwoRegions(t *testing.T) {
	w := newWorld(t, rules(limit.RateSpec{Limit: 100, Per: time.Minute}))
	allowed := 0
	for i := range 400 {
		w.Advance(start.Add(time.Duration(i) * 50 * time.Millisecond))
		if check(w, w.Edges()[i%4], "u").Allowed {
			allowed++
		}
	}
	if allowed < 100 || allowed > 110 {
		t.Fatalf("%d of 400 allowed, want 100 to 110", allowed)
	}
	w.Advance(w.Now().Add(2 * time.Second))
	for _, e := range w.Edges() {
		if got := believed(w, e, "u"); got != uint64(allowed) {
			t.Errorf("%s believes %d after two quiet seconds, want %d", e, got, allowed)
		}
	}
}

func believed(w *World, edge, user string) uint64 {
	n := w.Node(edge)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", user)
	return n.Inspect(w.Now(), req)[0].Total
}

func TestCutRegionsCountAloneAndJoinAgain(t *testing.T) {
	w := newWorld(t, rules(limit.RateSpec{Limit: 100, Per: time.Hour}))
	w.Cut("eu", true)
	for i := range 50 {
		w.Advance(start.Add(time.Duration(i) * 100 * time.Millisecond))
		check(w, "eu-1", "u")
		check(w, "us-1", "u")
	}
	if eu, us := believed(w, "eu-2", "u"), believed(w, "us-2", "u"); eu > 50 || us > 50 {
		t.Fatalf("cut off, eu-2 believes %d and us-2 %d, want at most the own region's 50", eu, us)
	}
	w.Cut("eu", false)
	w.Advance(w.Now().Add(3 * time.Second))
	for _, e := range []string{"eu-1", "us-1"} {
		if got := believed(w, e, "u"); got != 100 {
			t.Errorf("%s believes %d three seconds after the cut, want 100", e, got)
		}
	}
}

func TestSameWorldTwice(t *testing.T) {
	run := func() (allowed []bool) {
		w := newWorld(t, rules(limit.RateSpec{Limit: 20, Per: time.Second}))
		for i := range 500 {
			w.Advance(start.Add(time.Duration(i) * 7 * time.Millisecond))
			allowed = append(allowed, check(w, w.Edges()[i*i%4], "u").Allowed)
		}
		return allowed
	}
	a, b := run(), run()
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("request %d: %t, then %t", i, a[i], b[i])
		}
	}
}
