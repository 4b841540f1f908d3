package natsbus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

const (
	// noticed is how long a server may take to see that a link is frozen: two
	// unanswered pings, 2 s apart, and the third that would be due.
	noticed = 6 * time.Second
	// closed is how long a server may go on reading from a link that it has given
	// up: it closes when the write under way and a last one have failed, each
	// after write_deadline.
	closed = 2 * 2 * time.Second
	// slack is what a loaded machine may add to that.
	slack = time.Second
	// growth is by how many bytes a server may grow meanwhile: an edge has two
	// frames under way for 250 ms each, so 3 MB, and the pushes are 6 MB more.
	// With NATS's own settings it was 400 MB in 25 s.
	growth = 24 << 20
)

// uplink is a link between two servers, each with a client of its own.
type uplink struct {
	asks, serves  *Bus
	up, ups, hot  string // what is asked, what is served, and what is pushed
	wires         []*proc.Proxy
	near, far     *proc.NATSServer
	broken        func() error // nil when both ends have noticed
	mayHearPushes bool
}

func TestFrozenLeafLink(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	hub := proc.NATSCluster(t, users, "eu", 1)
	leaf := proc.NATSLeaf(t, users, "POP_AMS", hub.Leafs[0])
	testFrozen(t, uplink{
		asks:   connect(t, as(t, users, "POP_AMS", "_INBOX_eu.ams.e1", leaf.URL)),
		serves: connect(t, as(t, users, "AGG_EU", "_INBOX_eu.agg-1", hub.URLs()...)),
		up:     deltasync.EdgeSubject("eu", 0, "ams", "e1"), ups: deltasync.UpSubjects("eu"), hot: deltasync.HotSubject("eu", 0),
		wires: hub.Leafs, near: leaf, far: hub.Servers[0],
		broken: func() error {
			if leaf.Linked() == nil || hub.Servers[0].Linked() == nil {
				return errors.New("the leaf still counts as linked")
			}
			return nil
		},
		mayHearPushes: true,
	})
}

func TestFrozenGateways(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	regions := []string{"eu", "us"}
	sites := proc.NATSGateways(t, users, regions...)
	eu, us := sites["eu"], sites["us"]
	testFrozen(t, uplink{
		asks:   connect(t, as(t, users, "AGG_US", "_INBOX_us.agg-1", us.URLs()...)),
		serves: connect(t, as(t, users, "AGG_EU", "_INBOX_eu.agg-1", eu.URLs()...)),
		up:     deltasync.RegionSubject("eu", 0, "us"), ups: deltasync.UpSubjects("eu"), hot: deltasync.HotSubject("eu", 0),
		wires: []*proc.Proxy{eu.Gateway, us.Gateway}, near: us.Servers[0], far: eu.Servers[0],
		broken: func() error {
			if us.Servers[0].HasGateways(regions) == nil || eu.Servers[0].HasGateways(regions) == nil {
				return errors.New("the gateways still count as up")
			}
			return nil
		},
	})
}

// stamp is a frame of the largest size that says when it was sent.
func stamp() []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 0, deltasync.MaxFrame), uint64(time.Now().UnixNano()))[:deltasync.MaxFrame]
}

// ages keeps when the oldest frame since clear was sent.
type ages struct {
	mu     sync.Mutex
	heard  int
	oldest time.Time
}

func (a *ages) hear(p []byte) {
	sent := time.Unix(0, int64(binary.LittleEndian.Uint64(p)))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard == 0 || sent.Before(a.oldest) {
		a.oldest = sent
	}
	a.heard++
}

func (a *ages) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.heard = 0
}

func (a *ages) get() (heard int, oldest time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.heard, a.oldest
}

// memory is how much a server has, in bytes.
func memory(t testing.TB, s *proc.NATSServer) int64 {
	t.Helper()
	var z struct{ Mem int64 }
	if err := s.Monitor("varz", &z); err != nil {
		t.Fatal(err)
	}
	return z.Mem
}

// testFrozen freezes a link under the load that the protocol allows.
func testFrozen(t *testing.T, l uplink) {
	var frames, pushes ages
	if _, err := l.serves.Serve(l.ups, deltasync.Queue("eu"), func(_ context.Context, _ string, p []byte) []byte {
		frames.hear(p)
		return []byte("ok")
	}); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	if l.mayHearPushes {
		if _, err := l.asks.Subscribe(l.hot, func(_ string, p []byte) { pushes.hear(p) }); err != nil {
			t.Fatalf("Subscribe: %v", err)
		}
	}

	// Two frames are under way at any time, and pushes come all along.
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer stop()
	var refused atomic.Bool // the last request was refused at once
	for range 2 {
		load.Go(func() { // ends with ctx
			for ctx.Err() == nil {
				one, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
				_, err := l.asks.Request(one, l.up, stamp())
				refused.Store(errors.Is(err, deltasync.ErrNoResponders))
				pause(one, err == nil)
				cancel()
			}
		})
	}
	load.Go(func() { // ends with ctx
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := l.serves.Publish(l.hot, stamp()); err != nil && ctx.Err() == nil {
				t.Errorf("Publish: %v", err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	flows := func() error {
		if n, _ := frames.get(); n < 10 || refused.Load() {
			return fmt.Errorf("%d frames have arrived, refused: %v", n, refused.Load())
		}
		if n, _ := pushes.get(); n < 10 && l.mayHearPushes {
			return fmt.Errorf("%d pushes have arrived", n)
		}
		return nil
	}
	proc.Until(t, heals, flows)

	servers := map[string]*proc.NATSServer{"near": l.near, "far": l.far}
	before, most := map[string]int64{}, map[string]int64{}
	for name, s := range servers {
		before[name] = memory(t, s)
	}
	for _, w := range l.wires {
		w.Freeze()
	}
	frozen := time.Now()
	watch := func(done func() error) time.Duration {
		t.Helper()
		proc.Until(t, heals, func() error {
			for name, s := range servers {
				most[name] = max(most[name], memory(t, s)-before[name])
			}
			return done()
		})
		return time.Since(frozen)
	}
	if d := watch(func() error {
		if !refused.Load() {
			return errors.New("requests are not refused")
		}
		return nil
	}); d > noticed+slack {
		t.Errorf("the frozen link was noticed after %v, want %v", d, noticed)
	} else {
		t.Logf("noticed after %v", d)
	}
	t.Logf("noticed at both ends after %v", watch(l.broken))
	thaw := time.Now().Add(closed + slack/2)
	watch(func() error {
		if time.Now().Before(thaw) {
			return errors.New("too early")
		}
		return nil
	})
	for name, by := range most {
		t.Logf("the %s server grew by %d kB", name, by>>10)
		if by > growth {
			t.Errorf("the %s server grew by %d MB, want at most %d", name, by>>20, growth>>20)
		}
	}

	frames.clear()
	pushes.clear()
	mended := time.Now()
	for _, w := range l.wires {
		w.Mend()
	}
	proc.Until(t, heals, flows)
	for name, a := range map[string]*ages{"frame": &frames, "push": &pushes} {
		if n, oldest := a.get(); n > 0 && mended.Sub(oldest) > slack {
			t.Errorf("after the thaw came a %s that was sent %v before it", name, mended.Sub(oldest))
		}
	}
}

// pause waits for the end of ctx, or not at all if the last request went well:
// an edge that hears nothing sends no faster.
func pause(ctx context.Context, well bool) {
	if !well {
		<-ctx.Done()
	}
}
