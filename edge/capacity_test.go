package edge

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func TestCapacityHoldsForItsTime(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	if _, _, ok := n.Capacity(start, "api"); ok {
		t.Error("a capacity that nobody set is known")
	}
	if err := n.SetCapacity(start, "api", 0.4, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		after time.Duration
		known bool
	}{{0, true}, {9 * time.Second, true}, {10 * time.Second, false}, {-time.Millisecond, true}, {-5 * time.Minute, false}, {-2 * time.Hour, false}} {
		used, ttl, ok := n.Capacity(start.Add(test.after), "api")
		if ok != test.known || ok && (used != 0.4 || ttl != min(10*time.Second, 10*time.Second-test.after)) {
			t.Errorf("%v after: %v used for %v, known %v; want known %v", test.after, used, ttl, ok, test.known)
		}
	}
}

// What is not good any more is not again, though the clock be set back and comes to its time
// once more.
func TestCapacityOfBeforeTheClockWasSetBack(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	if err := n.SetCapacity(start, "api", 0.4, 10*time.Second); err != nil {
		t.Fatal(err)
	}
	n.Tick(start.Add(time.Second))
	if _, _, ok := n.Capacity(start.Add(time.Second), "api"); !ok {
		t.Error("a second later it is not known any more")
	}
	n.Tick(start.Add(-2000 * time.Second))
	if _, _, ok := n.Capacity(start.Add(time.Second), "api"); ok {
		t.Error("set back by 2000 s, and that much later, it is known again")
	}
}

func TestCapacityRefusesWhatIsNone(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	for _, test := range []struct {
		name string
		used float64
		ttl  time.Duration
	}{
		{"", 0.1, time.Second}, {"a b", 0.1, time.Second}, {"api", -1, time.Second}, {"api", math.NaN(), time.Second},
		{"api", math.Inf(1), time.Second}, {"api", 0.1, 0}, {"api", 0.1, 2 * time.Hour},
	} {
		if err := n.SetCapacity(start, test.name, test.used, test.ttl); err == nil {
			t.Errorf("SetCapacity(%q, %v, %v) took it", test.name, test.used, test.ttl)
		}
	}
}

func TestCapacitiesAreBounded(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Minute}))
	for i := range maxSignals {
		if err := n.SetCapacity(start, fmt.Sprint("c", i), 0.1, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.SetCapacity(start, "one-more", 0.1, time.Second); err == nil {
		t.Error("one more name than there may be was taken")
	}
	if err := n.SetCapacity(start, "c7", 0.9, time.Second); err != nil {
		t.Errorf("a known name was refused: %v", err)
	}
	if err := n.SetCapacity(start.Add(2*time.Second), "one-more", 0.1, time.Second); err != nil {
		t.Errorf("with the others run out: %v", err)
	}
}
