package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// A short run measures all that it reports.
func TestAllIsMeasured(t *testing.T) {
	o := options{rounds: 3, keys: reporters, lasts: time.Second}
	var f findings
	for _, measure := range []func(options, *findings) error{measureEdge, measureAggregator, measureRedis} {
		if err := measure(o, &f); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range f.edge {
		if e.flush <= 0 || e.receive <= 0 || e.handle <= 0 {
			t.Errorf("not all is measured: %+v", e)
		}
	}
	for _, h := range f.handlings {
		if h.perFlush <= 0 || h.bytes <= 0 {
			t.Errorf("not all is measured: %+v", h)
		}
	}
	for _, w := range f.writings {
		if w.redis <= 0 || w.ours <= 0 {
			t.Errorf("not all is measured: %+v", w)
		}
	}
	f.traffic = traffic{frames: 1, keys: 100, again: 40, againCells: 120, asked: 28, up: 1400, heads: 100, down: 4000, hotKeys: 1, hotDown: 90}
	var report bytes.Buffer
	f.write(&report, []string{"-rounds", "3"})
	for _, want := range []string{"≤ 12 B | 13 B | **missed** |", "≤ 40 B | 40 B | met |", "| P10 |", "| P11 |", "sync -rounds 3`", "would take 11.8 B here"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, &report)
		}
	}
	if f.missed() == 0 {
		t.Error("nothing is missed, though a key costs 13 B")
	}
}

// What frames cost is read off them.
func TestTraffic(t *testing.T) {
	p, err := newPair(100, 40)
	if err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(time.Second)
	for _, req := range p.reqs {
		p.Check(p.now, req)
	}
	seen := traffic{hot: map[deltasync.Key]bool{}}
	seen.frames = 15 // the next is looked at more closely
	for _, o := range p.Flush(p.now) {
		reply := p.hub.Handle(t.Context(), p.now, o.Subject, o.Payload)
		if err := seen.add(o.Payload, reply); err != nil {
			t.Fatal(err)
		}
		if seen.up != len(o.Payload) || seen.down != len(reply) {
			t.Errorf("%+v of frames of %d and %d bytes", seen, len(o.Payload), len(reply))
		}
	}
	if len(seen.hot) != 100 || seen.hotKeys != 100 || seen.heads == 0 || seen.heads > 150 {
		t.Errorf("%d keys are hot, %d were looked at, heads are %d B", len(seen.hot), seen.hotKeys, seen.heads)
	}
	if x := seen.parts; x.looked != 100 || x.names < 800 || x.names > 810 || x.cells < 100 || x.heard+x.flags+x.cells+x.names != seen.up-seen.heads {
		t.Errorf("taken apart a frame is %+v of %d bytes", x, seen.up-seen.heads)
	}
	if seen.frames != 16 || seen.keys != 100 || seen.asked+seen.again != 0 {
		t.Errorf("%+v, want a frame more, of 100 keys", seen)
	}
	if err := seen.add([]byte("no frame"), nil); err == nil {
		t.Error("what is no frame was counted")
	}
}

// The least that the report names is what the codec takes.
func TestLeast(t *testing.T) {
	const keys = 7
	size := func(deltas []deltasync.Delta) int {
		_, b, err := frame(time.Unix(1_790_000_000, 0), "e1", 1, minute, deltas)
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	var deltas []deltasync.Delta
	for i := range keys {
		last := crdt.Slice(1_790_000_000 * int64(time.Second) / int64(minute.Width))
		deltas = append(deltas, deltasync.Delta{Key: keyOf(i), Heard: last - 1, Cells: []crdt.Cell{{Slice: last, Charges: 9}}})
	}
	if got, want := size(deltas)-size(nil), int(keys*least(keys)+0.5); got != want {
		t.Errorf("%d keys take %d B, the least is said to be %d", keys, got, want)
	}
}

func TestBadOptions(t *testing.T) {
	for _, args := range []string{"x", "-rounds 2", "-keys 10", "-lasts 1ms", "-loud"} {
		if err := run(strings.Fields(args), io.Discard, io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}
