package edge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Run publishes counts and takes in what comes back until ctx ends. Then it
// sends what is left until the region has taken all of it, what it lost in the
// meantime included, and returns its rights in strict limits, for two seconds at most, and is done when all its goroutines are gone; an error says what the
// region does not have. Decisions do not need it: a node that does not run
// decides from its own counts. Stop deciding first: who decides while Run
// stops makes counts that it has no time to send.
//
//	ticker ── Flush ──► a goroutine a frame (two a lane at most) ── Request ──► Receive or Lost
//	ticker ── Asks ──► a goroutine a lane ── Request ──► ReceiveSnapshot or LostSnapshot
//	ticker ── Claims ──► a goroutine a frame ── Request ──► ReceiveGrants
//	bus's goroutine ──► ReceiveHot, ReceiveGrants
func (n *Node) Run(ctx context.Context, bus deltasync.Bus) error {
	sub, err := bus.Subscribe(deltasync.HotSubjects(n.cfg.Region), func(_ string, payload []byte) {
		if err := n.ReceiveHot(time.Now(), payload); err != nil {
			n.dropped("push", err)
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe to pushes of %s: %w", n.cfg.Region, err)
	}
	grants, err := bus.Subscribe(deltasync.GrantSubjects(n.cfg.Region), func(_ string, payload []byte) {
		if err := n.ReceiveGrants(time.Now(), payload); err != nil {
			n.dropped("grants", err)
		}
	})
	if err != nil {
		return errors.Join(fmt.Errorf("subscribe to grants of %s: %w", n.cfg.Region, err), sub.Stop())
	}
	n.stay()
	var frames sync.WaitGroup
	// Frames outlive ctx by the final flush's deadline.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	n.loop(ctx, func(out []Outgoing) { n.send(sending, bus, &frames, out) }, func(asks []Ask, claims []Claiming) {
		n.ask(ctx, bus, &frames, asks)
		n.claim(ctx, bus, &frames, claims, claimTimeout)
	})

	n.spendFreely()
	drained := n.clock.At(time.Now())
	deadline := time.AfterFunc(finalFlush, stop)
	defer deadline.Stop()
	var claims sync.WaitGroup // counts do not wait for who is home to some key
	for sending.Err() == nil {
		n.send(sending, bus, &frames, n.Leave(time.Now()))
		n.claim(sending, bus, &claims, n.Claims(time.Now()), n.cfg.Timeout)
		frames.Wait()
		if n.resending() { // nobody else marks what the region lost
			n.Tick(time.Now())
		} else if n.Left(time.Now()) {
			break
		}
		select {
		case <-sending.Done():
		case <-time.After(n.cfg.Urgent):
		}
		n.tellOwed(time.Now())
	}
	frames.Wait()
	stop()
	claims.Wait()
	for _, sub := range []deltasync.Subscription{sub, grants} {
		if err := sub.Stop(); err != nil && !errors.Is(err, deltasync.ErrClosed) {
			return fmt.Errorf("stop pushes: %w", err)
		}
	}
	if counters := n.ungiven(); counters > 0 {
		n.cfg.Logger.Warn("stopped with rights of strict limits that nobody said to have back: nobody has them until a lease and the window are over", "counters", counters)
	}
	if keys := n.unsent(); keys > 0 {
		return fmt.Errorf("stopped with counts of %d keys unsent: %s", keys, n.whyUnsent(drained))
	}
	return nil
}

// finalFlush is how long Run may go on sending after it was told to stop.
const finalFlush = 2 * time.Second

// spendFreely ends the budget of bytes: what is not sent now is lost.
func (n *Node) spendFreely() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.budget = deltasync.NewBudget(0)
}

// whyUnsent says why the region did not take all that was left since an instant.
func (n *Node) whyUnsent(since int64) string {
	status, region := deltasync.Status(n.stats.lastStatus.Load()), n.cfg.Region
	switch m := n.mistake(); {
	case max(n.stats.lastReply.Load(), n.stats.lastRefusal.Load()) < since:
		return fmt.Sprintf("nobody of %s answered within %v", region, finalFlush)
	case m == deltasync.MistakeLanes:
		return fmt.Sprintf("%s refuses them, as it has other %s", region, m)
	case status != deltasync.StatusOK && status != deltasync.StatusNotOwner:
		return fmt.Sprintf("%s did not take them within %v, but answered %s", region, finalFlush, status)
	}
	return fmt.Sprintf("%s answered, and they were more than it took within %v", region, finalFlush)
}

