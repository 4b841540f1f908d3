package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// stall is how long decisions take while the edge does something else.
type stall struct {
	what      string
	decisions int
	p50, p99  time.Duration
	p999, max time.Duration
	work      string // what the other side did meanwhile
}

// stalls measures P4: one goroutine decides, and times every decision, while
// another applies reply frames of nearly 64 KB or lets idle keys retire. Each
// is measured alone, then both at once. A loop that touches nothing shows what of
// it is the machine's own noise, which is much where others use it too.
func stalls(keys, episodes int) ([]stall, error) {
	var found []stall
	for _, c := range []struct {
		what            string
		frames, retires bool
	}{
		{"a loop that touches nothing", false, false}, {"64 KB frames applied", true, false},
		{fmt.Sprintf("%d keys retired", keys), false, true}, {"both at once", true, true},
	} {
		s, err := measureStall(keys, episodes, c.frames, c.retires)
		if err != nil {
			return nil, fmt.Errorf("decisions while %s: %w", c.what, err)
		}
		s.what = c.what
		found = append(found, s)
	}
	return found, nil
}

const (
	stallWindow = 10 * time.Second
	// framePeers is the slices in an answer for each key: two bytes and more
	// each, so that this many keys fill a frame.
	framePeers = 10
	frameKeys  = 2050
	// fewest is the decisions of which a p99.9 can be told. On a busy machine
	// it may take more episodes to meet so many.
	fewest = 1000
)

func measureStall(keys, episodes int, frames, retires bool) (stall, error) {
	n, err := newNode(4*keys, []limit.RuleSpec{perUser(limit.RateSpec{Limit: 1 << 40, Per: stallWindow})})
	if err != nil {
		return stall{}, err
	}
	var (
		ns       = n.Rules().Only()
		live     = newWorkload(keys, 1<<20, 1.1)
		now      = time.Now()
		samples  = make([]time.Duration, 0, 1<<22)
		applied  int
		bytes    int
		retired  int
		busyTime time.Duration
	)
	done := 0
	for e := 0; e < episodes || len(samples) < fewest && e < 20*episodes; e++ {
		done++
		// Keys that will be idle, and keys that go on: all counts are told and
		// answered, so that nothing holds the idle ones back.
		if retires {
			for i := range keys {
				ask(n, ns, now, "", fmt.Sprintf("idle-%d-%d", e%2, i))
			}
			if _, err := settle(n, now, nobody); err != nil {
				return stall{}, err
			}
		}
		now = now.Add(2 * stallWindow)
		for _, key := range live.keys {
			ask(n, ns, now, "", key)
		}
		if _, err := settle(n, now, nobody); err != nil {
			return stall{}, err
		}
		var payloads []framed
		if frames {
			if payloads, err = framesFor(n, ns, live, now, uint64(e+1)); err != nil {
				return stall{}, err
			}
		}
		before := n.Keys()
		var active atomic.Bool
		active.Store(true)
		var beside sync.WaitGroup
		var failed error
		started := time.Now()
		// Waited for below; ends when its share of work is done.
		beside.Go(func() {
			defer active.Store(false)
			failed = disturb(n, now, payloads, retires)
		})
		samples = decideWhile(&active, n, ns, live, now, samples)
		beside.Wait()
		busyTime += time.Since(started)
		if failed != nil {
			return stall{}, failed
		}
		retired += before - n.Keys()
		for _, p := range payloads {
			applied++
			bytes += len(p.payload)
		}
	}
	if retires && retired < keys*done*9/10 {
		return stall{}, fmt.Errorf("only %d keys retired, want %d: nothing was measured", retired, keys*done)
	}
	if len(samples) < fewest {
		return stall{}, fmt.Errorf("only %d decisions fell into %v", len(samples), busyTime)
	}
	s := summary(samples)
	s.work = fmt.Sprintf("%d times in %v", done, busyTime.Round(time.Millisecond))
	if applied > 0 {
		s.work += fmt.Sprintf(", %d frames of %d B", applied, bytes/applied)
	}
	if retires {
		s.work += fmt.Sprintf(", %d keys", retired)
	}
	return s, nil
}

// framed is an answer on its way.
type framed struct {
	lane    int
	payload []byte
}

// framesFor makes answers that raise what others counted of many keys.
func framesFor(n *edge.Node, ns *limit.Namespace, live *workload, now time.Time, charges uint64) (payloads []framed, err error) {
	for part := range 2 { // as many as may be under way
		for i := range frameKeys {
			ask(n, ns, now, "", live.keys[(part*frameKeys+i)%len(live.keys)])
		}
		for _, o := range n.Flush(now) {
			payload, err := reply(o, now, others(charges*1000, framePeers))
			if err != nil {
				return nil, err
			}
			payloads = append(payloads, framed{o.Lane, payload})
		}
	}
	return payloads, nil
}

// disturb does the edge's other work: it takes in what was answered, and looks
// at every part of the ledger once. Without work it keeps its processor as busy
// for as long.
func disturb(n *edge.Node, now time.Time, payloads []framed, retires bool) error {
	if len(payloads) == 0 && !retires {
		for until := time.Now().Add(10 * time.Millisecond); time.Now().Before(until); {
		}
	}
	ticks := 0
	for i := 0; i < len(payloads) || retires && ticks < 10; i++ {
		if i < len(payloads) {
			if err := n.Receive(now, payloads[i].lane, payloads[i].payload); err != nil {
				return fmt.Errorf("take in the answer: %w", err)
			}
		}
		if retires && ticks < 10 {
			n.Tick(now)
			ticks++
		}
	}
	return nil
}

// decideWhile times decisions for as long as the other side is at work.
func decideWhile(active *atomic.Bool, n *edge.Node, ns *limit.Namespace, w *workload, now time.Time, samples []time.Duration) []time.Duration {
	for i := 0; active.Load(); i++ {
		key := w.at(i)
		started := time.Now()
		ask(n, ns, now, "", key)
		samples = append(samples, time.Since(started))
	}
	return samples
}

func summary(samples []time.Duration) stall {
	slices.Sort(samples)
	at := func(q float64) time.Duration { return samples[int(q*float64(len(samples)-1))] }
	return stall{decisions: len(samples), p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1)}
}
