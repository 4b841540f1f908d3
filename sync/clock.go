package deltasync

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// Clock is a clock corrected by what exchanges tell of the clocks of others.
// Whoever is asked stamps a frame when it comes and when the reply leaves; with
// the asker's own stamps that gives the offset of its clock, between bounds
// (Mills, RFC 5905, §8). Of the last sixteen exchanges with one other the
// shortest round trip tells most. The correction goes towards the median of all
// other places', slowly, so that no slice is entered twice or left out: by five
// milliseconds a second, beside what the raw clock is slewed by meanwhile. Only a clock that is off by more than a second is set
// at once.
//
// The raw clock is this machine's, but goes on where that is set; see machine.
//
// At, Raw, Correction, Unsure and Steps may be called at any time; all else by one goroutine
// at a time. The zero value corrects nothing.
type Clock struct {
	machine machine
	ahead   atomic.Int64 // of the corrected clock against the raw one, in ns
	steps   atomic.Uint64

	others  []other
	turned  int64 // raw instant of the last Turn
	behind  int64 // how far the machine's clock was behind the raw one then
	counted bool  // our own clock is one of those of which the median is taken
}

// An other is somebody whose clock we can tell. Those of one place have one voice, their
// median: the machines of a region may all be set by one that is wrong.
type other struct {
	place   uint64
	name    uint64
	samples []exchanged // the newest last
}

// exchanged is what one exchange told.
type exchanged struct {
	place  uint64
	at     int64 // raw instant of the reply
	offset int64 // of the other's clock against our raw one
	trip   int64 // the offset is right to within half of it
}

const (
	samplesKept = 16
	// Who has not answered for so long while others did was asked before lanes
	// changed hands, or is gone: his clock may be another by now.
	answersFor  = int64(10 * time.Second)
	othersKept  = 64
	sampleAge   = int64(time.Minute) // no older one counts: clocks run off
	slewing     = 5e-3               // seconds a second
	stepFrom    = int64(time.Second) // what is further off is set at once
	runOff      = int64(time.Millisecond)
	longestTrip = 5 * int64(time.Second) // none takes so long: a clock was set meanwhile
	lopsided    = 20                     // the ways there and back are taken to differ by less than a tenth of the trip
)

// CountSelf has the clock itself be one of those of which the median is taken:
// so do equals, who correct themselves by each other. Without it the others
// know better.
func (c *Clock) CountSelf() {
	c.counted = true
}

// At is the corrected time of an instant, in ns since 1970.
func (c *Clock) At(t time.Time) int64 { return c.Raw(t) + c.ahead.Load() }

// Present is At of an instant that a caller takes for now: no clock was set back where it held
// that up, and it is later by now.
func (c *Clock) Present(t time.Time) int64 { return c.machine.present(t) + c.ahead.Load() }

// Raw is what the raw clock shows at an instant, in ns since 1970.
func (c *Clock) Raw(t time.Time) int64 { return c.machine.at(t) }

// Correction is what At adds to what this machine's clock shows at an instant.
func (c *Clock) Correction(t time.Time) time.Duration { return time.Duration(c.At(t) - t.UnixNano()) }

// Unsure says that others have not told yet what time it is, or not since this machine's clock
// was set forward, and believed: what is stamped now may lie far ahead of them.
func (c *Clock) Unsure() bool { return !c.machine.sure.Load() }

// Steps is how often the clock was set at once.
func (c *Clock) Steps() uint64 { return c.steps.Load() }

// Heard takes in the four stamps of an exchange with somebody of a place, in ns since
// 1970: sent and arrived by our raw clock, received and replied by the other's. Stamps of
// 0, or ones between which a clock was set, tell nothing.
func (c *Clock) Heard(place, name uint64, sent, received, replied, arrived int64) {
	if sent == 0 || received == 0 || replied == 0 {
		return
	}
	x := exchanged{place: place, at: arrived, trip: (arrived - sent) - (replied - received)}
	if x.trip < 0 || x.trip > longestTrip || replied < received {
		return
	}
	x.offset = (received-sent)/2 + (replied-arrived)/2
	o := c.other(place, name)
	if b := o.best(arrived); b != nil && distance(b.offset, x.offset) > (b.trip+x.trip)/2+runOff {
		o.samples = o.samples[:0] // both are right: a clock was set in between
	}
	if len(o.samples) == samplesKept {
		o.samples = slices.Delete(o.samples, 0, 1)
	}
	o.samples = append(o.samples, x)
}

