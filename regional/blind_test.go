package regional

import (
	"testing"
	"time"
)

// What a peer counts is not known while nothing is heard of it, until that is known; and about
// as long after that it is over, whether somebody asked meanwhile or not.
func TestUnheard(t *testing.T) {
	a, err := New(Config{Region: "eu", Name: "a", Peers: []string{"us"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1_800_000_000) * int64(time.Second)
	a.links.ways[0] = int64(200 * ms)
	hears := func() {
		a.links.heard(0, false, true, a.cfg.Interval, now)
		a.links.says(0, 1, now)
		a.links.sent(0, now)
	}
	for range 100 {
		now += int64(100 * ms)
		hears()
	}
	left := func(after int64) float64 {
		u := a.unheardOf(0, now+after)
		return u.fades(now + after)
	}
	for _, tt := range []struct {
		after     int64
		from, to  float64
		hearsThen bool
	}{
		{120 * ms, 0, 0, false}, // as usual
		{400 * ms, 1, 1, false}, // not known to be cut off
		{420 * ms, 0, 0, true},
		{int64(time.Hour), 0, 0, false}, // nobody looked before
		{int64(time.Hour + time.Minute), 0, 0, true},
		{740 * ms, 1, 1, false}, // just before it is known
		{900 * ms, .7, .95, false},
		{1300 * ms, .2, .6, false},
		{int64(2 * time.Second), 0, 0, false},
	} {
		if tt.hearsThen {
			now += tt.after
			hears()
			if a.links.back[0] > now { // it was cut off: it has told all since
				now = a.links.back[0]
				hears()
			}
			if got := left(10 * ms); got != 0 {
				t.Errorf("heard after %v: %.2f is left, want nothing", time.Duration(tt.after), got)
			}
			continue
		}
		if got := left(tt.after); got < tt.from || got > tt.to {
			t.Errorf("%v after it was heard: %.2f is left, want from %.2f to %.2f", time.Duration(tt.after), got, tt.from, tt.to)
		}
	}
}
