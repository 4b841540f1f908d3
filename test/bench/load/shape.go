package load

import (
	"math"
	"time"
)

// stretch is a part of a load in which the rate goes from one value to another in a
// straight line.
type stretch struct {
	lasts    time.Duration
	from, to float64 // requests a second
}

// requests is how many are due within it.
func (s stretch) requests() float64 { return (s.from + s.to) / 2 * s.lasts.Seconds() }

// after is how long it takes until n of its requests were due.
func (s stretch) after(n float64) time.Duration {
	if n == 0 {
		return 0
	}
	slope := (s.to - s.from) / s.lasts.Seconds()
	seconds := n / s.from
	if slope != 0 { // the root of slope/2 t² + from t = n, in a form that holds where from is 0
		seconds = 2 * n / (s.from + math.Sqrt(max(0, s.from*s.from+2*slope*n)))
	}
	return min(s.lasts, time.Duration(seconds*float64(time.Second)))
}

// at is the rate after some time.
func (s stretch) at(after time.Duration) float64 {
	return s.from + (s.to-s.from)*after.Seconds()/s.lasts.Seconds()
}

// shape is a load over time. Its requests are spaced evenly within the rate.
type shape []stretch

// steady is one rate throughout.
func steady(rate float64, lasts time.Duration) shape { return shape{{lasts, rate, rate}} }

// bursts has a burst at the end of every so long: times the rate.
func bursts(rate, times float64, every, burst, lasts time.Duration) (s shape) {
	for lasts > 0 {
		quiet := min(lasts, every-burst)
		s = append(s, stretch{quiet, rate, rate})
		lasts -= quiet
		if loud := min(lasts, burst); loud > 0 {
			s = append(s, stretch{loud, rate * times, rate * times})
			lasts -= loud
		}
	}
	return s
}

// flash is one crowd in the middle: it comes within ramp, stays, and goes as fast.
func flash(rate, times float64, ramp, hold, lasts time.Duration) shape {
	quiet := (lasts - 2*ramp - hold) / 2
	return shape{
		{quiet, rate, rate}, {ramp, rate, rate * times}, {hold, rate * times, rate * times}, {ramp, rate * times, rate}, {quiet, rate, rate},
	}
}

// due is when a request is.
type due struct {
	after time.Duration // since the load began
	rate  float64       // requests a second, then
}

// arrivals goes through a shape, request by request.
type arrivals struct {
	shape shape
	begun time.Duration // of shape[0]
	n     float64       // the next request, counted from there
}

// rounding is what sums of fractions may be off by, in requests: the last one of a
// stretch is not to come twice, or in the next one at once, for that.
const rounding = 1e-6

// next is when the next request is due; false where there is none.
func (a *arrivals) next() (d due, ok bool) {
	for len(a.shape) > 0 {
		s := a.shape[0]
		if within := s.requests(); a.n < within-rounding {
			after := s.after(a.n)
			a.n++
			return due{a.begun + after, s.at(after)}, true
		} else if a.n -= within; math.Abs(a.n) < rounding {
			a.n = 0
		}
		a.begun += s.lasts
		a.shape = a.shape[1:]
	}
	return due{}, false
}
