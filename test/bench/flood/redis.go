package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
)

// scaleOfRedis is by how much the flood is smaller where each key goes to a real
// Redis, and that Redis smaller than the budget.
const scaleOfRedis = 10

// server is a Redis of its own, as deploy/redis has it but for its size.
type server struct {
	process *exec.Cmd
	dir     string
	addr    string
	store   *redisstore.Store
	max     int64
	epoch   uint64
}

// shedding is what became of the Redis.
type shedding struct {
	Peak, Max   int64 // bytes
	Shed        int64 // names
	EpochKept   bool
	Gone, Back  int    // limited keys that it had lost when the flood ended, and those after a refresh
	Restored    uint64 // keys that were written again
	KeysInRedis int64
}

func startRedis(o options) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port for Redis: %w", err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if err := l.Close(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "spillgate-flood")
	if err != nil {
		return nil, err
	}
	s := &server{max: o.budget / scaleOfRedis, dir: dir}
	s.process = exec.Command("redis-server", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--maxmemory", fmt.Sprint(s.max), "--maxmemory-policy", "volatile-ttl", "--lazyfree-lazy-expire", "yes")
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server, which ./test/run installs: %w", err)
	}
	s.addr = addr
	if s.store, err = redisstore.New(redisstore.Config{Addrs: []string{addr}, Prefix: "sg", Timeout: 10 * time.Second}); err != nil {
		s.stop()
		return nil, err
	}
	for range 100 {
		if s.epoch, err = s.store.Epoch(context.Background()); err == nil {
			return s, nil
		}
		time.Sleep(50 * time.Millisecond) // it is starting
	}
	s.stop()
	return nil, fmt.Errorf("redis-server does not answer: %w", err)
}

func (s *server) stop() {
	if s.store != nil {
		_ = s.store.Close()
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait() // it was killed
	_ = os.RemoveAll(s.dir)
}

// measure reads what became of it: of the limited keys before and after their edge
// tells them all again, as it does each sixth of a window.
func (s *server) measure(h *hub, first, n int, had func(i int) uint64) (*shedding, error) {
	ctx := context.Background()
	out := &shedding{Max: s.max}
	gone := func() (lost int, err error) {
		items := make([]regional.Item, n)
		for i := range items {
			items[i] = regional.Item{Key: keyOf(first + i), Width: shape.Width, Slices: shape.Slices}
		}
		answer, err := s.store.Load(ctx, items)
		if err != nil {
			return 0, err
		}
		for i := range answer {
			used := uint64(0)
			for _, v := range answer[i].Vectors {
				for _, c := range v.Cells {
					used += c.Net()
				}
			}
			if used < had(i) {
				lost++
			}
		}
		return lost, nil
	}
	var err error
	if out.Gone, err = gone(); err != nil {
		return nil, err
	}
	time.Sleep(1100 * time.Millisecond) // what Redis said last is good for a second
	h.now = time.Now()
	h.each(first, n, func(lane int, which []int, deltas []deltasync.Delta) {
		for i := range deltas {
			deltas[i].Flags = deltasync.FlagRefresh
			deltas[i].Cells = []crdt.Cell{{Slice: h.began, Charges: had(which[i])}}
		}
		h.send("before", lane, deltas)
	})
	if err := h.Sync(ctx, h.now); err != nil {
		return nil, fmt.Errorf("write back what was shed: %w", err)
	}
	if out.Back, err = gone(); err != nil {
		return nil, err
	}
	out.Back = out.Gone - out.Back
	out.Restored = h.Stats(h.now).Restored
	epoch, err := s.store.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	out.EpochKept = epoch == s.epoch
	for _, f := range []struct {
		section, name string
		to            *int64
	}{{"memory", "used_memory_peak:", &out.Peak}, {"stats", "evicted_keys:", &out.Shed}} {
		if *f.to, err = s.info(f.section, f.name); err != nil {
			return nil, err
		}
	}
	out.KeysInRedis, err = s.info("keyspace", "db0:keys=")
	return out, err
}

// info is a number that Redis says of itself.
func (s *server) info(section, name string) (n int64, err error) {
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		return 0, fmt.Errorf("ask Redis: %w", err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "INFO %s\r\nQUIT\r\n", section); err != nil {
		return 0, fmt.Errorf("ask Redis: %w", err)
	}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok {
			_, err := fmt.Sscan(rest, &n)
			return n, err
		}
	}
	return 0, errors.New("Redis says nothing of " + name)
}
