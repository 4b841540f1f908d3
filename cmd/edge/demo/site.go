package demo

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// site is an edge whose decisions are watched: whether they come from the
// replayed traffic or from the user's own calls, all pass through Check.
type site struct {
	node   *edge.Node
	ns     string // namespace of the traffic, and of calls that name none
	global *world.Oracle
	region *world.Oracle // for rates of scope region

	decisions, denied atomic.Uint64

	mu   sync.Mutex                 // guards used
	used map[deltasync.Key]struct{} // counters decided about; each sample takes them
}

var _ httpapi.Limiter = (*site)(nil)

// Rules implements httpapi.Limiter.
func (s *site) Rules() *limit.Set { return s.node.Rules() }

// Time implements httpapi.Limiter.
func (s *site) Time(now time.Time) time.Time { return s.node.Time(now) }

// Boot implements httpapi.Limiter.
func (s *site) Boot(now time.Time) time.Duration { return s.node.Boot(now) }

// Ready implements httpapi.Limiter.
func (s *site) Ready() error { return s.node.Ready() }

// Check implements httpapi.Limiter: the node decides, and what it admits is
// logged under every rate that it was charged to and that can be over-admitted
// (judged). Rates of scope edge are a matter of this edge alone, and not logged.
func (s *site) Check(now time.Time, req *limit.Request) limit.Decision {
	d := s.node.Check(now, req)
	s.log(now, req, &d)
	return d
}

// CheckOrWait implements httpapi.Limiter: it logs as Check does.
func (s *site) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	d, wait := s.node.CheckOrWait(now, req)
	if wait == nil {
		s.log(now, req, &d)
		return d, nil
	}
	return d, func(ctx context.Context) limit.Decision {
		d := wait(ctx)
		s.log(time.Now(), req, &d)
		return d
	}
}

// log logs a decision.
func (s *site) log(now time.Time, req *limit.Request, d *limit.Decision) {
	if req.Peek {
		return
	}
	s.decisions.Add(1)
	beliefs := s.node.Inspect(now, req)
	s.use(beliefs)
	if !d.Allowed {
		s.denied.Add(1)
		return
	}
	for _, b := range beliefs {
		if !judged(b.Rule, b.Rate) {
			continue
		}
		switch b.Rate.Scope {
		case limit.ScopeGlobal:
			s.global.Admit(now, b.Rate, b.Key, b.Rule.CostOf(req))
		case limit.ScopeRegion:
			s.region.Admit(now, b.Rate, b.Key, b.Rule.CostOf(req))
		}
	}
}

// judged says whether the oracle, which adds up what was admitted in a window,
// can judge a rate: not where that is not what it bounds. Shadow rules and open
// elastic margins admit more; what counts by its response, or is given back, is
// not used up by being admitted; buckets and windows from the first hit take up
// to twice their limit in the time of one.
func judged(rule *limit.Rule, rate *limit.Rate) bool {
	return rule.Mode != limit.Shadow && rule.Elastic == nil && !rule.CountsAfter() &&
		rate.Lease == 0 && !rate.Bucket() && rate.Algorithm != limit.FirstHit
}

// unjudged is the rates that others count for and of which no over-admission is told, and whether
// that is all of them.
func unjudged(set *limit.Set) (names []string, all bool) {
	all = true
	for _, rule := range set.Rules() {
		for _, rate := range rule.Rates {
			switch {
			case rate.Scope == limit.ScopeEdge, rule.Brought: // or by a request, of which there are none here
			case judged(rule, rate):
				all = false
			default:
				names = append(names, rate.Policy)
			}
		}
	}
	return names, all && len(names) > 0
}

// Refund implements httpapi.Limiter. What is given back, or charged without
// being decided about, is no matter of over-admission: the demo's traffic does
// neither.
func (s *site) Refund(now time.Time, charges []limit.Charge, cost uint64) {
	s.node.Refund(now, charges, cost)
}

// Renew implements httpapi.Limiter.
func (s *site) Renew(now time.Time, charges []limit.Charge) { s.node.Renew(now, charges) }

// Report implements httpapi.Limiter.
func (s *site) Report(now time.Time, req *limit.Request) limit.Decision {
	return s.node.Report(now, req)
}

// GiveBack implements httpapi.Limiter.
func (s *site) GiveBack(now time.Time, req *limit.Request) { s.node.GiveBack(now, req) }

// Answered implements httpapi.Limiter.
func (s *site) Answered(now time.Time, req *limit.Request) { s.node.Answered(now, req) }

// Explain implements httpapi.Limiter.
func (s *site) Explain(now time.Time, req *limit.Request) limit.Explanation {
	return s.node.Explain(now, req)
}

// namespace is the one that the traffic is decided in.
func (s *site) namespace() *limit.Namespace { return s.Rules().Namespace(s.ns) }

// use notes which counters were decided about.
func (s *site) use(beliefs []edge.Belief) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range beliefs {
		s.used[b.Key] = struct{}{}
	}
}

// takeUsed is the counters that were decided about since the last call.
func (s *site) takeUsed() map[deltasync.Key]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.used
	s.used = make(map[deltasync.Key]struct{}, len(used))
	return used
}
