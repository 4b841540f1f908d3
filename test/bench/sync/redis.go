package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/test/bench/localredis"
)

// writing is what writes of keys cost.
type writing struct {
	reporters int // edges that have counts of each key, one of which has new ones
	slices    int // in each write
	redis     float64
	ours      float64 // ns a key written, of Redis' processor and of ours
}

func (w writing) flushes() float64 { return 1e9 / w.redis }
func (w writing) merges() float64  { return w.flushes() * float64(w.slices) }

const reporters = 1000 // at the most

// writings are those of P10, and those of P11 by the number of reporters.
var writings = []writing{{reporters: 1, slices: 5}, {reporters: 1, slices: 1}, {reporters: 10, slices: 1}, {reporters: 100, slices: 1}, {reporters: reporters, slices: 1}}

// together is how many keys are written at once.
const together = 128

// writer writes keys of a store of its own.
type writer struct {
	writing
	server *localredis.Server
	store  *redisstore.Store
	items  []regional.Item
	count  uint64
}

func newWriter(w writing, keys int) (*writer, error) {
	wr := &writer{writing: w}
	var err error
	if wr.server, err = localredis.Start(); err != nil {
		return nil, err
	}
	if wr.store, err = redisstore.New(redisstore.Config{Addrs: []string{wr.server.Addr}, Prefix: "sg", Timeout: 10 * time.Second}); err != nil {
		wr.server.Stop()
		return nil, err
	}
	wr.items = make([]regional.Item, keys)
	for i := range wr.items {
		wr.items[i] = regional.Item{Key: keyOf(i), Width: minute.Width, Slices: minute.Slices, Vectors: make([]regional.Vector, 1)}
	}
	for e := range w.reporters {
		if err := wr.write(e); err != nil {
			wr.close()
			return nil, err
		}
	}
	return wr, nil
}

func (w *writer) close() {
	_ = w.store.Close()
	w.server.Stop()
}

// write writes new counts of one edge, of every key.
func (w *writer) write(edge int) error {
	w.count++
	last := crdt.Slice(time.Now().UnixNano() / int64(minute.Width))
	for i := range w.items {
		v := &w.items[i].Vectors[0]
		v.Source, v.Replica = regional.FromEdge, crdt.Replica{Node: 1<<63 + uint64(edge), Incarnation: 1_790_000_000_000}
		v.Cells = v.Cells[:0]
		for s := range w.slices {
			v.Cells = append(v.Cells, crdt.Cell{Slice: last - crdt.Slice(w.slices-1-s), Charges: w.count})
		}
	}
	for at := 0; at < len(w.items); at += together {
		batch := w.items[at:min(at+together, len(w.items))]
		out, err := w.store.Merge(context.Background(), batch)
		if err != nil {
			return err
		}
		for i := range out {
			batch[i].Version = out[i].Version
		}
	}
	return nil
}

// round has the last edge count on, long enough for Redis' own clock, which
// ticks in milliseconds, and is what a key took.
func (w *writer) round(keys int) (redis, ours float64, err error) {
	before, err := w.server.Processor()
	if err != nil {
		return 0, 0, err
	}
	at, written := processor(), 0
	for written < keys {
		if err := w.write(w.reporters - 1); err != nil {
			return 0, 0, err
		}
		written += len(w.items)
	}
	spent := processor() - at
	after, err := w.server.Processor()
	return float64(after-before) / float64(written), float64(spent) / float64(written), err
}

func measureRedis(o options, f *findings) error {
	writers := make([]*writer, len(writings))
	for i, w := range writings {
		var err error
		if writers[i], err = newWriter(w, max(together, o.keys/w.reporters)); err != nil {
			return fmt.Errorf("%d reporters: %w", w.reporters, err)
		}
		defer writers[i].close()
	}
	samples := make([][2][]float64, len(writers))
	for range o.rounds {
		for i, w := range writers {
			redis, ours, err := w.round(4 * o.keys)
			if err != nil {
				return err
			}
			samples[i][0], samples[i][1] = append(samples[i][0], redis), append(samples[i][1], ours)
		}
	}
	for i, w := range writers {
		w.redis, w.ours = median(samples[i][0]), median(samples[i][1])
		f.writings = append(f.writings, w.writing)
	}
	return nil
}
