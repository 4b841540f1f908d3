package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// weights are heap bytes per live key of an edge.
type weights struct {
	keys        int
	sparse, hot float64 // far from the limit
	near        float64 // hot, at two fifths of it: a share of what is left stands beside each
}

// weigh measures P7 on its own nodes: sparse, one count in one slice of 40;
// hot, counts of ours and of others in all 40, 940 in all, far from the limit and near it. Everything that the node holds
// is weighed, its outbox included. The number of live keys decides how full the
// tables are, so a sixteenth of a million weighs per key what a million does.
func weigh(keys int) (weights, error) {
	w := weights{keys: keys}
	for _, c := range []struct {
		slices int
		limit  uint64
		into   *float64
	}{{1, 1 << 40, &w.sparse}, {40, 1 << 40, &w.hot}, {40, 2350, &w.near}} {
		bytes, err := weighNode(keys, c.slices, c.limit)
		if err != nil {
			return w, fmt.Errorf("weigh %d keys of %d slices: %w", keys, c.slices, err)
		}
		*c.into = float64(bytes) / float64(keys)
	}
	return w, nil
}

func weighNode(keys, slices int, limitOf uint64) (int64, error) {
	names := make([]string, keys)
	for i := range names {
		names[i] = keyName(i)
	}
	before := heap()
	const width = time.Second
	n, err := newNode(keys, []limit.RuleSpec{perUser(limit.RateSpec{Limit: limitOf, Per: 40 * width})})
	if err != nil {
		return 0, err
	}
	ns := n.Rules().Only()
	now := time.Now().Truncate(time.Minute)
	if err := introduce(n, "", now.Add(-time.Hour)); err != nil {
		return 0, err
	}
	// A few keys at a time, spread over the slice, so that the outbox stays as
	// small as it is where frames leave every 100 ms.
	const group = 1000
	for s := range slices {
		totals := nobody
		if slices > 1 {
			totals = others(uint64(3+s%200), 1)
		}
		for i, name := range names {
			at := now.Add(width * time.Duration(i/group) / time.Duration(keys/group+1))
			ask(n, ns, at, "", name)
			if i%group == group-1 || i == keys-1 {
				if _, err := settle(n, at, totals); err != nil {
					return 0, err
				}
			}
		}
		now = now.Add(width)
	}
	if live := n.Keys(); live < keys || live > keys+1 { // the first that anybody asked for may be there yet
		return 0, fmt.Errorf("%d keys are live, want %d", live, keys)
	}
	bytes := heap() - before
	runtime.KeepAlive(n)
	runtime.KeepAlive(names)
	return bytes, nil
}
