package limit

import (
	"math"
	"time"
)

// Demand is how much is asked for of a counter, admitted or not: moving averages of
// cost a second over spans that follow from the window (research/accuracy.md §5.2).
// The zero value has heard of nothing.
type Demand struct {
	Fast, Mid, Slow float64 // over Spans
	Window          float64 // over a window
	at              int64   // that they are of, in ns since 1970
	waits           float64 // cost that is not in them yet
}

// Spans are what the averages of a Demand reach over.
type Spans struct{ Fast, Mid, Slow, Window time.Duration }

// SpansOf is the spans for counters of a window.
func SpansOf(window time.Duration) Spans {
	within := func(d, least, most time.Duration) time.Duration { return min(max(d, least), most) }
	return Spans{
		Fast:   within(window/4, 250*time.Millisecond, 2*time.Second),
		Mid:    within(window/2, time.Second, 5*time.Second),
		Slow:   within(min(window, time.Hour)*10, 10*time.Second, 10*time.Minute),
		Window: window,
	}
}

// Ask adds cost that is asked for. It counts from the next Turn.
func (d *Demand) Ask(cost uint64) { d.waits += float64(cost) }

// Unask takes out what was asked for since the last Turn, and is not to count.
func (d *Demand) Unask(cost uint64) { d.waits -= float64(cost) }

// leastTurn is the time below which it does not pay to turn the averages.
const leastTurn = int64(time.Millisecond)

// Turn brings the averages to now: what was asked for since the last turn came
// evenly.
func (d *Demand) Turn(s Spans, now int64) {
	if d.at == 0 || now < d.at { // or a clock was set back
		d.at = now
		return
	}
	past := now - d.at
	if past < leastTurn {
		return
	}
	rate := d.waits / time.Duration(past).Seconds()
	for _, a := range []struct {
		of   *float64
		span time.Duration
	}{{&d.Fast, s.Fast}, {&d.Mid, s.Mid}, {&d.Slow, s.Slow}, {&d.Window, s.Window}} {
		*a.of += (rate - *a.of) * -math.Expm1(-float64(past)/float64(a.span))
	}
	d.at, d.waits = now, 0
}

// Faded is the demand of one who has said nothing for a time: as if nothing was asked
// for since.
func (d Demand) Faded(s Spans, silence time.Duration) Demand {
	if silence > 0 {
		d.at, d.waits = 1, 0
		d.Turn(s, 1+int64(silence))
	}
	return d
}

// Relaxed is an average over a window, so long after it was told that the demand is
// a rate: it tends to that.
func Relaxed(average, rate float64, window, since time.Duration) float64 {
	if window <= 0 {
		return rate
	}
	return rate + (average-rate)*math.Exp(-float64(max(0, since))/float64(window))
}

// sigma is the deviation of a moving average of a Poisson stream of a rate, events of
// one unit.
func sigma(rate float64, span time.Duration) float64 {
	return math.Sqrt(rate / (2 * span.Seconds()))
}

// Steady is the demand that weights are made of: Mid, unless Fast is far off.
func (d *Demand) Steady(s Spans) float64 {
	if math.Abs(d.Fast-d.Mid) > 3*sigma(d.Mid, s.Fast) {
		return d.Fast
	}
	return d.Mid
}

// Expected is the cost that is asked for in a window. Of a window that is longer than
// what Steady is an average over, no more is expected than is sure: one request in 5 s
// makes no twelve a minute, but one. With spare, who asks seldom is expected to ask
// again, while his silence is no longer than chance has it, and no window longer than
// longestSpare: what is kept for him has to be renewed all the time.
func (d *Demand) Expected(s Spans, spare bool) float64 {
	steady, window := d.Steady(s), s.Window.Seconds()
	if s.Window <= s.Mid {
		return steady * window
	}
	n := steady * s.Mid.Seconds()
	sure := (n - math.Sqrt(n)) / s.Mid.Seconds()
	seldom := d.Window * s.Mid.Seconds()
	if spare && s.Window <= longestSpare && d.Window*window >= 0.5 && seldom-n <= math.Sqrt(seldom) && d.missed(s) <= 3 {
		return max(sure, d.Window) * window
	}
	return max(sure, min(d.Window, steady)) * window
}

const longestSpare = 2 * time.Minute

// missed is the cost that was not asked for in the silence that is now, had it gone on as
// before: as much is gone from Window. How long the silence is Mid tells, of which more
// is gone.
func (d *Demand) missed(s Spans) float64 {
	mid, window := s.Mid.Seconds(), s.Window.Seconds()
	silence := mid * window / (window - mid) * math.Log(d.Window/d.Mid)
	return d.Window * window * math.Expm1(silence/window)
}

// Surges says that more is asked for than before, beyond what chance does.
func (d *Demand) Surges(s Spans) bool { return d.Fast > d.Mid+3*sigma(d.Mid, s.Fast) }

// Publish is the demand that a region tells others: what it told last while that is
// about right, so that all agree on it.
func (d *Demand) Publish(s Spans, told float64) float64 {
	least := func(span time.Duration) float64 { return max(told, 0.5/span.Seconds()) } // of one request nobody need hear
	if math.Abs(d.Fast-told) > 3.5*sigma(least(s.Fast), s.Fast) {
		return d.Fast
	}
	calm := math.Abs(d.Fast-d.Mid) <= 3.5*sigma(d.Mid, s.Fast) // or it would go back and forth between the two
	if off := math.Abs(d.Mid - told); calm && off > told/5 && off > 2.5*sigma(least(s.Mid), s.Mid) {
		return d.Mid
	}
	return told
}
