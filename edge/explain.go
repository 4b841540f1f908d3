package edge

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Explain says how a request stands with every rule of its namespace, and why. It
// charges nothing; like any peek it has the region asked for what others counted of the
// request's keys, so that the next answer knows more.
func (n *Node) Explain(now time.Time, req *limit.Request) limit.Explanation {
	req.At(n.clock.Present(now))
	out := req.Explain()
	before := n.Inspect(now, req)
	peek, details, bounds := req.Peek, req.Details, req.Bounds
	req.Peek, req.Details, req.Bounds = true, true, true
	out.Decision = n.Check(now, req)
	req.Peek, req.Details, req.Bounds = peek, details, bounds
	t := n.clock.Present(now)
	names := n.names(req, out.Rules)
	for j, name := range names {
		out.Rules[j].Exceptions = name.except.holding(t)
	}
	for i := range req.States {
		state := &req.States[i]
		key := deltasync.Key(state.Counter)
		standing := limit.Standing{State: *state, Heard: -1}
		if k := slices.IndexFunc(before, func(b Belief) bool { return b.Key == key }); k >= 0 {
			standing.Seen = before[k].Live
			n.stand(&standing, before[k], t)
		}
		for j, name := range names {
			if name.hash != 0 && name.hash.Key(state.Rate.Generation) == key {
				out.Rules[j].Rates = append(out.Rules[j].Rates, standing)
			}
		}
	}
	return out
}

// names are those of the findings' counters; zero of what does not apply.
func (n *Node) names(req *limit.Request, found []limit.Finding) []named {
	names := make([]named, len(found))
	of := func(rule *limit.Rule) {
		name, ok := n.hash(req, rule)
		for i := range found {
			if f := &found[i]; ok && f.Of(req, rule) {
				names[i] = name
			}
		}
	}
	req.Readings(func(rule *limit.Rule) {
		of(rule)
		if rule.Candidate != nil {
			of(rule.Candidate.For(req))
		}
	})
	return names
}

// stand fills in what the record of a counter says, which was just asked.
func (n *Node) stand(out *limit.Standing, b Belief, now int64) {
	s := n.shard(b.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(b.Key)
	if r == nil {
		return // it made room for another meanwhile
	}
	rate := out.Rate
	level := limit.Level{Whole: r.fresh}
	if r.sparse() {
		out.Local = r.fresh
	} else {
		level = s.standing(r, rate, now)
		local, merged := r.counted(rate)
		out.Local, out.Merged = local+r.fresh, merged
	}
	if r.heard != 0 {
		out.Heard = max(0, now-r.heard)
	}
	out.Bound = s.bound(r, rate, 1, now)
	switch {
	case escrows(rate):
		if !r.sparse() && r.block.share != nil && r.block.share.rights != nil {
			out.Held = r.block.share.rights.held(s.cluster.escrow.boot())
		}
	case s.shares(rate):
		share := s.cluster.unknown(rate, r.fresh, now)
		if !r.sparse() && r.block.share != nil {
			share = r.block.share.parts(s.cluster, rate, rate.Rounded(level), s.spentHere(r, now), now)
		}
		out.Own, out.Granted = share, rate.Grant(level, &share)
	}
}
