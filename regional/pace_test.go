package regional

import (
	"testing"
	"time"
)

// Of a thousand edges whose frames take 60 ms each 600 would be in hand: they are
// asked to come so much less often that 32 are, and when frames take 2 ms again,
// as often as they like.
func TestPaceFollowsTheLoad(t *testing.T) {
	const edges, interval = 1000, 100 * time.Millisecond
	var p pace
	now := int64(1e18)
	second := func(each time.Duration) (inHandNow float64) {
		frames := edges * float64(time.Second) / float64(max(p.asked(), interval))
		now += int64(time.Second)
		p.took(time.Duration(frames * float64(each)))
		p.turn(now, interval)
		return frames * each.Seconds()
	}
	p.turn(now, interval)
	for range 10 {
		if second(2 * time.Millisecond); p.asked() != 0 {
			t.Fatalf("with 20 frames in hand edges are asked for %v", p.asked())
		}
	}
	load := 0.0
	for range 10 {
		load = second(60 * time.Millisecond)
	}
	if load < inHand/2 || load > inHand*5/4 {
		t.Errorf("after ten seconds of a slow store %.0f frames are in hand at a pace of %v, want %d", load, p.asked(), inHand)
	}
	for range 20 {
		second(time.Second)
	}
	if p.asked() != slowest {
		t.Errorf("a dead slow store: pace %v, want %v", p.asked(), slowest)
	}
	for range 12 {
		second(2 * time.Millisecond)
	}
	if p.asked() != 0 {
		t.Errorf("when the store is quick again edges are still asked for %v", p.asked())
	}
}

// Where nothing is in hand any more edges are asked to come twice as often each second,
// and not all at once.
func TestPaceComesDownByHalves(t *testing.T) {
	const interval = 100 * time.Millisecond
	var p pace
	now := int64(1e18)
	p.turn(now, interval)
	p.took(time.Hour)
	now += int64(time.Second)
	p.turn(now, interval)
	for want := slowest; want > interval; want /= 2 {
		if p.asked() != want {
			t.Fatalf("edges are asked for a pace of %v, want %v", p.asked(), want)
		}
		now += int64(time.Second)
		p.turn(now, interval)
	}
	if p.asked() != 0 {
		t.Errorf("edges are asked for a pace of %v in the end, want none", p.asked())
	}
}
