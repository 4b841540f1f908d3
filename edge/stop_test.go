package edge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// running is a node that runs before a region, in a bubble.
type running struct {
	*Node
	region *region
	stop   func() error // ends Run and returns its error
}

func run(t *testing.T, spec limit.RateSpec, status func(frame int) deltasync.Status) running {
	t.Helper()
	n, bus := newNode(t, Config{}, perUser(spec)), membus.New()
	r := serveRegion(t, bus, status)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx, bus) }() // stop waits for it; cancel ends it
	return running{n, r, func() error {
		cancel()
		err := <-done
		if err := bus.Close(); err != nil {
			t.Errorf("close the bus: %v", err)
		}
		return err
	}}
}

// pass lets the bubble's time pass, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func ok(int) deltasync.Status { return deltasync.StatusOK }

// What was turned away stays owed though newer counts of the same key are
// taken, and is told before Run returns.
func TestOwedOutlivesAFlushOfNewerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := run(t, limit.RateSpec{Limit: 100, Per: 10 * time.Second}, func(frame int) deltasync.Status {
			if frame == 0 {
				return deltasync.StatusOverloaded
			}
			return deltasync.StatusOK
		})
		key := keyOf(n.Node, "u")
		check(n.Node, time.Now(), "u")
		pass(200 * time.Millisecond)                             // refused meanwhile; told again in a second
		check(n.Node, time.Now().Add(100*time.Millisecond), "u") // in the next slice
		pass(300 * time.Millisecond)
		if got := n.region.taken[key]; got == nil || got.Len() != 1 {
			t.Fatalf("the region has taken %v, want the newer of two slices alone", got)
		}
		s := n.shard(key)
		if s.find(key).flags&owed == 0 || s.owing != 1 {
			t.Errorf("owed: %v, %d keys of the shard; want the one: the older slice is not told", s.find(key).flags&owed != 0, s.owing)
		}
		if err := n.stop(); err != nil {
			t.Fatalf("Run: %v", err)
		}
		if got := n.region.taken[key]; got.Len() != 2 {
			t.Errorf("at the end the region has taken %v, want both slices", got.Cells(nil))
		}
		if s.find(key).flags&owed != 0 || s.owing != 0 {
			t.Errorf("%d keys owed when all is told, want none", s.owing)
		}
	})
}

// Questions that nobody answered are no loss: an edge that only looked stops in
// peace, at once, whether its region is there or not.
func TestUnansweredQuestionsAreNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, bus := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour})), membus.New()
		defer bus.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx, bus) }() // received below; cancel ends it
		req := n.Rules().Only().NewRequest()
		for _, user := range []string{"a", "b", "c", "d", "e"} {
			req.Reset()
			req.Set("user", user)
			req.Peek = true
			n.Check(time.Now(), req)
		}
		pass(time.Second)
		n.mu.Lock()
		held := n.outboxes[0].Held()
		n.mu.Unlock()
		if held != 5 {
			t.Fatalf("%d questions are held, want all 5: nobody answered", held)
		}
		asked := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v, want nil: nothing was counted", err)
		}
		if took := time.Since(asked); took > n.cfg.Timeout {
			t.Errorf("Run took %v to stop, want no longer than its last frame, %v", took, n.cfg.Timeout)
		}
	})
}

// A region that loses its counts while the edge stops, and says so in reply to
// the last frame, is told all of them once more.
func TestRunEndsWithEverythingTakenByANewStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := run(t, limit.RateSpec{Limit: 100, Per: time.Hour}, ok)
		users := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, user := range users {
			check(n.Node, time.Now(), user)
		}
		pass(300 * time.Millisecond)
		if got := len(n.region.taken); got != len(users) {
			t.Fatalf("the region has taken %d keys, want %d", got, len(users))
		}
		n.region.wipe()
		check(n.Node, time.Now(), "last")
		asked := time.Now()
		if err := n.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if got, want := len(n.region.taken), len(users)+1; got != want {
			t.Errorf("the new store has %d keys at the end, want all %d", got, want)
		}
		if took := time.Since(asked); took >= finalFlush {
			t.Errorf("Run took %v to stop, want less than %v: all was taken", took, finalFlush)
		}
	})
}
