package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A key that is asked for in a few slices takes one piece of memory beside its
// record: its block.
func TestFewCellsStandInTheBlock(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: 40 * time.Second}))
	now := start
	var r *record
	for range 16 { // slices
		check(n, now, "u")
		now = now.Add(time.Second)
	}
	r = n.shard(keyOf(n, "u")).find(keyOf(n, "u"))
	r.settle()
	b := r.block
	if got := b.own.Len(); got != 16 {
		t.Fatalf("%d cells, want 16", got)
	}
	if want := [16]byte{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}; b.room != want {
		t.Errorf("the block's room holds % x, want % x", b.room, want)
	}
	s := n.shard(keyOf(n, "u"))
	s.recycle(b)
	if b := s.newBlock(); b.own.Len() != 0 || b.own.Bytes() != len(b.room) {
		t.Errorf("a block that was used before has %d cells, and %d B for them", b.own.Len(), b.own.Bytes())
	}
}
