package edge

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// region is a region's aggregator that says of each frame what status it is
// told to, and keeps the counts of those that it takes.
type region struct {
	mu     sync.Mutex // guards what follows
	status func(frame int) deltasync.Status
	epoch  uint64
	frames int
	left   int // of them, by an edge that takes its leave
	taken  map[deltasync.Key]*crdt.Vector
}

// wipe has the region lose all that it took.
func (r *region) wipe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	clear(r.taken)
}

func serveRegion(t *testing.T, bus deltasync.Bus, status func(frame int) deltasync.Status) *region {
	t.Helper()
	r := &region{status: status, epoch: 1, taken: map[deltasync.Key]*crdt.Vector{}}
	if _, err := bus.Serve(deltasync.UpSubjects("eu"), deltasync.Queue("eu"), r.handle); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	return r
}

func (r *region) handle(_ context.Context, _ string, payload []byte) []byte {
	var up deltasync.Up
	if err := up.UnmarshalBinary(payload); err != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	down := deltasync.Down{Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: r.epoch, LiveRegions: 1, Status: r.status(r.frames)}
	r.frames++
	if up.Features&deltasync.FeatureLeaves != 0 {
		r.left++
	}
	for _, sec := range up.Sections {
		for _, d := range sec.Deltas {
			down.Totals = append(down.Totals, deltasync.Totals{})
			if down.Status != deltasync.StatusOK {
				continue
			}
			if r.taken[d.Key] == nil && len(d.Cells) > 0 {
				r.taken[d.Key] = &crdt.Vector{}
			}
			for _, c := range d.Cells {
				r.taken[d.Key].Join(c)
			}
		}
	}
	if down.Status == foreign {
		down.Status, down.Seq, down.Totals = deltasync.StatusOK, up.Seq+1000, nil
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		return nil
	}
	return b
}

// foreign has a region answer as if it had been asked something else.
const foreign = deltasync.Status(200)

// stopRunning runs n on a bus of its own before a region that answers as told,
// charges one request of each user, and stops it.
func stopRunning(t *testing.T, n *Node, status func(frame int) deltasync.Status, users ...string) (*region, error) {
	t.Helper()
	bus := membus.New()
	defer bus.Close()
	r := serveRegion(t, bus, status)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx, bus) }() // the receive below waits for it; stop ends it
	for _, user := range users {
		check(n, time.Now(), user)
	}
	time.Sleep(300 * time.Millisecond) // of the bubble's time: all is told once
	synctest.Wait()
	stop()
	return r, <-done
}

// What the region turned away is told again before Run returns, however lately
// it was turned away.
func TestRunEndsWithEverythingTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
		const refusals = 6 // more than there are before the end
		r, err := stopRunning(t, n, func(frame int) deltasync.Status {
			if frame < refusals {
				return deltasync.StatusOverloaded
			}
			return deltasync.StatusOK
		}, "a", "b")
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		if r.frames <= refusals || len(r.taken) != 2 {
			t.Fatalf("after %d frames the region has counts of %d keys, want both", r.frames, len(r.taken))
		}
	})
}

// A node that stopped, and runs once more, is there until it stops again: its region is not told that
// it leaves, and it wants rights.
func TestRunsOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
		good := func(int) deltasync.Status { return deltasync.StatusOK }
		if _, err := stopRunning(t, n, good, "a"); err != nil {
			t.Fatal(err)
		}
		if !n.leaves || !n.cluster.escrow.leaves.Load() {
			t.Error("it stopped, and takes no leave")
		}
		bus := membus.New()
		defer bus.Close()
		r := serveRegion(t, bus, good)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Run(ctx, bus) }() // the receive below waits for it; stop ends it
		check(n, time.Now(), "b")
		time.Sleep(300 * time.Millisecond) // of the bubble's time
		synctest.Wait()
		r.mu.Lock()
		if r.frames == 0 || r.left > 0 || n.cluster.escrow.leaves.Load() {
			t.Errorf("%d of %d frames take leave while it runs once more, want none of some; it wants no rights: %v", r.left, r.frames, n.cluster.escrow.leaves.Load())
		}
		r.mu.Unlock()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A reply to another frame is none: what was sent goes out again, and the lane
// does not wait for ever.
func TestRunDoesNotWaitForForeignReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
		r, err := stopRunning(t, n, func(frame int) deltasync.Status {
			if frame < 3 {
				return foreign
			}
			return deltasync.StatusOK
		}, "a", "b")
		if err != nil || len(r.taken) != 2 {
			t.Fatalf("Run: %v; after %d frames the region has counts of %d keys, want both", err, r.frames, len(r.taken))
		}
	})
}

