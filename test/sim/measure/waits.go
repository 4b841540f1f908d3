package measure

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// Requests that wait for rights of a strict limit: what Node.CheckWait does with
// goroutines, on virtual time. Each is decided once more when grants of its counter come,
// and at last when its time is over.

// waiting is a request at an edge.
type waiting struct {
	arrival
	user  *user
	edge  string
	node  *edge.Node // that life of it
	key   deltasync.Key
	until time.Duration // since the start
}

// waits are the requests that wait, in the order of when their time is over: that is
// the same for all, and so the order in which they came.
type waits struct {
	of     []waiting
	lasted []time.Duration // of those that passed
}

// due is when the time of the first is over.
func (w *waits) due() (at time.Duration, ok bool) {
	if len(w.of) == 0 {
		return 0, false
	}
	return w.of[0].until, true
}

// await has a request wait that was told d.
func (r *run) await(w waiting, d limit.Decision) {
	req := w.node.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", w.user.name)
	for _, b := range w.node.Inspect(r.w.NowAt(w.edge), req) {
		if b.Rate == d.Rate {
			w.key = b.Key
		}
	}
	w.until = w.after + d.Basis.Await
	r.waits.of = append(r.waits.of, w)
}

// granted decides the requests once more that wait at an edge for what came.
func (r *run) granted(site *world.Site, payload []byte) {
	if len(r.waits.of) == 0 {
		return
	}
	var g deltasync.Grants
	if err := g.UnmarshalBinary(payload); err != nil {
		panic(err) // the edge has read it
	}
	at := r.w.Now().Sub(start)
	r.waits.of = slices.DeleteFunc(r.waits.of, func(w waiting) bool {
		if w.edge != site.Name || !slices.ContainsFunc(g.Grants, func(g deltasync.Grant) bool { return g.Key == w.key }) {
			return false
		}
		return r.decideAnew(&w, at, true)
	})
}

// over ends the wait of those whose time it is.
func (r *run) over(at time.Duration) {
	for len(r.waits.of) > 0 && r.waits.of[0].until <= at {
		w := r.waits.of[0]
		r.waits.of = r.waits.of[1:]
		r.decideAnew(&w, at, false)
	}
}

// decideAnew decides a request that waits, and says whether it waits no longer. Who waits
// at an edge that dies is denied.
func (r *run) decideAnew(w *waiting, at time.Duration, awaits bool) bool {
	var d limit.Decision
	if r.w.Site(w.edge).There() && r.w.Node(w.edge) == w.node {
		d, _ = r.check(w, awaits)
	}
	if awaits && !d.Allowed && d.Basis.Await > 0 {
		return false
	}
	if d.Allowed {
		r.waits.lasted = append(r.waits.lasted, at-w.after)
	}
	r.decided(w, at, d)
	return true
}

// figures are how many of all requests waited and passed, and for how long.
func (w *waits) figures(requests int) (part float64, median, worst time.Duration) {
	if len(w.lasted) == 0 {
		return 0, 0, 0
	}
	slices.SortFunc(w.lasted, cmp.Compare)
	n := len(w.lasted)
	return float64(n) / float64(requests), w.lasted[n/2], w.lasted[n-1]
}
