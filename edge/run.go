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
// sends what is left, waits for the answers, two seconds at most, and returns
// when all its goroutines are gone. Decisions do not need it: a node that does
// not run decides from its own counts.
//
//	ticker ── Flush ──► a goroutine a frame (two a lane at most) ── Request ──► Receive or Lost
//	bus's goroutine ──► ReceiveHot
func (n *Node) Run(ctx context.Context, bus deltasync.Bus) error {
	sub, err := bus.Subscribe(deltasync.HotSubjects(n.cfg.Region), func(_ string, payload []byte) {
		if err := n.ReceiveHot(time.Now(), payload); err != nil {
			n.cfg.Logger.Warn("push dropped", "err", err)
		}
	})
	if err != nil {
		return fmt.Errorf("subscribe to pushes of %s: %w", n.cfg.Region, err)
	}
	var frames sync.WaitGroup
	// Frames outlive ctx by the final flush's deadline.
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	n.loop(ctx, func(out []Outgoing) { n.send(sending, bus, &frames, out) })

	deadline := time.AfterFunc(finalFlush, stop)
	defer deadline.Stop()
	for sending.Err() == nil {
		n.send(sending, bus, &frames, n.Flush(time.Now()))
		frames.Wait()
		if n.drained() {
			break
		}
		select {
		case <-sending.Done():
		case <-time.After(n.cfg.Urgent):
		}
	}
	frames.Wait()
	if err := sub.Stop(); err != nil && !errors.Is(err, deltasync.ErrClosed) {
		return fmt.Errorf("stop pushes: %w", err)
	}
	if !n.drained() {
		return fmt.Errorf("stopped with %d keys unsent after %v", n.Stats(time.Now()).Outbox, finalFlush)
	}
	return nil
}

// finalFlush is how long Run may go on sending after it was told to stop.
const finalFlush = 2 * time.Second

// loop flushes every Interval, or every Urgent while some key is urgent, until
// ctx ends.
func (n *Node) loop(ctx context.Context, send func([]Outgoing)) {
	ticker := time.NewTicker(n.cfg.Urgent)
	defer ticker.Stop()
	var flushed, ticked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if now.Sub(flushed) >= n.interval() || n.Urgent() {
				flushed = now
				send(n.Flush(now))
			}
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
			if err != nil {
				n.Lost(time.Now(), f.Lane, f.Seq)
				n.cfg.Logger.Debug("frame lost", "lane", f.Lane, "seq", f.Seq, "err", err)
			}
		})
	}
}

// drained says that everything was sent and answered.
func (n *Node) drained() bool {
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		waits := len(s.dirty) > 0
		s.mu.Unlock()
		if waits {
			return false
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, box := range n.outboxes {
		if box.Pending() > 0 || box.InFlight() > 0 {
			return false
		}
	}
	return true
}
