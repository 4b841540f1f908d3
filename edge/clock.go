package edge

import "time"

// offsets estimates how far the aggregator's clock is ahead of ours from the
// four timestamps of each exchange (Mills, RFC 5905, §8): of the last 16, the
// one with the shortest round trip tells most.
type offsets struct {
	samples [16]sample
	next    int
}

type sample struct {
	offset, trip time.Duration
	set          bool
}

func (o *offsets) add(sent, received, replied, now int64) {
	if sent == 0 || received == 0 || replied == 0 {
		return
	}
	s := sample{set: true, trip: time.Duration((now - sent) - (replied - received))}
	s.offset = time.Duration(((received - sent) + (replied - now)) / 2)
	if s.trip < 0 {
		return // a clock was set between the stamps
	}
	o.samples[o.next] = s
	o.next = (o.next + 1) % len(o.samples)
}

func (o *offsets) best() (offset, trip time.Duration, ok bool) {
	for _, s := range o.samples {
		if s.set && (!ok || s.trip < trip) {
			offset, trip, ok = s.offset, s.trip, true
		}
	}
	return offset, trip, ok
}
