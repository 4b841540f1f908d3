package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// BenchmarkCost is what one key costs a redis-server, by its own processor time
// and memory: a write of one slice of one edge, of keys that so many edges
// counted, each in so many slices. The capacity paper (test/sim/capacity) is
// made of these.
func BenchmarkCost(b *testing.B) {
	const total, atOnce = 1 << 11, 128
	for _, bb := range []struct{ edges, slices int }{{1, 1}, {4, 1}, {16, 1}, {1, 10}, {1, 40}, {2, 40}, {10, 40}, {100, 40}} {
		b.Run(fmt.Sprintf("edges=%d/slices=%d", bb.edges, bb.slices), func(b *testing.B) {
			s, client := open(b, proc.Redis(b).Addr)
			empty := info(b, client, "memory", "used_memory")
			items := make([]regional.Item, total)
			mergeAll := func() {
				for at := 0; at < total; at += atOnce {
					out, err := s.Merge(context.Background(), items[at:at+atOnce])
					if err != nil {
						b.Fatal(err)
					}
					for i := range out {
						items[at+i].Version = out[i].Version
					}
				}
			}
			for e := range bb.edges {
				for i := range items {
					version := items[i].Version
					items[i] = one(deltasync.Key(rand.NewPCG(uint64(i), 1).Uint64()), 1)
					items[i].Version = version
					v := &items[i].Vectors[0]
					v.Replica = crdt.Replica{Node: 1<<63 + uint64(e), Incarnation: 1_790_000_000_000}
					last := v.Cells[0].Slice
					v.Cells = nil
					for j := range bb.slices {
						v.Cells = append(v.Cells, crdt.Cell{Slice: last - crdt.Slice(bb.slices-1-j), Charges: 200})
					}
				}
				mergeAll()
			}
			held := info(b, client, "memory", "used_memory") - empty
			groups := client.DBSize(context.Background()).Val()
			for i := range items {
				v := &items[i].Vectors[0]
				v.Cells = v.Cells[bb.slices-1:]
			}
			spent := processorTime(b, client)
			for b.Loop() {
				for i := range items {
					items[i].Vectors[0].Cells[0].Charges++
				}
				mergeAll()
			}
			b.ReportMetric(float64((processorTime(b, client)-spent).Nanoseconds())/float64(b.N)/total, "redis-cpu-ns/key")
			b.ReportMetric(held/total, "redis-B/key")
			b.ReportMetric(float64(groups)/total, "groups/key")
		})
	}
}

// processorTime is what the server had of processors.
func processorTime(b *testing.B, client *redis.Client) time.Duration {
	b.Helper()
	return time.Duration((info(b, client, "cpu", "used_cpu_user") + info(b, client, "cpu", "used_cpu_sys")) * float64(time.Second))
}

func info(b *testing.B, client *redis.Client, section, field string) float64 {
	b.Helper()
	text, err := client.Info(context.Background(), section).Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			return v
		}
	}
	b.Fatalf("INFO %s has no %s", section, field)
	return 0
}
