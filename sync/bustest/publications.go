package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	deltasync "github.com/spillgate/spillgate/sync"
)

func testPublish(t *testing.T, a, b deltasync.Bus) {
	// Each pattern is subscribed to on both connections; "end" closes a round.
	subjects := []string{"hot", "hot.eu", "hot.us", "hot.eu.0", "hot.eu.1", "cold.eu.0"}
	patterns := map[string][]string{
		"hot":      {"hot"},
		"hot.eu":   {"hot.eu"},
		"hot.eu.0": {"hot.eu.0"},
		"hot.*":    {"hot.eu", "hot.us"},
		"*.eu.0":   {"hot.eu.0", "cold.eu.0"},
		"hot.*.0":  {"hot.eu.0"},
		"hot.>":    {"hot.eu", "hot.us", "hot.eu.0", "hot.eu.1"},
		"*.*":      {"hot.eu", "hot.us"},
		"*.>":      {"hot.eu", "hot.us", "hot.eu.0", "hot.eu.1", "cold.eu.0"},
		">":        subjects,
	}
	for pattern, want := range patterns {
		t.Run(pattern, func(t *testing.T) {
			for name, from := range map[string]deltasync.Bus{"a": a, "b": b} {
				onA, gotA := subscribe(t, a, pattern)
				onB, gotB := subscribe(t, b, pattern)
				endA, ended := subscribe(t, a, "end")
				for _, s := range subjects {
					publish(t, from, s, "x")
				}
				for on, got := range map[string]<-chan string{"a": gotA, "b": gotB} {
					for _, w := range want {
						if m := next(t, w, got); m != w+" x" {
							t.Errorf("published by %s, subscriber of %q on %s received %q, want %q", name, pattern, on, m, w+" x")
						}
					}
				}
				quiet(t, from, "end", ended)
				for _, s := range []deltasync.Subscription{onA, onB, endA} {
					if err := s.Stop(); err != nil {
						t.Errorf("Stop: %v", err)
					}
				}
				for len(gotA) > 0 {
					if m := <-gotA; m != "end end" { // ">" hears that too
						t.Errorf("published by %s, subscriber of %q on a received %q as well", name, pattern, m)
					}
				}
			}
		})
	}
	if err := a.Publish("nobody.listens", nil); err != nil {
		t.Errorf("Publish to nobody: %v", err)
	}
}

func testApart(t *testing.T, a, b deltasync.Bus) {
	var served atomic.Int64
	serve(t, a, "both", "agg", answer("a", &served))
	_, got := subscribe(t, a, "both")
	publish(t, b, "both", "published")
	if m := next(t, "the publication", got); m != "both published" {
		t.Errorf("received %q, want the publication", m)
	}
	if reply := request(t, b, "both", "asked"); reply != "a: asked" {
		t.Errorf("Request = %q, want the server's reply", reply)
	}
	quiet(t, b, "both", got)
	if served.Load() != 1 {
		t.Errorf("the server handled %d messages, want the request alone", served.Load())
	}
}

func testBadSubjects(t *testing.T, a, _ deltasync.Bus) {
	nobody := func(context.Context, string, []byte) []byte { return nil }
	for _, c := range []struct {
		subject string
		pattern bool // good in a subscription
	}{
		{"", false}, {".", false}, {"a.", false}, {".a", false}, {"a..b", false},
		{"a b", false}, {"a\tb", false}, {"a\r\nPUB b 0\r\n", false}, {"a\x00", false},
		{"a*", false}, {"*a", false}, {"a>", false}, {">.a", false},
		{strings.Repeat("a", deltasync.MaxSubject+1), false},
		{"*", true}, {"a.*.b", true}, {">", true}, {"a.>", true},
	} {
		if _, err := try(t, a, within, c.subject, nil); !errors.Is(err, deltasync.ErrSubject) {
			t.Errorf("Request(%.40q): %v, want ErrSubject", c.subject, err)
		}
		if err := a.Publish(c.subject, nil); !errors.Is(err, deltasync.ErrSubject) {
			t.Errorf("Publish(%.40q): %v, want ErrSubject", c.subject, err)
		}
		_, err := a.Serve(c.subject, "agg", nobody)
		if errors.Is(err, deltasync.ErrSubject) == c.pattern {
			t.Errorf("Serve(%.40q): %v, want it accepted: %v", c.subject, err, c.pattern)
		}
		_, err = a.Subscribe(c.subject, func(string, []byte) {})
		if errors.Is(err, deltasync.ErrSubject) == c.pattern {
			t.Errorf("Subscribe(%.40q): %v, want it accepted: %v", c.subject, err, c.pattern)
		}
	}
	for _, queue := range []string{"", "a b", "a\r\n", "a.*"} {
		if _, err := a.Serve("up", queue, nobody); !errors.Is(err, deltasync.ErrSubject) {
			t.Errorf("Serve under queue %q: %v, want ErrSubject", queue, err)
		}
	}
}

func testOrder(t *testing.T, a, b deltasync.Bus) {
	const n = 400 // fewer than any bus holds for a subscriber
	var running atomic.Int64
	got := make(chan string, n)
	_, err := a.Subscribe("hot.*", func(_ string, payload []byte) {
		if running.Add(1) != 1 {
			t.Error("two messages of one subscription were handed over at once")
		}
		got <- string(payload)
		running.Add(-1)
	})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	for i := range n {
		publish(t, b, fmt.Sprint("hot.", i%3), fmt.Sprint(i))
	}
	for i := range n {
		if m := next(t, "a message", got); m != fmt.Sprint(i) {
			t.Fatalf("received %s, want %d", m, i)
		}
	}
}

func testSlowSubscriber(t *testing.T, a, b deltasync.Bus) {
	const n = 3000 // more than any bus holds for a subscriber
	free := make(chan struct{})
	var slow []int // written by the slow subscriber alone, read after done
	done := make(chan struct{}, 1)
	_, err := a.Subscribe("hot", func(_ string, payload []byte) {
		<-free
		var i int
		if _, err := fmt.Sscan(string(payload), &i); err != nil {
			t.Errorf("payload %q: %v", payload, err)
		}
		if i == -1 {
			select {
			case done <- struct{}{}:
			default: // told already
			}
			return
		}
		slow = append(slow, i)
	})
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	_, same := subscribe(t, a, "hot")
	_, other := subscribe(t, b, "hot")
	for i := range n {
		publish(t, b, "hot", fmt.Sprint(i))
		for on, got := range map[string]<-chan string{"the same connection": same, "another connection": other} {
			if m, want := next(t, "a message", got), fmt.Sprint("hot ", i); m != want {
				t.Fatalf("subscriber on %s received %q, want %q", on, m, want)
			}
		}
	}
	close(free)
	// It hears again once it has caught up; until then marks may be lost too.
	for finished := false; !finished; {
		publish(t, b, "hot", "-1")
		next(t, "the mark", same)
		select {
		case <-done:
			finished = true
		default:
		}
	}
	if len(slow) == 0 || len(slow) > n/2 || !slices.IsSorted(slow) {
		t.Errorf("the slow subscriber received %d of %d messages (in order: %v), want some, lost others, and in order", len(slow), n, slices.IsSorted(slow))
	}
}
