package rlqs

import (
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// kind is what a data plane was last told to do with a bucket.
type kind uint8

const (
	kindNone   kind = iota // nothing yet
	kindTokens             // admit so many
	kindDeny               // admit none: there is no room
	kindCutOff             // admit none: this edge is cut off from the limit, which is closed then
	kindAllow              // admit all: no rule applies
	kindAbandon
	kinds
)

var kindNames = [kinds]string{"none", "tokens", "deny", "cut_off", "allow", "abandon"}

// denies says that nothing is to be admitted.
func (k kind) denies() bool { return k == kindDeny || k == kindCutOff }

// refillAfter is how long a bucket of tokens takes to get one more: longer than any
// assignment lives, so that all that a data plane can admit by it is what it starts with.
const refillAfter = 24 * time.Hour

// action tells a data plane what to do with a bucket.
type action struct {
	sub    *subscription
	kind   kind
	tokens uint64
	serial uint32 // of the subscription's assignments
	ttl    time.Duration
}

// message is the action as the protocol has it.
//
// A data plane goes on with the bucket that it has where a strategy is the same as the one
// before, so each bucket of tokens differs from the last one in how long it takes to get
// one more: by a whole second, as data planes may keep no less, and by nanoseconds, as Envoy
// looks at these alone when it asks whether two are the same.
func (a *action) message() *quotav3.RateLimitQuotaResponse_BucketAction {
	out := &quotav3.RateLimitQuotaResponse_BucketAction{BucketId: a.sub.bucket.id}
	if a.kind == kindAbandon {
		out.BucketAction = &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction_{
			AbandonAction: &quotav3.RateLimitQuotaResponse_BucketAction_AbandonAction{},
		}
		return out
	}
	strategy := &typev3.RateLimitStrategy{}
	switch a.kind {
	case kindTokens:
		strategy.Strategy = &typev3.RateLimitStrategy_TokenBucket{TokenBucket: &typev3.TokenBucket{
			MaxTokens: uint32(a.tokens), TokensPerFill: wrapperspb.UInt32(1),
			FillInterval: durationpb.New(refillAfter + time.Duration(a.serial%3600)*time.Second + time.Duration(a.serial)%time.Second),
		}}
	case kindDeny, kindCutOff:
		strategy.Strategy = &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_DENY_ALL}
	case kindAllow:
		strategy.Strategy = &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_ALLOW_ALL}
	}
	out.BucketAction = &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{
		QuotaAssignmentAction: &quotav3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
			AssignmentTimeToLive: durationpb.New(a.ttl), RateLimitStrategy: strategy,
		},
	}
	return out
}
