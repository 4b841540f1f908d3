package world

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Oracle is an exact log of what was admitted, by whichever edge: what the
// limiter is measured against. It sees every admission at once, which no edge
// can. It is safe for concurrent use.
//
// Memory is bounded: beyond maxTruths counters or maxAdmissions admissions in
// their windows it logs no further ones, and Missed counts them: then what it
// says is a lower bound.
type Oracle struct {
	mu     sync.Mutex // guards what follows
	keys   map[deltasync.Key]*truth
	held   int // admissions in all logs
	missed uint64
	worst  float64
}

const (
	maxTruths     = 1 << 18
	maxAdmissions = 1 << 22
)

// truth is the log of one counter.
type truth struct {
	rate    *limit.Rate
	slices  crdt.Vector // every admission, by slice
	log     []admission // of the last window, ascending
	sum     uint64      // cost in log
	touched int64       // latest admission
}

type admission struct {
	at   int64
	cost uint64
}

// NewOracle makes an empty log.
func NewOracle() *Oracle { return &Oracle{keys: map[deltasync.Key]*truth{}} }

// Admit logs an admission under one rate. Times may come a little out of
// order.
func (o *Oracle) Admit(now time.Time, rate *limit.Rate, key deltasync.Key, cost uint64) {
	if cost == 0 {
		return // nothing is used
	}
	t := now.UnixNano()
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.keys[key]
	if o.held >= maxAdmissions || k == nil && len(o.keys) >= maxTruths {
		o.missed++
		return
	}
	if k == nil {
		k = &truth{}
		o.keys[key] = k
	}
	k.rate, k.touched = rate, max(k.touched, t)
	k.slices.Add(crdt.Cell{Slice: rate.SliceAt(t), Charges: cost})
	k.slices.Retire(rate.Reach(k.touched))
	i, _ := slices.BinarySearchFunc(k.log, t+1, func(a admission, t int64) int { return cmp.Compare(a.at, t) })
	k.log = slices.Insert(k.log, i, admission{t, cost})
	k.sum = crdt.SatAdd(k.sum, cost)
	o.held += 1 - k.trim(k.touched)
	o.worst = max(o.worst, k.over())
}

// over is what the last window has above what the rate admits at the most, its
// soft margin included, as a part of the limit.
func (k *truth) over() float64 {
	return float64(crdt.SatSub(k.sum, k.rate.Ceiling)) / float64(max(1, k.rate.Limit))
}

// Missed is how many admissions were not logged, for want of room.
func (o *Oracle) Missed() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.missed
}

// trim drops what has left the window: for a fixed window all before its
// start, for the others all that is a window old. It returns how many
// admissions these were.
func (k *truth) trim(now int64) (dropped int) {
	start := now - int64(k.rate.Window) + 1
	if k.rate.Algorithm == limit.FixedWindow {
		start = k.rate.StartOf(k.rate.SliceAt(now))
	}
	n := 0
	for n < len(k.log) && k.log[n].at < start {
		k.sum = crdt.SatSub(k.sum, k.log[n].cost)
		n++
	}
	k.log = slices.Delete(k.log, 0, n)
	return n
}

// Worst is the largest over-admission in any window of any key so far, as a
// part of its limit, soft margins not counted; 0 where no limit was exceeded.
func (o *Oracle) Worst() float64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.worst
}

// Truth is what is used of one counter.
type Truth struct {
	Key    deltasync.Key
	Rate   *limit.Rate
	Used   uint64  // as the rate's own algorithm counts, all admissions known
	Window uint64  // cost admitted in the last window, exactly
	Over   float64 // Window above the limit and its margin, as a part of the limit
}

// Truths are the counters admitted under within the last window, by falling
// part of the limit used, at most n.
func (o *Oracle) Truths(now time.Time, n int) []Truth {
	t := now.UnixNano()
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []Truth
	for key, k := range o.keys {
		if t-k.touched > int64(k.rate.Window+k.rate.Width) {
			o.held -= len(k.log)
			delete(o.keys, key)
			continue
		}
		o.held -= k.trim(t)
		tr := Truth{Key: key, Rate: k.rate, Window: k.sum}
		tr.Used = k.rate.Rounded(k.rate.Used(k.slices.Cells(nil), limit.Carry{}, t))
		tr.Over = k.over()
		out = append(out, tr)
	}
	part := func(t Truth) float64 { return float64(t.Used) / float64(max(1, t.Rate.Limit)) }
	slices.SortFunc(out, func(a, b Truth) int {
		return cmp.Or(cmp.Compare(part(b), part(a)), cmp.Compare(a.Key, b.Key))
	})
	return out[:min(n, len(out))]
}
