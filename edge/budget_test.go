package edge

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// address is the i-th of a flood: half of them IPv4, half of them IPv6, each in
// a /64 of its own.
func address(i int) string {
	if i%2 == 0 {
		return netip.AddrFrom4([4]byte{byte(11 + i>>24), byte(i >> 16), byte(i >> 8), byte(i)}).String()
	}
	var a [16]byte
	a[0], a[1] = 0x20, 0x01
	binary.BigEndian.PutUint32(a[4:], uint32(i))
	a[15] = 1
	return netip.AddrFrom16(a).String()
}

// heardOf is the reply of a region where nobody else counts anything.
func heardOf(t *testing.T, payload []byte) []byte {
	t.Helper()
	var up deltasync.Up
	if err := up.UnmarshalBinary(payload); err != nil {
		t.Fatal(err)
	}
	down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, LiveRegions: 1}
	for i := range up.Sections {
		down.Totals = append(down.Totals, make([]deltasync.Totals, len(up.Sections[i].Deltas))...)
	}
	reply, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func perAddress(most uint64, per time.Duration) limit.RuleSpec {
	return limit.RuleSpec{Name: "address", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: most, Per: per}}}
}

func checkAddress(n *Node, now time.Time, address string) bool {
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("client_ip", address)
	return n.Check(now, req).Allowed
}

// liveHeap is the heap in use after a collection.
func liveHeap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A flood of keys stays within the budget, does not free those that were at
// their limits, and denies nobody else; whether the region hears of it or not.
func TestFloodOfKeys(t *testing.T) {
	alone.Mark(t)
	const limited, most = 2_000, 10
	for _, c := range []struct {
		name     string
		keys     int
		each     int // requests of a key of the flood
		uplinked bool
	}{{"cut off", 100_000, 1, false}, {"heard", 100_000, 1, true}, {"at the limit", 50_000, most, false}} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 3))
			n := newNode(t, Config{MaxKeys: 8192}, perAddress(most, time.Hour))
			admit := func(i, times int) (admitted int) {
				for range times {
					if checkAddress(n, start, address(i)) {
						admitted++
					}
				}
				return admitted
			}
			for i := range limited { // eight or nine, so that one or two are left
				admit(i, 8+i%2)
			}
			wrong := 0
			for i := limited; i < limited+c.keys; i++ {
				if admit(i, c.each) < c.each {
					wrong++
				}
				if i%1000 == 0 {
					for _, out := range n.Flush(start) {
						if c.uplinked {
							if err := n.Receive(start, out.Lane, heardOf(t, out.Payload)); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
			}
			if n.Keys() > 8192 {
				t.Errorf("%d keys are live, want 8192 at most", n.Keys())
			}
			if wrong*100 > c.keys {
				t.Errorf("%d of %d other keys were denied, want 1 %% at most", wrong, c.keys)
			}
			for range 500 {
				i := random.IntN(limited)
				if got := admit(i, 2*most); got > 2-i%2 {
					t.Errorf("key %d has %d more admitted after the flood, want %d at most", i, got, 2-i%2)
				}
			}
			st := n.Stats(start)
			if st.BlockedLost != 0 || c.each == most && st.Blocked == 0 { // else they are the last to be forgotten
				t.Errorf("%d keys blocked, %d lost; want some and none", st.Blocked, st.BlockedLost)
			}
		})
	}
}

func TestMaxBytes(t *testing.T) {
	alone.Mark(t)
	const budget = minBytes
	for _, c := range []struct {
		name           string
		rate           limit.RateSpec
		cost           uint64
		keys, requests int
		pause          time.Duration
	}{
		{"sparse", limit.RateSpec{Limit: 100, Per: time.Hour}, 1, 60_000, 60_000, 0},
		{"at the limit", limit.RateSpec{Limit: 1, Per: time.Hour}, 1, 60_000, 60_000, 0},
		{"many slices", limit.RateSpec{Limit: 1 << 53, Per: time.Hour, Algorithm: "sub_windows", Slices: 900}, 1 << 33, 3_000, 300_000, 1333 * time.Microsecond},
		{"buckets", limit.RateSpec{Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 1, Per: time.Minute}}, 1, 60_000, 60_000, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := liveHeap()
			n := newNode(t, Config{MaxBytes: budget}, limit.RuleSpec{Name: "address", Key: []string{"client_ip"}, Cost: limit.CostSpec{Default: c.cost, Max: c.cost}, Rates: []limit.RateSpec{c.rate}})
			now := start
			for i := range c.requests {
				checkAddress(n, now, address(i%c.keys))
				now = now.Add(c.pause)
				if i%2000 == 0 {
					n.Flush(now)
					for range 10 {
						n.Tick(now)
					}
				}
			}
			took := liveHeap() - before
			if took > budget*11/10 {
				t.Errorf("the node takes %d bytes, want %d and a tenth at most", took, budget)
			}
			if n.Keys() < 500 {
				t.Errorf("%d keys are live: the budget holds more", n.Keys())
			}
			if st := n.Stats(now); st.Evicted+st.EvictedLost == 0 {
				t.Errorf("nothing was forgotten: %+v", st)
			}
			t.Logf("%d bytes, %d live keys, %.0f bytes each of the ledger's share", took, n.Keys(), float64(budget*ledgerShare/allShares)/float64(n.Keys()))
			runtime.KeepAlive(n)
		})
	}
}

