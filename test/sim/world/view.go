package world

import (
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/sync"
)

// view is an edge's View on virtual time. The daemon's forgets at random under
// pressure; this one by the World's seed, so that a World repeats itself, and
// without one it keeps everything until it expires.
type view struct {
	now     func() time.Time
	totals  map[deltasync.Key]viewed
	sweep   int // size at which expired totals are dropped
	rnd     *rand.Rand
	forgets float64 // the share of what it is given that it does not keep
	forgot  map[deltasync.Key]bool
}

type viewed struct {
	totals  edge.Totals
	expires time.Time
}

var _ edge.View = (*view)(nil)

const smallestSweep = 1024

func newView(now func() time.Time, rnd *rand.Rand, forgets float64) *view {
	return &view{now: now, totals: map[deltasync.Key]viewed{}, sweep: smallestSweep, rnd: rnd, forgets: forgets, forgot: map[deltasync.Key]bool{}}
}

// Get implements edge.View.
func (v *view) Get(key deltasync.Key) edge.Totals {
	if t, ok := v.totals[key]; ok && v.now().Before(t.expires) {
		return t.totals
	}
	return edge.Totals{}
}

// Set implements edge.View.
func (v *view) Set(key deltasync.Key, totals edge.Totals, ttl time.Duration) {
	now := v.now()
	if v.forgets > 0 && v.rnd.Float64() < v.forgets {
		delete(v.totals, key)
		v.forgot[key] = true
		return
	}
	delete(v.forgot, key)
	v.totals[key] = viewed{totals, now.Add(ttl)}
	if len(v.totals) < v.sweep {
		return
	}
	for k, t := range v.totals {
		if !now.Before(t.expires) {
			delete(v.totals, k)
		}
	}
	v.sweep = max(smallestSweep, 2*len(v.totals))
}

// Forgot says that an edge's view forgot what it was given last of a key.
func (s *Site) Forgot(key deltasync.Key) bool { return s.view.forgot[key] }

// Close implements edge.View.
func (v *view) Close() {}
