package latency

import (
	"testing"
	"time"
)

func TestQuantilesAreNear(t *testing.T) {
	var h Histogram
	if q := h.Quantile(.5); q != 0 {
		t.Errorf("of nothing: %v", q)
	}
	for i := range 100_000 {
		h.Add(time.Duration(i+1) * 10 * time.Microsecond)
	}
	for _, q := range []float64{0, .0001, .01, .5, .9, .99, .999, 1} {
		want := max(10*time.Microsecond, time.Duration(q*float64(time.Second)))
		if got := h.Quantile(q); got < want || got > want+want/steps+time.Microsecond {
			t.Errorf("quantile %v = %v, want %v or a %dth more", q, got, want, steps)
		}
	}
	h.Add(365 * 24 * time.Hour) // longer than there are buckets for
	h.Add(-time.Second)         // a clock that was set
	if got := h.Max(); got != 365*24*time.Hour {
		t.Errorf("longest = %v", got)
	}
	var both Histogram
	both.Merge(&h)
	both.Merge(&h)
	if both.Quantile(.5) != h.Quantile(.5) || both.Max() != h.Max() {
		t.Errorf("merged: %v and %v, want %v and %v", both.Quantile(.5), both.Max(), h.Quantile(.5), h.Max())
	}
}

func TestBucketsMeet(t *testing.T) {
	for i := range octaves*steps - 1 {
		if end := upTo(i); bucketOf(end-time.Microsecond) != i || bucketOf(end) != i+1 {
			t.Fatalf("bucket %d ends at %v, which lies in %d, and the microsecond before in %d", i, end, bucketOf(end), bucketOf(end-time.Microsecond))
		}
	}
}
