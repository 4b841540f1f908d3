package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// sweptKeys are so many that each shard has several stretches to sweep.
const sweptKeys = 3 * shards * sweepStretch

// tickAll calls Tick until it has been round the ledger.
func tickAll(n *Node, now time.Time) {
	for range 10 {
		n.Tick(now)
	}
}

// flushAll flushes until nothing is left, answers every frame, and returns what
// was told of each key.
func flushAll(t *testing.T, n *Node, now time.Time) map[deltasync.Key]deltasync.Delta {
	t.Helper()
	told := map[deltasync.Key]deltasync.Delta{}
	for {
		out := n.Flush(now)
		if len(out) == 0 {
			return told
		}
		for _, frame := range out {
			var up deltasync.Up
			if err := up.UnmarshalBinary(frame.Payload); err != nil {
				t.Fatalf("frame: %v", err)
			}
			deltas := 0
			for _, sec := range up.Sections {
				for _, d := range sec.Deltas {
					told[d.Key] = d
				}
				deltas += len(sec.Deltas)
			}
			answer(t, n, now, &up, make([]deltasync.Totals, deltas)...)
		}
		now = now.Add(time.Millisecond)
	}
}

// nodeOfMany is a node with sweptKeys keys, all of them told and acknowledged.
func nodeOfMany(t *testing.T, per time.Duration) *Node {
	t.Helper()
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: per}))
	for i := range sweptKeys {
		check(n, start, fmt.Sprint("u", i))
	}
	for i := range n.shards {
		if got := len(n.shards[i].table); got < 2*sweepStretch {
			t.Fatalf("shard %d has %d places, want several stretches of %d", i, got, sweepStretch)
		}
	}
	if told := flushAll(t, n, start); len(told) != sweptKeys {
		t.Fatalf("%d keys are told, want %d", len(told), sweptKeys)
	}
	return n
}

// Of a shard that is swept in stretches every place is looked at: all idle keys
// go.
func TestSweepDropsIdleKeysOfAllStretches(t *testing.T) {
	n := nodeOfMany(t, time.Second)
	tickAll(n, start.Add(time.Minute))
	if got := n.Keys(); got != 0 {
		t.Fatalf("%d of %d keys are left a minute after their window, want none", got, sweptKeys)
	}
}

// And all that was told long ago is told again.
func TestSweepRefreshesAllStretches(t *testing.T) {
	n := nodeOfMany(t, time.Hour)
	due := start.Add(11 * time.Minute) // a sixth of the window and some
	tickAll(n, due)
	told := flushAll(t, n, due)
	for key, d := range told {
		if d.Flags&deltasync.FlagRefresh == 0 || len(d.Cells) != 1 || d.Cells[0].Charges != 1 {
			t.Fatalf("key %d is told again as %+v, want a refresh with its one charge", key, d)
		}
	}
	if len(told) != sweptKeys {
		t.Fatalf("%d of %d keys are told again, want all", len(told), sweptKeys)
	}
}