// loop flushes every Interval, and what is urgent every Urgent, until ctx ends, and
// asks for the snapshot until that is there, and for rights.
func (n *Node) loop(ctx context.Context, send func([]Outgoing), ask func([]Ask, []Claiming)) {
	ticker := time.NewTicker(n.cfg.Urgent)
	defer ticker.Stop()
	var flushed, ticked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			now := time.Now() // the tick may have waited for us
			switch {
			case now.Sub(flushed) >= n.interval():
				flushed = now
				send(n.Flush(now))
			case n.Urgent():
				send(n.FlushUrgent(now))
			}
			ask(n.Asks(now), n.Claims(now))
			if now.Sub(ticked) >= 100*time.Millisecond {
				ticked = now
				n.Tick(now)
			}
		}
	}
}

// interval is how long changes wait: as configured, or as the region asks.
func (n *Node) interval() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return max(n.cfg.Interval, n.pace)
}

// send makes each frame a request. The goroutines end with the reply, the
// timeout, or ctx; frames waits for them.
func (n *Node) send(ctx context.Context, bus deltasync.Bus, frames *sync.WaitGroup, out []Outgoing) {
	for _, f := range out {
		frames.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
			defer cancel()
			reply, err := bus.Request(ctx, f.Subject, f.Payload)
			if err == nil {
				err = n.Receive(time.Now(), f.Lane, reply)
			}
			if err == nil && n.inFlight(f.Lane, f.Seq) {
				err = errForeign
			}
			if err != nil {
				n.Lost(time.Now(), f.Lane, f.Seq)
				n.cfg.Logger.Debug("frame lost", "lane", f.Lane, "seq", f.Seq, "err", err)
			}
		})
	}
}

// ask makes each a request. The goroutines end with the answer, the timeout, or
// ctx; frames waits for them.
func (n *Node) ask(ctx context.Context, bus deltasync.Bus, frames *sync.WaitGroup, asks []Ask) {
	for _, a := range asks {
		frames.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
			defer cancel()
			reply, err := bus.Request(ctx, a.Subject, a.Payload)
			if err == nil {
				err = n.ReceiveSnapshot(time.Now(), a, reply)
			}
			if err != nil {
				n.LostSnapshot(time.Now(), a)
				n.cfg.Logger.Debug("snapshot lost", "lane", a.Lane, "err", err)
			}
		})
	}
}

// claim makes each a request to the authority. The goroutines end with the answer, the
// timeout, or ctx; frames waits for them.
func (n *Node) claim(ctx context.Context, bus deltasync.Bus, frames *sync.WaitGroup, claims []Claiming, timeout time.Duration) {
	for _, c := range claims {
		frames.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			reply, err := bus.Request(ctx, c.Subject, c.Payload)
			if err == nil {
				err = n.ReceiveGrants(time.Now(), reply)
			}
			if err != nil {
				n.cfg.Logger.Debug("claims lost", "home", c.Home, "lane", c.Lane, "err", err)
			}
		})
	}
}

// claimTimeout is how long an authority may take, in another region maybe, which has
// its log on disk before it answers.
const claimTimeout = 2 * time.Second

// snapshotTimeout is how long a part of a snapshot may take: the first has the
// owner look through the lane.
const snapshotTimeout = time.Second

var errForeign = errors.New("the reply is to another frame")

// inFlight says that a frame still waits for its reply.
func (n *Node) inFlight(lane int, seq uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, waits := n.outboxes[lane].Deltas(seq)
	return waits
}

// resending says that some live counts have yet to be marked for sending again,
// as the region may have lost them, or penalties that were withheld.
func (n *Node) resending() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unmarked > 0 || len(n.withheld) > 0
}

// unsent is the number of keys with counts that the region has not acknowledged, or with
// penalties that it was not told.
func (n *Node) unsent() int {
	keys := 0
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		keys += s.owing
		s.compact() // each once
		for _, list := range s.dirty {
			for _, key := range list {
				if r := s.find(key); r.flags&(charged|untold) != 0 && r.flags&owed == 0 {
					keys++
				}
			}
		}
		s.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, box := range n.outboxes {
		keys += box.HeldCounts()
	}
	return keys + len(n.withheld)
}

// tellOwed has what the region turned away sent again with the next flush.
func (n *Node) tellOwed(now time.Time) {
	t := n.clock.At(now)
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		for j := range s.table {
			if s.owing == 0 {
				break
			}
			if r := &s.table[j]; r.flags&(owed|dirty) == owed {
				s.resend(r, t, hot)
			}
		}
		s.mu.Unlock()
	}
}

// complainAgain is how often it is said that pushes are dropped: hundreds may come a
// second, of an aggregator of a later build, say. Metrics count them all.
const complainAgain = 10 * time.Second

// dropped says that something was pushed which cannot be read, now and then.
func (n *Node) dropped(what string, err error) {
	now := time.Now().UnixNano()
	if last := n.complained.Load(); now-last >= int64(complainAgain) && n.complained.CompareAndSwap(last, now) {
		n.cfg.Logger.Warn(what+" dropped", "err", err, "unread_so_far", n.stats.badPushes.Load())
	}
}
