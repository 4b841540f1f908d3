package edge

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// pacing is a region that asks for a pace.
type pacing struct {
	mu     sync.Mutex // guards what follows
	pace   time.Duration
	frames []time.Time // when those came that tell or ask something
}

func (p *pacing) handle(_ context.Context, _ string, payload []byte) []byte {
	var up deltasync.Up
	if err := up.UnmarshalBinary(payload); err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	down := deltasync.Down{Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, LiveRegions: 1, Status: deltasync.StatusOK, Pace: p.pace}
	for _, sec := range up.Sections {
		down.Totals = append(down.Totals, make([]deltasync.Totals, len(sec.Deltas))...)
	}
	if len(down.Totals) > 0 {
		p.frames = append(p.frames, time.Now())
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		return nil
	}
	return b
}

// since starts over, with another pace, and returns the frames that came.
func (p *pacing) since(pace time.Duration) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	came := p.frames
	p.frames, p.pace = nil, pace
	return came
}

// An edge that is told a pace sends what changes no more often, but for what
// cannot wait; told none, as often as before.
func TestRunKeepsThePaceThatItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pace = time.Second
		n, bus, region := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1 << 30, Per: 10 * time.Second})), membus.New(), &pacing{}
		defer bus.Close()
		if _, err := bus.Serve(deltasync.UpSubjects("eu"), deltasync.Queue("eu"), region.handle); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx, bus) }() // received below; cancel ends it
		charge := func(d time.Duration) {       // all the time, far from the limit
			for range d / (50 * time.Millisecond) {
				check(n, time.Now(), "u")
				pass(50 * time.Millisecond)
			}
		}
		charge(time.Second)
		region.since(pace)
		charge(time.Second) // the next reply has it
		region.since(pace)
		charge(10 * time.Second)
		came := region.since(pace)
		if len(came) < 9 || len(came) > 10 {
			t.Errorf("%d frames in 10 s at a pace of %v, want 9 or 10", len(came), pace)
		}
		for i := 1; i < len(came); i++ {
			if gap := came[i].Sub(came[i-1]); gap < pace {
				t.Errorf("frame %d came %v after the one before, want no less than %v", i, gap, pace)
			}
		}
		check(n, time.Now(), "new") // nobody knows what others have of it
		pass(2 * n.cfg.Urgent)
		if came := region.since(0); len(came) != 1 {
			t.Errorf("%d frames at once with a key that is new here, want 1: it does not wait for the pace", len(came))
		}
		charge(2 * pace) // the next reply has no pace
		region.since(0)
		charge(10 * time.Second)
		if came := region.since(0); len(came) < 90 || len(came) > 100 {
			t.Errorf("%d frames in 10 s without a pace, want one each %v", len(came), n.cfg.Interval)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}
