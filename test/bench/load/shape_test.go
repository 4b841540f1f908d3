package load

import (
	"math"
	"testing"
	"time"
)

// all are the requests of a shape.
func all(s shape) (dues []due) {
	a := arrivals{shape: s}
	for d, ok := a.next(); ok; d, ok = a.next() {
		dues = append(dues, d)
	}
	return dues
}

func TestShapes(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name  string
		shape shape
		each  []int // requests in each second
	}{
		{"steady", steady(100, 3*s), []int{100, 100, 100}},
		{"less than one a second", steady(.5, 6*s), []int{1, 0, 1, 0, 1, 0}},
		{"bursts end each period", bursts(10, 5, 3*s, s, 7*s), []int{10, 10, 50, 10, 10, 50, 10}},
		{"the load ends within a burst", bursts(10, 5, 4*s, 2*s, 3*s), []int{10, 10, 50}},
		{"half of a second is loud", bursts(10, 3, s, s/2, 2*s), []int{20, 20}},
		// From 10 to 50 within two seconds: 10 t + 10 t².
		{"flash", flash(10, 5, 2*s, s, 7*s), []int{10, 20, 40, 50, 40, 20, 10}},
		{"a crowd that comes and goes at once", flash(10, 5, 2*s, 0, 6*s), []int{10, 20, 40, 40, 20, 10}},
		{"none comes", flash(10, 1, s, s, 5*s), []int{10, 10, 10, 10, 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, last := make([]int, len(c.each)), -time.Nanosecond
			for _, d := range all(c.shape) {
				if d.after <= last || d.after >= time.Duration(len(c.each))*s {
					t.Fatalf("a request is due after %v, the one before after %v", d.after, last)
				}
				last = d.after
				got[d.after/s]++
			}
			for i := range got { // a request on the edge of a second may fall to either
				if math.Abs(float64(got[i]-c.each[i])) > 1 {
					t.Errorf("in second %d: %d requests, want %d", i, got[i], c.each[i])
				}
			}
		})
	}
}

// What a ramp's formula says is what the area below its line says.
func TestRequestsAreDueByTheRate(t *testing.T) {
	for _, s := range []stretch{{4 * time.Second, 10, 50}, {4 * time.Second, 50, 10}, {time.Second, 0, 100}, {time.Second, 100, 0}, {2 * time.Second, 7, 7}} {
		for n := 0.0; n < s.requests(); n++ {
			after := s.after(n)
			upTo := stretch{after, s.from, s.at(after)}
			if got := upTo.requests(); math.Abs(got-n) > 1e-3 {
				t.Errorf("%v: request %v is due after %v, until when %v were", s, n, after, got)
			}
		}
	}
}

// A day of fractions adds no request, and loses none.
func TestRoundingMakesNoRequests(t *testing.T) {
	if n := len(all(bursts(.1, 3, 300*time.Millisecond, 100*time.Millisecond, 24*time.Hour))); n < 14399 || n > 14401 {
		t.Errorf("%d requests, want 14400: 0.1 a second, and 0.3 in each third", n)
	}
}
