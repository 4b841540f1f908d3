package limit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var perSecond = SpansOf(time.Second)

// A steady stream is measured as what it is, however often it is looked at.
func TestDemandOfASteadyStream(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 330 * time.Millisecond} {
		var d Demand
		d.Turn(perSecond, 1)
		for at := every; at <= 2*time.Minute; at += every {
			d.waits += 40 * every.Seconds()
			d.Turn(perSecond, 1+int64(at))
		}
		for name, got := range map[string]float64{"fast": d.Fast, "mid": d.Mid, "slow": d.Slow, "window": d.Window} {
			if math.Abs(got-40) > 0.5 {
				t.Errorf("looked at every %v, %s is %.2f, want 40", every, name, got)
			}
		}
		if d.Surges(perSecond) {
			t.Errorf("looked at every %v, a steady stream surges", every)
		}
	}
}

// Whoever says nothing is taken to be asked nothing, as it would measure itself.
func TestFadedIsWhatItWouldMeasure(t *testing.T) {
	var d Demand
	d.Turn(perSecond, 1)
	d.Ask(30)
	d.Turn(perSecond, 1+int64(time.Second))
	told := d
	d.Turn(perSecond, 1+int64(1700*time.Millisecond))
	f := told.Faded(perSecond, 700*time.Millisecond)
	if math.Abs(f.Fast-d.Fast)+math.Abs(f.Mid-d.Mid)+math.Abs(f.Window-d.Window) > 1e-9 {
		t.Errorf("faded to %+v, measured %+v", f, d)
	}
	if f := told.Faded(perSecond, -time.Second); f.Fast != told.Fast {
		t.Error("who has just spoken has faded")
	}
}

// A clock that is set back neither invents demand nor loses what waits.
func TestDemandWithAClockSetBack(t *testing.T) {
	var d Demand
	d.Turn(perSecond, int64(time.Hour))
	d.Ask(5)
	d.Turn(perSecond, int64(time.Minute))
	d.Turn(perSecond, int64(time.Minute+time.Second))
	if d.Fast <= 0 || d.Fast > 5 {
		t.Errorf("5 asked within a second are %.2f a second", d.Fast)
	}
}

// What a region publishes stays while it is about right, moves when it is not, and
// never goes back and forth between two figures for one demand.
func TestPublishSettles(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		d := Demand{Fast: rnd.ExpFloat64() * 100, Mid: rnd.ExpFloat64() * 100}
		told := rnd.ExpFloat64() * 100
		first := d.Publish(perSecond, told)
		second := d.Publish(perSecond, first)
		if third := d.Publish(perSecond, second); third != second {
			t.Fatalf("of %+v, told %.1f: %.2f, then %.2f, then %.2f", d, told, first, second, third)
		}
	}
	if got := (&Demand{Fast: 200, Mid: 100}).Publish(perSecond, 40); got != 200 {
		t.Errorf("a surge to 200 is published as %v", got)
	}
	if got := (&Demand{Fast: 42, Mid: 39}).Publish(perSecond, 40); got != 40 {
		t.Errorf("chance moved 40 to %v", got)
	}
	if got := (&Demand{Fast: 4, Mid: 1}).Publish(perSecond, 0); got != 0 {
		t.Errorf("a single request is published as %v", got)
	}
}

func TestRelaxed(t *testing.T) {
	if got := Relaxed(10, 50, time.Second, 0); got != 10 {
		t.Errorf("just told: %v", got)
	}
	if got := Relaxed(10, 50, 0, 0); got != 50 {
		t.Errorf("without a window: %v", got)
	}
	if got := Relaxed(10, 50, time.Second, time.Minute); math.Abs(got-50) > 1e-6 {
		t.Errorf("long after: %v", got)
	}
}

// One request in a long window is one, and not as many as the time that has passed since
// makes of it; who asks evenly is expected to go on; and who falls silent is not, sooner
// where nothing is kept for him.
func TestExpectedInALongWindow(t *testing.T) {
	spans := SpansOf(time.Minute)
	ask := func(every time.Duration, n int) (d Demand, now int64) {
		now = 1
		for d.Turn(spans, now); n > 0; n-- {
			d.Ask(1)
			now += int64(every)
			d.Turn(spans, now)
		}
		return d, now
	}
	near := func(what string, got, least, most float64) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: %.2f are expected in a minute, want %v to %v", what, got, least, most)
		}
	}
	one, now := ask(100*time.Millisecond, 1)
	near("one request", one.Expected(spans, true), 0.9, 1.1)
	near("one request, nothing to spare", one.Expected(spans, false), 0.9, 1.1)
	one.Turn(spans, now+int64(15*time.Second))
	near("one request 15 s ago", one.Expected(spans, true), 0.5, 1)
	near("one request 15 s ago, nothing to spare", one.Expected(spans, false), 0, 0.7)
	one.Turn(spans, now+int64(time.Minute))
	near("one request a minute ago", one.Expected(spans, true), 0, 0.01)

	even, now := ask(100*time.Millisecond, 1200)
	near("ten a second for two minutes", even.Expected(spans, true), 480, 620)
	even.Turn(spans, now+int64(10*time.Second))
	near("ten a second, and none for 10 s", even.Expected(spans, true), 0, 120)
}

// Who is silent is expected less and less, and not anew when the average over his window
// has become so small that a moment's silence would be chance. The averages over seconds
// may still be at odds in the first ten of their spans. Seed 91000072 of test/sim: rights
// were kept for twelve minutes.
func TestExpectedOfOneWhoIsSilent(t *testing.T) {
	for _, window := range []time.Duration{2 * time.Second, 10 * time.Second, time.Minute, longestSpare} {
		for _, every := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second} {
			spans := SpansOf(window)
			var d Demand
			now := int64(1)
			for d.Turn(spans, now); now < int64(2*longestSpare); {
				now += int64(every)
				d.Ask(1)
				d.Turn(spans, now)
			}
			least := math.Inf(1)
			for silent := 10 * spans.Mid; silent < 10*window; silent += time.Second {
				d.Turn(spans, now+int64(silent))
				got := d.Expected(spans, true)
				if got > least {
					t.Errorf("one in %v, and none for %v: %.2f are expected in %v, and %.2f were before", every, silent, got, window, least)
					break
				}
				least = got
			}
			if d.Expected(spans, true) >= 0.05 {
				t.Errorf("one in %v, and none for ten windows: %.2f are expected in %v", every, least, window)
			}
		}
	}
}
