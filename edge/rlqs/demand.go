package rlqs

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

const (
	// reckonAfter is how much time usage is gathered over before it says a rate.
	reckonAfter = 200 * time.Millisecond
	// fade is the part of a demand that is believed on when less is reported.
	fade = 0.5
	// paceFade is the part of a pace that is believed on when a report comes sooner.
	paceFade = 0.7
	// shortestAhead is the least time that tokens are granted for.
	shortestAhead = 500 * time.Millisecond
	// headroom is how much more is granted than is expected to be spent.
	headroom = 1.25
)

// demand is how much a data plane wants of a bucket: what it admitted and what it denied.
// It goes by this edge's clock: a data plane's time_elapsed is its own word.
type demand struct {
	rate    float64       // requests per second
	pace    time.Duration // between its reports, where it is not asked for them
	since   time.Time     // of what is gathered
	usage   uint64        // gathered
	heard   time.Time     // of the last report
	told    time.Duration // that its last report said it is of; 0: it was the first, or did not say
	quiet   time.Duration // that its reports told of no request, by the data plane's clock
	reports int
}

// report takes in what was admitted and denied in the time before, as the data plane has
// it; asked says that there was an assignment since, which makes it report at once.
func (d *demand) report(now time.Time, usage uint64, elapsed time.Duration, asked bool) {
	if d.reports++; d.reports == 1 {
		d.since, d.heard = now, now
		return // of what time it is, is not known
	}
	gap := now.Sub(d.heard)
	if !asked {
		d.pace = time.Duration(float64(d.pace) * paceFade)
	}
	d.pace = max(gap, d.pace)
	d.heard = now
	d.quiet += elapsed
	alone := d.quiet // without another request, where there was one
	if usage > 0 {
		d.quiet = 0
	}
	d.usage = crdt.SatAdd(d.usage, usage)
	if over := now.Sub(d.since); over >= reckonAfter {
		if d.usage == 1 { // it says how often they come by how long none had come, and they come in pairs, too
			over = max(over, alone/2)
		}
		rate := float64(d.usage) / over.Seconds()
		if rate < d.rate {
			rate = fade*d.rate + (1-fade)*rate
		}
		d.rate, d.usage, d.since = rate, 0, now
	}
}

// asks is what was reported and is not yet told as asked for: over as long as it was
// reported late, as reports come in lumps, and shares go by how evenly requests come.
type asks struct {
	left, part uint64
	over       time.Duration
}

// add takes in requests that came in the time before.
func (a *asks) add(requests uint64, over time.Duration) {
	a.left = crdt.SatAdd(a.left, requests)
	a.over = max(over, a.over*4/5)
	a.part = a.left/uint64(max(1, a.over/tickEvery)) + 1
}

// take is what of it is to be told with a tick.
func (a *asks) take() uint64 {
	part := min(a.left, a.part)
	a.left -= part
	return part
}

// want is how many tokens it wants until it has reported twice.
func (d *demand) want(ttl time.Duration) uint64 { return d.until(ttl, 2) }

// until is how many tokens it wants until it has reported so often, at least one.
func (d *demand) until(ttl time.Duration, reports int) uint64 {
	ahead := min(max(time.Duration(reports)*d.pace, shortestAhead), ttl)
	return max(1, uint64(min(math.Ceil(d.rate*ahead.Seconds()*headroom), maxTokens)))
}
