package dataplane

import (
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// limiter enforces a strategy.
type limiter interface{ admit(now time.Time) bool }

// blanket admits all or none.
type blanket bool

func (b blanket) admit(time.Time) bool { return bool(b) }

// tokens is a bucket that is full at first.
type tokens struct {
	have, most, fills uint64
	every             time.Duration
	filled            time.Time
}

func (t *tokens) fill(now time.Time) {
	if n := now.Sub(t.filled) / t.every; n > 0 {
		t.have = min(t.most, t.have+t.fills*uint64(n))
		t.filled = t.filled.Add(n * t.every)
	}
}

func (t *tokens) admit(now time.Time) bool {
	t.fill(now)
	if t.have == 0 {
		return false
	}
	t.have--
	return true
}

// limiterOf makes one of a strategy; none allows all.
func limiterOf(s *typev3.RateLimitStrategy, now time.Time) limiter {
	switch {
	case s.GetTokenBucket() != nil:
		b := s.GetTokenBucket()
		fills := uint64(1)
		if f := b.TokensPerFill; f != nil {
			fills = uint64(f.Value)
		}
		return &tokens{have: uint64(b.MaxTokens), most: uint64(b.MaxTokens), fills: fills, every: max(1, b.FillInterval.AsDuration()), filled: now}
	case s.GetRequestsPerTimeUnit() != nil:
		r := s.GetRequestsPerTimeUnit()
		if r.RequestsPerTimeUnit == 0 {
			return blanket(false)
		}
		unit := map[typev3.RateLimitUnit]time.Duration{
			typev3.RateLimitUnit_MINUTE: time.Minute, typev3.RateLimitUnit_HOUR: time.Hour, typev3.RateLimitUnit_DAY: 24 * time.Hour,
		}[r.TimeUnit]
		unit = max(unit, time.Second)
		return &tokens{have: r.RequestsPerTimeUnit, most: r.RequestsPerTimeUnit, fills: r.RequestsPerTimeUnit, every: unit, filled: now}
	}
	return blanket(s.GetBlanketRule() == typev3.RateLimitStrategy_ALLOW_ALL)
}
