package regional_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// newLogged is a region that logs.
func newLogged(t *testing.T, log *bytes.Buffer, peers ...string) *region {
	t.Helper()
	a, err := regional.New(regional.Config{
		Boot: still, Region: "eu", Name: "a1", Peers: peers, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(log, nil)),
	}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	return &region{Aggregator: a, t: t, name: "eu", now: start}
}

// A region that never answers is told once, and who answered and falls silent, and
// comes back.
func TestSilentRegionsAreTold(t *testing.T) {
	var log bytes.Buffer
	eu, us := newLogged(t, &log, "us", "usx"), newRegion(t, "us", newStore(&start), "eu")
	pass := func(d time.Duration, answers bool) {
		for end := eu.now.Add(d); eu.now.Before(end); {
			eu.now = eu.now.Add(500 * time.Millisecond)
			for _, o := range eu.Exports(eu.now) {
				if o.Peer != "us" || !answers {
					eu.Lost(eu.now, o)
				} else if err := eu.Receive(eu.now, o, us.Handle(context.Background(), eu.now, o.Subject, o.Payload)); err != nil {
					t.Fatal(err)
				}
			}
			eu.Tick(eu.now)
		}
	}
	want := func(lines int, text string, silent ...string) {
		t.Helper()
		if got := eu.Stats(eu.now).Unheard; !slices.Equal(got, silent) {
			t.Errorf("%v after the start %v are silent, want %v", eu.now.Sub(start), got, silent)
		}
		if strings.Count(log.String(), "another region") != lines || !strings.Contains(log.String(), text) {
			t.Errorf("%v after the start the log is\n%swant %d lines, and %q", eu.now.Sub(start), &log, lines, text)
		}
	}
	pass(14*time.Second, true)
	want(0, "")
	pass(10*time.Second, true)
	want(1, "peer=usx", "usx")
	if !strings.Contains(log.String(), "never answered") {
		t.Errorf("log %q, want that it never did", &log)
	}
	pass(10*time.Second, false)
	want(1, "", "usx")
	pass(10*time.Second, false)
	want(2, "another region answers no more", "us", "usx")
	pass(5*time.Second, true)
	want(3, "another region answers again", "usx")
	// Whoever has given its lanes away hears of nobody.
	eu.beat(deltasync.Live{Name: eu.yield()})
	for range 40 {
		eu.now = eu.now.Add(500 * time.Millisecond)
		eu.Tick(eu.now)
	}
	want(3, "")
}

// Why exports to a region are lost is told with its silence.
func TestSilenceNamesItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		eu, bus := newLogged(t, &log, "us"), membus.New()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- eu.Run(ctx, bus) }() // received below; stop ends it
		time.Sleep(20 * time.Second)
		stop()
		if err := errors.Join(<-done, bus.Close()); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), "never answered") || !strings.Contains(log.String(), deltasync.ErrNoResponders.Error()) {
			t.Errorf("log %q, want why nobody answers", &log)
		}
	})
}

// An aggregator of the region that has other lanes beats on; that is not logged as often.
func TestBadBeatsAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		eu, bus := newLogged(t, &log), membus.New()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- eu.Run(ctx, bus) }() // received below; stop ends it
		b, err := (&deltasync.Live{Region: "eu", Name: "a2", Lanes: 4}).AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 300 { // a minute and a half
			time.Sleep(300 * time.Millisecond)
			if err := bus.Publish(deltasync.LiveSubject("eu"), b); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		if err := errors.Join(<-done, bus.Close()); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "beats are dropped"); n != 2 || !strings.Contains(log.String(), "4 lanes") {
			t.Errorf("logged %d times, want twice, with the lanes: %.500s", n, &log)
		}
	})
}

// Two aggregators of one name both say so, once; one that was just replaced, or has
// another name, is none.
func TestNamesakesAreTold(t *testing.T) {
	var log bytes.Buffer
	eu := newLogged(t, &log)
	hears := func(l deltasync.Live, d time.Duration) {
		t.Helper()
		for end := eu.now.Add(d); !eu.now.After(end); eu.now = eu.now.Add(regional.BeatEvery) {
			l.Region, l.Lanes = "eu", 1
			b, err := l.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := eu.HearBeat(eu.now, b); err != nil {
				t.Fatal(err)
			}
			eu.Assign(eu.now)
		}
		eu.Tick(eu.now)
	}
	hears(deltasync.Live{Name: "a1", Incarnation: 1}, 5*time.Second) // its own beats
	hears(deltasync.Live{Name: "a2", Incarnation: 2}, 5*time.Second)
	hears(deltasync.Live{Name: "a1", Incarnation: 3}, time.Second)
	if eu.Stats(eu.now).Namesake || strings.Contains(log.String(), "--name") {
		t.Errorf("a namesake is told of who is none: %s", &log)
	}
	hears(deltasync.Live{Name: "a1", Incarnation: 4}, 5*time.Second)
	hears(deltasync.Live{Name: "a1", Incarnation: 4}, 5*time.Second)
	if !eu.Stats(eu.now).Namesake || strings.Count(log.String(), "--name") != 1 {
		t.Errorf("a namesake is not told once: %v, %s", eu.Stats(eu.now).Namesake, &log)
	}
	hears(deltasync.Live{Name: "a1", Incarnation: 4, Leaving: true}, 0)
	if eu.Stats(eu.now).Namesake {
		t.Error("a namesake that left is still one")
	}
}
