package redisstore_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/test/proc"
)

// fickle stands between a store and its Redis: it drops connections just when something
// is asked on them, or swallows what is asked.
type fickle struct {
	address string
	drops   atomic.Int64 // so many of the next calls of the script have their connection dropped
	deaf    atomic.Bool  // nothing is passed on
	dropped atomic.Int64
}

func newFickle(t *testing.T, target string) *fickle {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fickle{address: ln.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() { // ends when ln is closed; waited for in the cleanup, as those below
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			t.Cleanup(func() { _, _ = client.Close(), server.Close() })
			all.Go(func() { _, _ = io.Copy(client, server) })
			all.Go(func() { f.pass(client, server) })
		}
	})
	t.Cleanup(all.Wait) // runs after those that close the connections
	t.Cleanup(func() { _ = ln.Close() })
	return f
}

// pass passes on what the client asks, until either end is closed.
func (f *fickle) pass(client, server net.Conn) {
	defer server.Close()
	defer client.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if bytes.Contains(b[:n], []byte("evalsha")) && f.drops.Add(-1) >= 0 { // no greeting
			f.dropped.Add(1)
			return
		}
		if f.deaf.Load() {
			continue
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
	}
}

// What is lost with a connection is asked once more, and not again and again.
func TestOneRetry(t *testing.T) {
	f := newFickle(t, proc.Redis(t).Addr)
	s, _ := open(t, f.address)
	merge(t, s, one(1, 5))
	f.drops.Store(1)
	if _, err := s.Merge(t.Context(), []regional.Item{one(1, 6)}); err != nil || f.dropped.Load() != 1 {
		t.Errorf("a connection was dropped %d times under a question: %v, want it asked again", f.dropped.Load(), err)
	}
	f.dropped.Store(0)
	f.drops.Store(1000)
	if _, err := s.Merge(t.Context(), []regional.Item{one(1, 7)}); !errors.Is(err, regional.ErrStore) || f.dropped.Load() != 2 {
		t.Errorf("all are dropped: %v after it was asked %d times, want ErrStore after 2", err, f.dropped.Load())
	}
	f.drops.Store(0)
	merge(t, s, one(1, 8))
}

// A server that does not answer is given up in well under a second, one retry included:
// frames wait for the store meanwhile.
func TestTimeoutIsShort(t *testing.T) {
	f := newFickle(t, proc.Redis(t).Addr)
	s, _ := openWith(t, redisstore.Config{Addrs: []string{f.address}})
	proc.Until(t, 10*time.Second, func() error {
		_, err := s.Merge(t.Context(), []regional.Item{one(1, 5)})
		return err
	})
	f.deaf.Store(true)
	best := time.Hour // of a few: the machine runs other tests
	for range 3 {
		begin := time.Now()
		if _, err := s.Merge(t.Context(), []regional.Item{one(1, 6)}); !errors.Is(err, regional.ErrStore) {
			t.Fatalf("nobody answers, and Merge says %v, want ErrStore", err)
		}
		best = min(best, time.Since(begin))
	}
	if best > time.Second {
		t.Errorf("it was given up after %v, want less than a second", best)
	}
}
