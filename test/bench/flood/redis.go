package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/bench/localredis"
)

// scaleOfRedis is by how much the flood is smaller where each key goes to a real
// Redis, and that Redis smaller than the budget.
const scaleOfRedis = 10

// server is a Redis of its own, as deploy/redis has it but for its size.
type server struct {
	*localredis.Server
	store *redisstore.Store
	max   int64
	epoch uint64
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
	s := &server{max: o.budget / scaleOfRedis}
	awaitGroup(20*time.Second + time.Duration(o.keys/scaleOfRedis)*100*time.Microsecond)
	var err error
	if s.Server, err = localredis.Start("--maxmemory", fmt.Sprint(s.max), "--maxmemory-policy", "volatile-ttl", "--lazyfree-lazy-expire", "yes"); err != nil {
		return nil, err
	}
	if s.store, err = redisstore.New(redisstore.Config{Addrs: []string{s.Addr}, Prefix: "sg", Timeout: 10 * time.Second}); err == nil {
		s.epoch, err = s.store.Epoch(context.Background())
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// awaitGroup waits, where one of the groups in which Redis keeps slices, which are as
// long as a window, would end while the scenario runs, until it has: what was counted
// in the one before is shed first, and again once it is back, which is right, and not
// what is measured.
func awaitGroup(takes time.Duration) {
	group := shape.Width * time.Duration(shape.Slices)
	if left := group - time.Duration(time.Now().UnixNano()%int64(group)); left < takes {
		fmt.Fprintf(os.Stderr, "waiting %s for the next window\n", left.Round(time.Second))
		time.Sleep(left)
	}
}

func (s *server) stop() {
	if s.store != nil {
		_ = s.store.Close()
	}
	s.Stop()
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
	}{{"memory", "used_memory_peak:", &out.Peak}, {"stats", "evicted_keys:", &out.Shed}, {"keyspace", "db0:keys=", &out.KeysInRedis}} {
		n, err := s.Info(f.section, f.name)
		if err != nil {
			return nil, err
		}
		*f.to = int64(n)
	}
	return out, nil
}
