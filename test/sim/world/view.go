package world

import (
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/sync"
)

// view is an edge's View on virtual time. Unlike the daemon's, which forgets
// at random under pressure, it keeps everything until it expires, so that a
// World repeats itself.
type view struct {
	now    func() time.Time
	totals map[deltasync.Key]viewed
	sweep  int // size at which expired totals are dropped
}

type viewed struct {
	totals  edge.Totals
	expires time.Time
}

var _ edge.View = (*view)(nil)

const smallestSweep = 1024

func newView(now func() time.Time) *view {
	return &view{now: now, totals: map[deltasync.Key]viewed{}, sweep: smallestSweep}
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

// Close implements edge.View.
func (v *view) Close() {}