// The race detector looks at a flood from several sides, while the node tells,
// sweeps, hears pushes and is scraped.
func TestFloodFromManyGoroutines(t *testing.T) {
	const most = 3
	n := newNode(t, Config{MaxKeys: 8192}, perAddress(most, time.Hour))
	rate := n.Rules().Rules()[0].Rates[0]
	push := pushOf(t, rate, keyFor(n, "client_ip", address(7), 0), start, most, 0)
	var asking, working sync.WaitGroup
	done := make(chan struct{})
	working.Go(func() { // done ends it; waited for below
		for {
			select {
			case <-done:
				return
			default:
			}
			n.Flush(start)
			n.Tick(start)
			n.Stats(start)
			if err := n.ReceiveHot(start, push); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var admitted [4]int
	for g := range admitted {
		asking.Go(func() { // ends by itself; waited for below
			for i := range 20_000 {
				checkAddress(n, start, address(100+g+4*i))
				if i%100 == 0 && checkAddress(n, start, address(8)) {
					admitted[g]++
				}
			}
		})
	}
	asking.Wait()
	close(done)
	working.Wait()
	if total := admitted[0] + admitted[1] + admitted[2] + admitted[3]; total != most {
		t.Errorf("%d requests of one key are admitted by four goroutines, want %d", total, most)
	}
	if n.Keys() > 8192 {
		t.Errorf("%d keys are live, want 8192 at most", n.Keys())
	}
}

// One request may need more records than a shard can hold: they are kept all
// the same, until it is decided.
func TestMaxBytesHoldsWhatOneRequestNeeds(t *testing.T) {
	var rules []limit.RuleSpec
	for i := range maxCounters {
		rules = append(rules, limit.RuleSpec{Name: fmt.Sprint("r", i), Group: fmt.Sprint("g", i), Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}})
	}
	n := newNode(t, Config{MaxBytes: minBytes}, rules...)
	for i := range n.shards {
		n.shards[i].bytes = 1
	}
	for i := range 100 {
		if !check(n, start, fmt.Sprint("u", i)).Allowed {
			t.Fatalf("user %d is denied", i)
		}
	}
}

func TestMaxBytesMistakes(t *testing.T) {
	for _, bytes := range []int64{-1, 1, minBytes - 1} {
		_, err := New(Config{Region: "eu", Pop: "fra", Name: "e1", Secret: testSecret, MaxBytes: bytes})
		if err == nil || !strings.Contains(err.Error(), "MaxBytes") {
			t.Errorf("MaxBytes %d: %v, want it named", bytes, err)
		}
	}
}

// Keys that are forgotten and come again while nothing can be sent stand in the
// dirty list once, however often they do.
func TestDirtyListIsBounded(t *testing.T) {
	alone.Mark(t)
	n := newNode(t, Config{MaxKeys: 8192}, perAddress(10, time.Hour))
	for i := range 200_000 {
		checkAddress(n, start, address(i%10_000))
	}
	for i := range n.shards {
		s := &n.shards[i]
		entries := func() []deltasync.Key { return slices.Concat(s.dirty[:]...) }
		if most := smallestTable + 2*s.used + 1; len(entries()) > most {
			t.Fatalf("shard %d: %d entries for %d records, want %d at most", i, len(entries()), s.used, most)
		}
		s.compact()
		if len(entries()) > s.used {
			t.Fatalf("shard %d: %d entries for %d records after compacting", i, len(entries()), s.used)
		}
		for _, key := range entries() {
			if s.find(key).flags&dirty == 0 {
				t.Fatal("a record of the list is not dirty")
			}
		}
		for c, list := range s.dirty {
			if len(list) > 0 && s.waits.Load()&(1<<c) == 0 {
				t.Fatalf("shard %d: a flush would pass over the %d records of class %d", i, len(list), c)
			}
		}
	}
}

// Logs are in the budget: keys that remember thousands of hits each make room
// for each other.
func TestMaxBytesHoldsLogs(t *testing.T) {
	alone.Mark(t)
	const budget = 16 << 20
	n := newNode(t, Config{MaxBytes: budget}, perUser(limit.RateSpec{Limit: 4000, Per: time.Hour, Algorithm: "sliding_log", Scope: "edge"}))
	before, now := liveHeap(), start
	for u := range 1500 {
		req := requestOf(n, fmt.Sprint(u))
		for range 2000 {
			now = now.Add(time.Microsecond)
			n.Check(now, req)
		}
		req.Release()
	}
	if got := liveHeap() - before; got > budget {
		t.Errorf("%d keys with a log take %d MiB of a budget of %d", n.Keys(), got>>20, budget>>20)
	}
	if n.Keys() < 100 {
		t.Errorf("%d keys are left: room for more was not used", n.Keys())
	}
}

// So are limits that requests name for themselves, each another one: its counter keeps it.
func TestMaxBytesHoldsLimitsOfRequests(t *testing.T) {
	alone.Mark(t)
	const budget = 32 << 20
	rule := perUser(limit.RateSpec{Name: "r", Algorithm: "fixed_window", Limit: 10, Per: time.Hour})
	rule.Margin = limit.MarginSpec{SoftPercent: 10, Elastic: limit.ElasticSpec{UpToPercent: 60, While: "capacity.api < 50%"}}
	n := newNode(t, Config{MaxBytes: budget}, rule)
	before := liveHeap()
	for u := range 100_000 {
		req := requestOf(n, fmt.Sprint(u))
		req.Override("api.r", uint64(1000+u))
		n.Check(start, req)
		req.Release()
	}
	if got := liveHeap() - before; got > budget {
		t.Errorf("%d keys with a limit of their own take %d MiB of a budget of %d", n.Keys(), got>>20, budget>>20)
	}
	if n.Keys() < 5000 {
		t.Errorf("%d keys are left: room for more was not used", n.Keys())
	}
}

// All that is shared out, and what a node takes without a key, is the budget.
func TestBudgetIsSharedOut(t *testing.T) {
	for _, most := range []int64{minBytes, 64 << 20, 1 << 30} {
		cfg, err := Config{Region: "r", Pop: "p", Name: "n", Secret: testSecret, MaxBytes: most}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		b := cfg.budget()
		total := int64(shards*(b.bytes+b.holds*holdBytes+b.buckets*8) + cfg.Lanes*b.deltas*deltaBytes + fixedBytes)
		if total > most || total < most*95/100 {
			t.Errorf("%d bytes of %d are shared out, what is fixed included", total, most)
		}
	}
}

// So many keys as configs/README.md says stay limited when they are forgotten find a place,
// and those far beyond are counted as lost.
func TestBudgetHasPlacesForForgottenKeys(t *testing.T) {
	alone.Mark(t)
	for _, c := range []struct {
		cfg  Config
		keys int
		lost bool
	}{
		{Config{MaxKeys: 1 << 20}, 7 << 20, false},
		{Config{MaxKeys: 1 << 20}, 9 << 20, true},
		{Config{MaxBytes: 224 << 20}, 224 << 20 / 5, false},
		{Config{MaxBytes: 224 << 20}, 224 << 20 / 4, true},
	} {
		c.cfg.Region, c.cfg.Pop, c.cfg.Name, c.cfg.Secret = "r", "p", "n", testSecret
		cfg, err := c.cfg.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		most := cfg.budget()
		b, random, now := blocked{most: most.holds, filter: filter{most: most.buckets}}, rand.New(rand.NewPCG(1, 1)), start.UnixNano()
		for range c.keys / shards {
			b.put(newHold(deltasync.Key(random.Uint64()), hundred, held{until: now + 30*second, used: 100}), now)
		}
		if lost := b.filter.full; lost > 0 != c.lost {
			t.Errorf("of %d keys with max_keys %d, or max_bytes %d, %d a shard are given up, want some: %t", c.keys, c.cfg.MaxKeys, c.cfg.MaxBytes, lost, c.lost)
		}
	}
}
