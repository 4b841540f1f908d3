// Package latency counts latencies in little memory, for benchmarks.
package latency

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// steps is how many buckets there are from a time to twice as long: quantiles are
	// told to within 1/steps.
	steps = 32
	// octaves reach from a microsecond to more than an hour.
	octaves = 28
)

// Histogram counts latencies in buckets that grow with them, whatever number comes. Many
// may add to it at once. The zero value is empty.
type Histogram struct {
	buckets [octaves * steps]atomic.Uint64
	longest atomic.Int64 // nanoseconds
}

// Add counts one.
func (h *Histogram) Add(d time.Duration) {
	h.buckets[bucketOf(d)].Add(1)
	for {
		longest := h.longest.Load()
		if int64(d) <= longest || h.longest.CompareAndSwap(longest, int64(d)) {
			return
		}
	}
}

// bucketOf is where a latency is counted: the first 2 × steps are one for each
// microsecond, then each octave has as many steps.
func bucketOf(d time.Duration) int {
	v := uint64(max(0, d.Microseconds()))
	if v < 2*steps {
		return int(v)
	}
	octave := bits.Len64(v) - bits.Len(steps)
	return min(octave*steps+int(v>>octave), octaves*steps-1)
}

// upTo is the end of a bucket.
func upTo(bucket int) time.Duration {
	if bucket < 2*steps {
		return time.Duration(bucket+1) * time.Microsecond
	}
	octave := bucket/steps - 1
	return time.Duration((bucket-octave*steps+1)<<octave) * time.Microsecond
}

// Quantile is a latency that a part q of all do not exceed; 0 where there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	var total uint64
	for i := range h.buckets {
		total += h.buckets[i].Load()
	}
	rank, seen := uint64(math.Ceil(q*float64(total))), uint64(0)
	for i := range h.buckets {
		if seen += h.buckets[i].Load(); seen > 0 && seen >= rank {
			return min(upTo(i), h.Max())
		}
	}
	return 0
}

// Max is the longest of all.
func (h *Histogram) Max() time.Duration { return time.Duration(h.longest.Load()) }

// Merge adds what another has.
func (h *Histogram) Merge(other *Histogram) {
	for i := range h.buckets {
		h.buckets[i].Add(other.buckets[i].Load())
	}
	h.longest.Store(max(h.longest.Load(), other.longest.Load()))
}
