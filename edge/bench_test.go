package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// BenchmarkCheck decides on a population of keys with Zipf-distributed
// popularity (s = 1.1): one rule, one rate of 40 sub-windows, the building of
// the request included; now is an argument.
//
//	go test -run '^$' -bench Check -cpu 1,2 ./edge
func BenchmarkCheck(b *testing.B) {
	for _, keys := range []int{1_000, 1_000_000} {
		for _, allow := range []bool{true, false} {
			limitOf := uint64(1 << 40)
			name := "allowed"
			if !allow {
				limitOf, name = 1, "denied"
			}
			b.Run(fmt.Sprintf("keys=%d/%s", keys, name), func(b *testing.B) {
				n := newNode(b, Config{MaxKeys: max(8*keys, shards*maxCounters)}, perUser(limit.RateSpec{Limit: limitOf, Per: time.Minute}))
				users := make([]string, keys)
				for i := range users {
					users[i] = fmt.Sprintf("user-%d", i)
					check(n, start, users[i])
				}
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					zipf := rand.NewZipf(rand.New(rand.NewPCG(1, rand.Uint64())), 1.1, 1, uint64(keys-1))
					order := make([]uint32, 1<<16)
					for i := range order {
						order[i] = uint32(zipf.Uint64())
					}
					ns := n.Rules().Only()
					now := start
					user, _ := ns.Slot("user")
					req := ns.NewRequest()
					defer req.Release()
					for i := 0; pb.Next(); i++ {
						req.Reset()
						req.SetSlot(user, users[order[i&(1<<16-1)]])
						n.Check(now, req)
						now = now.Add(100 * time.Nanosecond)
					}
				})
			})
		}
	}
}

// BenchmarkBatch is BenchmarkCheck in batches of 64; ns/op is of one decision.
//
//	go test -run '^$' -bench 'Check|Batch' -cpu 1,2 ./edge
func BenchmarkBatch(b *testing.B) {
	const keys, size = 1_000_000, 64
	n := newNode(b, Config{MaxKeys: 8 * keys}, perUser(limit.RateSpec{Limit: 1 << 40, Per: time.Minute}))
	users := make([]string, keys)
	for i := range users {
		users[i] = fmt.Sprintf("user-%d", i)
		check(n, start, users[i])
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(1, rand.Uint64())), 1.1, 1, keys-1)
		order := make([]uint32, 1<<16)
		for i := range order {
			order[i] = uint32(zipf.Uint64())
		}
		ns := n.Rules().Only()
		user, _ := ns.Slot("user")
		var reqs [size]*limit.Request
		for i := range reqs {
			reqs[i] = ns.NewRequest()
		}
		out := make([]limit.Decision, 0, size)
		now := start
		for i := 0; pb.Next(); i++ {
			req := reqs[i%size]
			req.Reset()
			req.SetSlot(user, users[order[i&(1<<16-1)]])
			if i%size == size-1 {
				out = n.CheckBatch(now, reqs[:], out[:0])
				now = now.Add(size * 100 * time.Nanosecond)
			}
		}
	})
}

// BenchmarkExchange tells of 500 keys in a frame, charged once each, and hears
// that others counted in 5 slices of each, which nothing says of again.
func BenchmarkExchange(b *testing.B) {
	const keys, perFrame, elsewhere = 4000, 500, 5
	n := newNode(b, Config{}, perUser(limit.RateSpec{Limit: 1e9, Per: time.Hour}))
	rate := n.Rules().Rules()[0].Rates[0]
	users := make([]string, keys)
	for i := range users {
		users[i] = fmt.Sprintf("user-%d", i)
	}
	var totals deltasync.Totals
	for i := range elsewhere {
		totals.Peers = append(totals.Peers, crdt.Cell{Slice: rate.SliceAt(start.UnixNano()) - crdt.Slice(elsewhere-1-i), Charges: 7})
	}
	now, told := start, 0
	flushing, receiving := time.Hour, time.Hour // the least that all took, as the machine may be busy
	for b.Loop() {
		var flushed, received time.Duration
		for first := 0; first < keys; first += perFrame {
			now = now.Add(time.Second)
			for _, user := range users[first : first+perFrame] {
				check(n, now, user)
			}
			at := time.Now()
			out := n.Flush(now)
			flushed += time.Since(at)
			for _, o := range out {
				var up deltasync.Up
				if err := up.UnmarshalBinary(o.Payload); err != nil {
					b.Fatal(err)
				}
				down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, LiveRegions: 2}
				for i := range up.Sections {
					for range up.Sections[i].Deltas {
						down.Totals = append(down.Totals, totals)
					}
				}
				told += len(down.Totals)
				reply, err := down.AppendBinary(nil)
				if err != nil {
					b.Fatal(err)
				}
				at := time.Now()
				err = n.Receive(now, o.Lane, reply)
				received += time.Since(at)
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		flushing, receiving = min(flushing, flushed), min(receiving, received)
		if rate.SliceAt(now.UnixNano())-totals.Peers[elsewhere-1].Slice > 30 { // they leave the window
			for i := range totals.Peers {
				totals.Peers[i].Slice += 30
			}
		}
	}
	b.ReportMetric(float64(flushing.Nanoseconds())/keys, "flush-ns/key")
	b.ReportMetric(float64(receiving.Nanoseconds())/keys, "receive-ns/key")
	b.ReportMetric(float64(told)/float64(b.N)/keys, "told/key")
}
