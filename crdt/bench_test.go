package crdt_test

import (
	"testing"

	"github.com/spillgate/spillgate/crdt"
)

// full is a key as a busy region holds it: 10 replicas, 40 slices.
func full() *crdt.GCounter {
	g := &crdt.GCounter{}
	for r := range uint64(10) {
		for s := range crdt.Slice(40) {
			g.Join(crdt.Replica{Node: r}, crdt.Cell{Slice: 1e9 + s, Charges: 100 + r, Refunds: r & 1})
		}
	}
	return g
}

func BenchmarkJoin(b *testing.B) {
	g := full()
	c := crdt.Cell{Slice: 1e9 + 39, Charges: 200}
	r := crdt.Replica{Node: 7}
	b.ReportAllocs()
	for b.Loop() {
		c.Charges++
		g.Join(r, c)
	}
}

func BenchmarkMergeUnchanged(b *testing.B) {
	g, o := full(), full()
	b.ReportAllocs()
	for b.Loop() {
		if g.Merge(o) {
			b.Fatal("Merge of an equal counter said that something changed")
		}
	}
}

// BenchmarkMergeLives joins a node of 1024 lives, of which nothing is new.
func BenchmarkMergeLives(b *testing.B) {
	g, o := &crdt.GCounter{}, &crdt.GCounter{}
	for life := range uint64(1024) {
		g.Join(crdt.Replica{Node: 1, Incarnation: life}, crdt.Cell{Slice: 1e9, Charges: 1})
	}
	o.Merge(g)
	b.ReportAllocs()
	for b.Loop() {
		if g.Merge(o) {
			b.Fatal("Merge of an equal counter said that something changed")
		}
	}
}

func BenchmarkSums(b *testing.B) {
	g := full()
	buf := make([]crdt.Cell, 0, 40)
	b.ReportAllocs()
	for b.Loop() {
		buf = g.Sums().From(1e9, buf[:0])
	}
	if len(buf) != 40 {
		b.Fatalf("%d slices, want 40", len(buf))
	}
}

func BenchmarkVectorMove(b *testing.B) {
	var v crdt.Vector
	now := crdt.Slice(1e9)
	b.ReportAllocs()
	for b.Loop() {
		v.Add(crdt.Cell{Slice: now, Charges: 200})
		v.Retire(now - 39)
		now++
	}
}
