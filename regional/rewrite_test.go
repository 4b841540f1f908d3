package regional_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/spillgate/spillgate/regional"
)

// refusing is a store whose next merges fail, though it answers otherwise.
type refusing struct {
	regional.Store
	merges int
}

func (s *refusing) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	if s.merges > 0 {
		s.merges--
		return nil, fmt.Errorf("%w: not now", regional.ErrStore)
	}
	return s.Store.Merge(ctx, batch)
}

// A write that failed is made good, though nobody tells of the key again.
func TestFailedWriteIsMadeGood(t *testing.T) {
	mem := newStore(&start)
	store := &refusing{Store: mem}
	r := newRegion(t, "eu", store)
	if err := r.Sync(context.Background(), start); err != nil { // a new epoch would have all written
		t.Fatal(err)
	}
	store.merges = 1
	(&edge{name: "e1"}).tell(r, 9, charge(start, 5))
	if got := stored(t, mem, 9); got != 0 {
		t.Fatalf("the store that refused holds %d", got)
	}
	if st := r.Stats(start); st.Unstored != 1 {
		t.Fatalf("%d keys unstored, want 1", st.Unstored)
	}
	if err := r.Sync(context.Background(), start); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, mem, 9); got != 5 {
		t.Fatalf("after Sync the store holds %d, want 5", got)
	}
}

// recording keeps the versions that merges named.
type recording struct {
	regional.Store
	named []uint64
}

func (s *recording) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	for i := range batch {
		s.named = append(s.named, batch[i].Version)
	}
	return s.Store.Merge(ctx, batch)
}

// last is the version that the last merge named.
func (s *recording) last(t *testing.T) uint64 {
	t.Helper()
	if len(s.named) == 0 {
		t.Fatal("nothing was merged")
	}
	return s.named[len(s.named)-1]
}

// Versions of a store that was lost mean nothing in the next: named there, one
// could hide what others have already written.
func TestNewEpochForgetsVersions(t *testing.T) {
	mem := newStore(&start)
	rec := &recording{Store: mem}
	r := newRegion(t, "eu", rec)
	ctx := context.Background()
	if err := r.Sync(ctx, start); err != nil {
		t.Fatal(err)
	}
	e := &edge{name: "e1"}
	e.tell(r, 9, charge(start, 1))
	e.tell(r, 9, charge(start, 2))
	if rec.last(t) == 0 {
		t.Fatal("the second merge of a key names no version")
	}
	mem.Wipe()
	if err := r.Sync(ctx, start); err != nil {
		t.Fatal(err)
	}
	if got := rec.last(t); got != 0 {
		t.Fatalf("the first merge after a wipe names version %d, want none", got)
	}
}