// A region that goes on refusing is named, with what it did not take.
func TestRunSaysWhatTheRegionDidNotTake(t *testing.T) {
	for _, status := range []deltasync.Status{deltasync.StatusOverloaded, deltasync.StatusClock} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
			began := time.Now()
			_, err := stopRunning(t, n, func(int) deltasync.Status { return status }, "a", "b", "c")
			if err == nil || !strings.Contains(err.Error(), "counts of 3 keys unsent") || !strings.Contains(err.Error(), "answered "+status.String()) {
				t.Fatalf("Run before a region that says %s: %v, want an error with the 3 keys", status, err)
			}
			if took := time.Since(began); took > 3*finalFlush {
				t.Fatalf("Run took %v, want about %v", took, finalFlush)
			}
		})
	}
}

// Counts that the region turned away are no more forgotten than unsent ones.
func TestTurnedAwayKeyIsForgottenLast(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	users := neighbours(n, 3)
	s := n.shard(keyOf(n, users[0]))
	s.max = 2
	check(n, start, users[0])
	up := upOf(t, n.Flush(start))
	answerStatus(t, n, start, up, deltasync.StatusOverloaded, deltasync.Totals{})
	check(n, start, users[1])
	check(n, start, users[1]) // it has used more
	up = upOf(t, n.Flush(start.Add(time.Millisecond)))
	answer(t, n, start, up, deltasync.Totals{})
	check(n, start, users[2])
	if s.find(keyOf(n, users[0])) == nil || s.find(keyOf(n, users[1])) != nil {
		t.Fatal("the key that the region turned away was forgotten, want the acknowledged one")
	}
	if s.owing != 1 {
		t.Fatalf("%d keys owed, want the 1", s.owing)
	}
	for range shards { // a call looks at a part of them
		n.Tick(start.Add(3 * time.Hour))
	}
	if s.owing != 0 {
		t.Fatalf("%d keys owed after their window, want none", s.owing)
	}
}

// Where the region names what it turned away, nothing else is told again.
func TestOnlyWhatWasTurnedAwayIsOwed(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	users := neighbours(n, 3)
	for _, user := range users {
		check(n, start, user)
	}
	up := upOf(t, n.Flush(start))
	down := deltasync.Down{
		Status: deltasync.StatusOverloaded, Refused: []uint32{1},
		Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, LiveRegions: 1, Totals: make([]deltasync.Totals, 3),
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Receive(start, 0, b); err != nil {
		t.Fatalf("Receive: %v", err)
	}
	s := n.shard(keyOf(n, users[0]))
	for i, d := range up.Sections[0].Deltas {
		if got, want := s.find(d.Key).flags&owed != 0, i == 1; got != want {
			t.Errorf("key %d of the frame is owed: %v, want %v", i, got, want)
		}
	}
}

// A refusal that names what it is about is no refusal of the frame, whatever its
// status; one that names nothing is.
func TestForbiddenNamesWhatItMeans(t *testing.T) {
	for _, tt := range []struct {
		name    string
		status  deltasync.Status
		refused []uint32
		whole   bool
	}{
		{"forbidden, one named", deltasync.StatusForbidden, []uint32{1}, false},
		{"forbidden, none named", deltasync.StatusForbidden, nil, true},
		{"unsupported", deltasync.StatusUnsupported, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
			users := neighbours(n, 3)
			for _, user := range users {
				check(n, start, user)
			}
			up := upOf(t, n.Flush(start))
			down := deltasync.Down{Status: tt.status, Refused: tt.refused, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, LiveRegions: 1}
			if !tt.whole {
				down.Totals = make([]deltasync.Totals, 3)
			}
			b, err := down.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Receive(start, 0, b); (err != nil) != tt.whole {
				t.Fatalf("Receive: %v, want an error: %v", err, tt.whole)
			}
			s := n.shard(keyOf(n, users[0]))
			for i, d := range up.Sections[0].Deltas {
				if got, want := s.find(d.Key).flags&owed != 0, !tt.whole && i == 1; got != want {
					t.Errorf("key %d of the frame is owed: %v, want %v", i, got, want)
				}
			}
			if answered := n.outboxes[0].InFlight() == 0; answered == tt.whole {
				t.Errorf("the frame counts as answered: %v, want %v", answered, !tt.whole)
			}
		})
	}
}

// A flush that ran out of room begins the next one where it stopped: every
// shard has its turn, whatever the room is.
func TestFlushGoesOnWhereItStopped(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	for _, step := range []int{1, 31, 64, 159, 255} {
		seen := map[int]bool{}
		for range 2 * shards {
			from := n.drainFrom[hot]
			for k := range step {
				seen[(from+k)%shards] = true
			}
			n.resume(hot, from, step)
		}
		if len(seen) != shards {
			t.Errorf("flushes with room for %d shards look at %d of %d shards", step, len(seen), shards)
		}
	}
	from := n.drainFrom[hot]
	if n.resume(hot, from, shards); n.drainFrom[hot] == from {
		t.Error("after a whole round the same shard is first in line again")
	}
	from = n.drainFrom[hot]
	if n.resume(hot, from, 0); n.drainFrom[hot] != from {
		t.Error("a flush without room gave up its turn")
	}
}
