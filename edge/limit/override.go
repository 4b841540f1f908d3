package limit

import (
	"sync"
	"unsafe"
)

// override is another limit of a rate for one request.
type override struct {
	policy string
	limit  uint64
}

// Override has a rate of the given policy ("api-per-user.minute") decide this
// request by another limit. What was counted so far is judged by it, and what
// it admits is counted as ever. Margins, reserves and the refill of a bucket
// change in proportion. What is more than the algorithm can count (MaxLog of a log) is
// cut to that, and the decision's Limit says so. Whoever may set it may get past any limit: surfaces
// take it from trusted callers alone. A policy that no rule has changes nothing.
func (req *Request) Override(policy string, limit uint64) {
	req.overrides = append(req.overrides, override{policy, min(limit, maxLimit)})
}

// Overrides says that the request overrides some limit.
func (req *Request) Overrides() bool { return len(req.overrides) > 0 }

// RateFor is the rate as this request overrides it, else the rate itself.
func (req *Request) RateFor(r *Rate) *Rate {
	for i := range req.overrides {
		if o := &req.overrides[i]; o.policy == r.Policy && o.limit != r.Limit && !r.PerRequest {
			return r.withLimit(o.limit)
		}
	}
	return r
}

// limits are the variants of a rate that requests asked for, by limit, and those of keys
// that were charged under rules before, by tenant. Callers name a few as a rule; beyond that
// variants are made for the request alone.
type limits struct {
	mu      sync.RWMutex // guards what follows
	byLimit map[uint64]*Rate
	byRatio map[ratio]*Rate
}

const maxLimits = 256

func (r *Rate) withLimit(limit uint64) *Rate {
	if r.limits == nil {
		return r.scaledTo(limit).forOne()
	}
	return variant(r.limits, &r.limits.byLimit, limit, func() *Rate { return r.scaledTo(limit) })
}

// multiplied is times, made once.
func (r *Rate) multiplied(by ratio) *Rate {
	if r.limits == nil {
		return r.times(by)
	}
	return variant(r.limits, &r.limits.byRatio, by, func() *Rate { return r.times(by) })
}

// variant is one of those that are kept, or is made.
func variant[K comparable](l *limits, kept *map[K]*Rate, key K, made func() *Rate) *Rate {
	l.mu.RLock()
	v := (*kept)[key]
	l.mu.RUnlock()
	if v != nil {
		return v
	}
	v = made()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(*kept) >= maxLimits {
		return v.forOne()
	}
	if *kept == nil {
		*kept = map[K]*Rate{}
	}
	(*kept)[key] = v
	return v
}

// forOne marks a variant that was made for one request.
func (r *Rate) forOne() *Rate {
	for v := r; v != nil; v = v.Open {
		v.alone = true
	}
	return r
}

// Bytes is what a rate takes that nobody but the counter which a request named it for
// keeps; others stand with their rules, and take nothing.
func (r *Rate) Bytes() (total int) {
	for v := r; v != nil && v.alone; v = v.Open {
		total += int(unsafe.Sizeof(*v)) + 8*cap(v.withheld)
	}
	return total
}

// scaledTo is the rate with another limit and all that hangs on it.
func (r *Rate) scaledTo(limit uint64) *Rate {
	limit = min(limit, r.most())
	scaled := r.times(ratioOf(limit, max(1, r.Limit)))
	for v := scaled; v != nil; v = v.Open {
		if v.Limit != limit { // no multiple of 0 is
			v.Limit = limit
			v.apportion()
		}
		v.limits, v.by, v.asked = nil, r.by, true
	}
	return scaled
}

// As is the rate of a rule as other is of its own: multiplied as for the same
// tenant, and with the limit that the same request asks for.
func (r *Rate) As(other *Rate) *Rate {
	if other.by != (ratio{}) {
		r = r.multiplied(other.by)
	}
	if other.asked {
		r = r.withLimit(other.Limit)
	}
	return r
}
