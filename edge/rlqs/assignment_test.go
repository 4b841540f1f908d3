package rlqs

import (
	"testing"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
)

// Assignments that follow one another are different ones to Envoy, which compares how many
// tokens there are, how many come, and the nanoseconds of their interval without its seconds
// (protoTokenBucketsEq of its global_client_impl.cc); and to those that keep whole seconds.
func TestEnvoyTakesANewAssignmentForNew(t *testing.T) {
	sub := &subscription{bucket: &bucket{id: &quotav3.BucketId{Bucket: user}}}
	for serial := uint32(1); serial < 5000; serial++ {
		one, other := action{sub: sub, kind: kindTokens, tokens: 5, serial: serial}, action{sub: sub, kind: kindTokens, tokens: 5, serial: serial + 1}
		a := one.message().GetQuotaAssignmentAction().RateLimitStrategy.GetTokenBucket().FillInterval
		b := other.message().GetQuotaAssignmentAction().RateLimitStrategy.GetTokenBucket().FillInterval
		if a.Nanos == b.Nanos || a.Seconds == b.Seconds || a.AsDuration() < refillAfter {
			t.Fatalf("assignments %d and the next are of %v and %v", serial, a, b)
		}
	}
}
