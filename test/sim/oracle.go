package sim

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
type Oracle struct {
	mu    sync.Mutex // guards what follows
	keys  map[deltasync.Key]*truth
	worst float64
}

// truth is the log of one counter.
type truth struct {
	rate    *limit.Rate
	slices  crdt.Vector // every admission, by slice
	log     []admission // of the last window, ascending
	sum     uint64      // cost in log
	worst   float64
	touched int64
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
	t := now.UnixNano()
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.keys[key]
	if k == nil {
		k = &truth{}
		o.keys[key] = k
	}
	k.rate, k.touched = rate, max(k.touched, t)
	k.slices.Add(crdt.Cell{Slice: rate.SliceAt(t), Charges: cost})
	k.slices.Retire(rate.Reach(k.touched))
	i, _ := slices.BinarySearchFunc(k.log, t+1, func(a admission, t int64) int { return cmp.Compare(a.at, t) })
	k.log = slices.Insert(k.log, i, admission{t, cost})
	k.sum += cost
	k.trim(k.touched)
	if over := float64(k.sum)/float64(max(1, rate.Limit)) - 1; over > k.worst {
		k.worst = over
		o.worst = max(o.worst, over)
	}
}

// trim drops what has left the window: for a fixed window all before its
// start, for the others all that is a window old.
func (k *truth) trim(now int64) {
	start := now - int64(k.rate.Window) + 1
	if k.rate.Algorithm == limit.FixedWindow {
		start = k.rate.StartOf(k.rate.SliceAt(now))
	}
	n := 0
	for n < len(k.log) && k.log[n].at < start {
		k.sum -= k.log[n].cost
		n++
	}
	k.log = slices.Delete(k.log, 0, n)
}

// Worst is the largest over-admission in any window of any key so far, as a
// part of its limit; 0 where no limit was exceeded.
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
	Over   float64 // Window above the limit, as a part of it; 0 where it is not
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
			delete(o.keys, key)
			continue
		}
		k.trim(t)
		tr := Truth{Key: key, Rate: k.rate, Window: k.sum}
		tr.Used = k.rate.Rounded(k.rate.Used(k.slices.Cells(nil), limit.Carry{}, t))
		tr.Over = max(0, float64(k.sum)/float64(max(1, k.rate.Limit))-1)
		out = append(out, tr)
	}
	part := func(t Truth) float64 { return float64(t.Used) / float64(max(1, t.Rate.Limit)) }
	slices.SortFunc(out, func(a, b Truth) int {
		return cmp.Or(cmp.Compare(part(b), part(a)), cmp.Compare(a.Key, b.Key))
	})
	return out[:min(n, len(out))]
}