// other is the one of that name, which stands last from now on.
func (c *Clock) other(place, name uint64) *other {
	at := slices.IndexFunc(c.others, func(o other) bool { return o.place == place && o.name == name })
	switch {
	case at >= 0:
		o := c.others[at]
		c.others = append(slices.Delete(c.others, at, at+1), o)
	case len(c.others) == othersKept:
		c.others = append(slices.Delete(c.others, 0, 1), other{place: place, name: name})
	default:
		c.others = append(c.others, other{place: place, name: name})
	}
	return &c.others[len(c.others)-1]
}

// best is the sample with the shortest trip of those that are not too old, or
// nil.
func (o *other) best(now int64) (found *exchanged) {
	for i := range o.samples {
		x := &o.samples[i]
		if now-x.at < sampleAge && x.at-now < sampleAge && (found == nil || x.trip <= found.trip) {
			found = x
		}
	}
	return found
}

// answering is the best samples of those who answer.
func (c *Clock) answering(now int64) (found []*exchanged) {
	if len(c.others) == 0 {
		return nil
	}
	newest := func(o *other) int64 { return o.samples[len(o.samples)-1].at }
	last := newest(&c.others[len(c.others)-1]) // who was heard of last stands last
	for i := range c.others {
		o := &c.others[i]
		if b := o.best(now); b != nil && distance(last, newest(o)) <= answersFor {
			found = append(found, b)
		}
	}
	return found
}

// Turn brings the correction nearer to what was heard. Call it a few times a
// second. It returns how far the clock was set where it was set at once, and by how much
// this machine's was set meanwhile where the raw one goes on; else 0.
func (c *Clock) Turn(t time.Time) (step, set time.Duration) {
	now := c.Raw(t)
	behind := now - t.UnixNano()
	slewed := distance(c.behind, behind) // the raw clock, towards the machine's, by as much
	if slewed > stepFrom {
		set, slewed = time.Duration(c.behind-behind), 0
	}
	c.behind = behind
	answered := len(c.answering(now)) > 0
	c.machine.answered.Store(answered)
	passed := min(max(0, now-c.turned), int64(time.Second))
	if c.turned == 0 {
		passed = 0
	}
	c.turned = now
	ahead := c.ahead.Load()
	off := c.target(now, ahead) - ahead
	if distance(off, 0) > stepFrom {
		c.steps.Add(1)
		step = time.Duration(off)
	} else {
		most := int64(slewing*float64(passed)) + slewed
		off = min(max(off, -most), most)
	}
	c.ahead.Store(ahead + off)
	if answered {
		c.machine.sure.Store(true)
	}
	return step, set
}

// Offset is how far the clocks of others are ahead of this machine's, in the
// median; ok is false where none is known.
func (c *Clock) Offset(t time.Time) (offset time.Duration, ok bool) {
	known := voices(c.answering(c.Raw(t)), func(b *exchanged) int64 { return b.offset })
	return time.Duration(median(known) + c.Raw(t) - t.UnixNano()), len(known) > 0
}

// voices is what each place says, of those that were heard of.
func voices(heard []*exchanged, says func(*exchanged) int64) (out []int64) {
	slices.SortStableFunc(heard, func(a, b *exchanged) int { return cmp.Compare(a.place, b.place) })
	for len(heard) > 0 {
		n := 1
		for n < len(heard) && heard[n].place == heard[0].place {
			n++
		}
		place := make([]int64, n)
		for i, b := range heard[:n] {
			place[i] = says(b)
		}
		out, heard = append(out, median(place)), heard[n:]
	}
	return out
}

// target is where the correction should be. An other has no objection to where
// it is while that is within what may come of a lopsided path.
func (c *Clock) target(now, ahead int64) int64 {
	known := voices(c.answering(now), func(b *exchanged) int64 {
		slack := b.trip / lopsided
		return min(max(ahead, b.offset-slack), b.offset+slack)
	})
	if len(known) == 0 {
		return ahead
	}
	if c.counted {
		known = append(known, 0)
	}
	return median(known)
}

// median sorts xs; of none it is 0. Of an even number the two in the middle may
// be seconds apart: then one is wrong, and our own clock is asked which, for it
// is near the other.
func median(xs []int64) int64 {
	n := len(xs)
	if n == 0 {
		return 0
	}
	slices.Sort(xs)
	low, high := xs[(n-1)/2], xs[n/2]
	switch {
	case distance(low, high) < stepFrom:
		return low + (high-low)/2
	case distance(low, 0) < distance(high, 0):
		return low
	}
	return high
}

func distance(a, b int64) int64 { return max(a, b) - min(a, b) }
