package httpapi

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A denial says what is used up: no more than is, and the share where it is that.
func TestDenialsSayWhatIsUsedUp(t *testing.T) {
	bucket := limit.Rate{Algorithm: limit.TokenBucket, Limit: 9, Drain: limit.Drain{Refill: 1, Per: time.Second}}
	leaky := bucket
	leaky.Algorithm = limit.LeakyBucket
	for _, c := range []struct {
		rate  limit.Rate
		left  uint64
		short bool
		want  string
	}{
		{limit.Rate{Window: time.Minute}, 0, false, "9 per 1m are used up"},
		{limit.Rate{Window: time.Minute}, 2, false, "too few of 9 per 1m are left"},
		{limit.Rate{Lease: time.Minute}, 0, false, "9 at a time are under way"},
		{limit.Rate{Lease: time.Minute}, 2, false, "too few of 9 at a time are left"},
		{limit.Rate{Window: time.Minute}, 2, true, "this edge's share of the limit is used up"},
		{limit.Rate{Window: time.Minute}, 0, true, "this edge's share of the limit is used up"},
		{bucket, 0, false, "a bucket of 9, refilled by 1 per 1s, is empty"},
		{bucket, 2, false, "a bucket of 9, refilled by 1 per 1s, has too little left"},
		{leaky, 2, false, "a bucket of 9, drained by 1 per 1s, has too little room"},
	} {
		d := limit.Decision{Rate: &c.rate, Limit: 9, Remaining: c.left, Basis: limit.Basis{Short: c.short}}
		if got := string(appendUsed(nil, &d)); got != c.want {
			t.Errorf("%d left, short %v: %q, want %q", c.left, c.short, got, c.want)
		}
	}
	d := limit.Decision{Rate: &limit.Rate{Window: time.Minute}, Limit: 9, Basis: limit.Basis{Penalty: true}}
	if got, want := string(appendUsed(nil, &d)), "a penalty is on, for exceeding the limit"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
