package regional_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// An aggregator that stops tells the other regions what is left however small its
// budget of bytes.
func TestRunEndsBeyondItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		bus := membus.New()
		defer bus.Close()
		us := newRegion(t, "us", newStore(&now), "eu")
		us.now = now
		sub, err := bus.Serve(deltasync.UpSubjects("us"), deltasync.Queue("us"), func(ctx context.Context, subject string, payload []byte) []byte {
			return us.Handle(ctx, time.Now(), subject, payload)
		})
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Stop()
		a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second, Budget: 1000}, newStore(&now))
		if err != nil {
			t.Fatal(err)
		}
		eu, e := &region{Aggregator: a, t: t, name: "eu", now: now}, &edge{name: "e1"}
		for i := range 20 {
			keys := upTo(1000)
			for j := range keys {
				keys[j] += deltasync.Key(1000 * i)
			}
			e.send(eu, hits(now, 9, keys...))
		}
		if eu.Untold() != 20_000 {
			t.Fatalf("%d keys wait to be told, want all: the test sees nothing", eu.Untold())
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := eu.Run(ctx, bus); err != nil {
			t.Errorf("Run: %v", err)
		}
		if eu.Untold() != 0 || us.Stats(time.Now()).Keys != 20_000 {
			t.Errorf("%d keys are untold and the other region has %d, want all", eu.Untold(), us.Stats(time.Now()).Keys)
		}
	})
}

// A region that does not answer holds up the end for a second, whatever a single
// exchange may take.
func TestRunEndsThoughARegionIsSilent(t *testing.T) {
	for _, tc := range []struct{ timeout, want time.Duration }{{20 * time.Second, time.Second}, {100 * time.Millisecond, 100 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			bus := membus.New()
			defer bus.Close()
			sub, err := bus.Serve(deltasync.UpSubjects("us"), deltasync.Queue("us"), func(context.Context, string, []byte) []byte { return nil })
			if err != nil {
				t.Fatal(err)
			}
			defer sub.Stop()
			a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second, Timeout: tc.timeout}, newStore(&now))
			if err != nil {
				t.Fatal(err)
			}
			eu := &region{Aggregator: a, t: t, name: "eu", now: now}
			(&edge{name: "e1"}).tell(eu, 9, charge(now, 3))
			ctx, stop := context.WithCancel(t.Context())
			stop()
			if err := eu.Run(ctx, bus); err != nil {
				t.Errorf("Run: %v", err)
			}
			if took := time.Since(now); took < tc.want || took > tc.want+100*time.Millisecond {
				t.Errorf("with a timeout of %v the end took %v, want %v", tc.timeout, took, tc.want)
			}
		})
	}
}

// What edges were to be pushed when it was told to stop they still hear: what crossed a
// threshold last is nowhere else news.
func TestRunPushesAsItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		bus := membus.New()
		defer bus.Close()
		pushed := make(chan []byte, 10)
		sub, err := bus.Subscribe(deltasync.HotSubjects("eu"), func(_ string, payload []byte) { pushed <- payload })
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Stop()
		eu := newRegion(t, "eu", newStore(&now))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- eu.Run(ctx, bus) }() // received below; stop ends it
		time.Sleep(2010 * time.Millisecond)      // between two looks at what is to be pushed
		eu.now = time.Now()
		(&edge{name: "e1"}).tell(eu, 9, charge(eu.now, 100))
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
		if len(pushed) != 1 {
			t.Fatalf("%d pushes, want that of the limit reached", len(pushed))
		}
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(<-pushed); err != nil || len(hot.Sections) != 1 || charges(hot.Sections[0].Keys[0].Peers) != 100 {
			t.Errorf("%+v, %v pushed, want 100 of the key", hot, err)
		}
	})
}
