package regional

import (
	"testing"
	"time"
)

// What ended in a silence may be missing if nobody kept it until that was over, be it this
// aggregator's or a region's.
func TestMissedInASilence(t *testing.T) {
	at := func(seconds float64) int64 { return int64(1e12) + int64(seconds*float64(time.Second)) }
	s := &spoken{peers: make([]voice, 2)}
	for i := range 100 {
		s.awake(at(float64(i)))
		if i < 20 || i >= 40 { // one is silent for 21 s
			s.heard(0, at(float64(i)))
		}
		if i > 60 { // nothing waits for who was never heard
			s.heard(1, at(float64(i)))
		}
	}
	s.awake(at(120)) // from 99 on
	for _, tt := range []struct {
		end    float64
		kept   time.Duration
		own    bool
		missed bool
	}{
		{18.9, 6 * time.Second, false, false},
		{19.1, 6 * time.Second, false, true},
		{33.9, 6 * time.Second, false, true},
		{34, 6 * time.Second, false, false},
		{19.1, 21 * time.Second, false, false},
		{25, 6 * time.Second, true, false},
		{50, 6 * time.Second, false, false},
		{100, 6 * time.Second, false, true},
		{100, 6 * time.Second, true, true},
		{115, 6 * time.Second, true, false},
	} {
		if got := s.missed(at(tt.end), int64(tt.kept), tt.own); got != tt.missed {
			t.Errorf("missed(%v s, %v, %t) = %t, want %t", tt.end, tt.kept, tt.own, got, tt.missed)
		}
	}
}
