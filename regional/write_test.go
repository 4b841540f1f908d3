package regional_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// gated is a store whose merges wait for a word: nil, or why they fail.
type gated struct {
	regional.Store
	merges chan chan error // each as it begins
}

func (g *gated) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	gate := make(chan error)
	g.merges <- gate
	if err := <-gate; err != nil {
		return nil, err
	}
	return g.Store.Merge(ctx, batch)
}

// What went with the write of another frame, which is under way and may fail, is
// not yet stored.
func TestFrameIsNotAnsweredBeforeItsCountsAreStored(t *testing.T) {
	store := newStore(&start)
	g := &gated{Store: store, merges: make(chan chan error)}
	r := newRegion(t, "eu", g)
	one, two := &edge{name: "e1"}, &edge{name: "e2"}
	first, second := make(chan deltasync.Down, 1), make(chan deltasync.Down, 1)
	go func() { first <- one.send(r, hits(start, 5, upTo(257)...)) }() // two batches, key 257 in the last
	begun := <-g.merges
	go func() { second <- two.send(r, hits(start, 1, 257)) }()
	other := <-g.merges // of key 257, with what the first frame told of it
	begun <- nil
	select {
	case down := <-first:
		t.Fatalf("answered %s while what it told of a key is not stored", down.Status)
	case last := <-g.merges:
		other <- regional.ErrStore
		<-second
		last <- nil
	}
	if down := <-first; down.Status != deltasync.StatusStoreDown { // of what the other told
		t.Errorf("status %s, want %s", down.Status, deltasync.StatusStoreDown)
	}
	got, err := store.Load(context.Background(), []regional.Item{{Key: 257, Width: time.Minute, Slices: 10}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got[0].Vectors) != 1 || got[0].Vectors[0].Cells[0].Charges != 5 {
		t.Errorf("the store has %+v of the key, want the five of the first frame", got[0].Vectors)
	}
}
