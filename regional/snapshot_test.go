package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// snapshot asks for all parts, and checks each.
func (r *region) snapshot() (parts []deltasync.Hot) {
	r.t.Helper()
	for from := uint64(0); ; {
		snap := deltasync.Snap{Region: r.name, Lanes: 1, From: from}
		b, err := snap.AppendBinary(nil)
		if err != nil {
			r.t.Fatal(err)
		}
		answer := r.Snapshot(r.now, b)
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(answer); err != nil {
			r.t.Fatalf("part from %d, of %d bytes: %v", from, len(answer), err)
		}
		if hot.Region != r.name || hot.Next != 0 && hot.Next <= from {
			r.t.Fatalf("part from %d is of %s and goes on at %d", from, hot.Region, hot.Next)
		}
		parts = append(parts, hot)
		if from = hot.Next; from == 0 {
			return parts
		}
	}
}

// fill tells of keys, each with its count in a run of slices.
func (e *edge) fill(r *region, shape deltasync.Shape, from, to deltasync.Key, slices int, count func(deltasync.Key) uint64) {
	r.t.Helper()
	sec := deltasync.Section{Shape: shape}
	for key := from; key <= to; key++ {
		d := deltasync.Delta{Key: key}
		for i := slices; i > 0; i-- {
			d.Cells = append(d.Cells, charge(r.now.Add(time.Duration(1-i)*shape.Width), count(key)))
		}
		if sec.Deltas = append(sec.Deltas, d); len(sec.Deltas) == 200 || key == to {
			e.send(r, sec)
			sec.Deltas = nil
		}
	}
}

// A snapshot has every key at a quarter of its limit or more, once, with what
// everybody counted, the nearest to its limit first, in frames.
func TestSnapshotHasTheHotKeys(t *testing.T) {
	for _, slices := range []int{1, 40} {
		r := newRegion(t, "eu", newStore(&start), "us")
		r.inherit(nil)
		wide := minute
		wide.Generation, wide.Limit = 9, 1_000_000_000
		e := &edge{name: "e1"}
		const keys = 3000
		e.fill(r, minute, 1, keys, slices, func(k deltasync.Key) uint64 { return 1 + uint64(k)%120/uint64(slices) })
		e.fill(r, wide, keys+1, 2*keys, slices, func(k deltasync.Key) uint64 { return 1 + wide.Limit*uint64(k)/10_000/uint64(slices) })
		penalty := deltasync.Delta{Key: 9999, Until: r.now.Add(time.Hour).UnixNano()}
		e.send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{penalty}})
		used := func(s deltasync.Shape, k *deltasync.HotKey) float64 {
			return float64(charges(k.Peers)) / float64(s.Limit)
		}
		want := 1
		for k := deltasync.Key(1); k <= keys; k++ {
			if (1+uint64(k)%120/uint64(slices))*uint64(slices) >= 25 {
				want++
			}
		}
		want += keys // all are above 30 %

		parts := r.snapshot()
		seen := map[deltasync.Key]bool{}
		before := 1e9
		for n, p := range parts {
			least, most := 1e9, 0.0
			for _, s := range p.Sections {
				for i := range s.Keys {
					k := &s.Keys[i]
					if seen[k.Key] {
						t.Fatalf("key %d stands there twice", k.Key)
					}
					seen[k.Key] = true
					share := used(s.Shape, k)
					if k.Until != 0 {
						share = 1
					}
					least, most = min(least, share), max(most, share)
				}
			}
			if least < 0.25 || most > before {
				t.Errorf("part %d has keys at %.2f to %.2f of their limits, the one before at %.2f or more", n, least, most, before)
			}
			before = least
		}
		if len(seen) != want || !seen[9999] {
			t.Errorf("%d slices: %d keys in %d parts, want %d and the one with a penalty", slices, len(seen), len(parts), want)
		}
		t.Logf("%d slices: %d keys in %d parts", slices, len(seen), len(parts))
	}
}

// Keys that take far more room than most still come, in more parts.
func TestSnapshotOfLargeKeys(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	r.inherit(nil)
	large := deltasync.Shape{Generation: 7, Width: 25 * time.Millisecond, Slices: 1000, Limit: 100}
	e := &edge{name: "e1"}
	for key := deltasync.Key(1); key <= 20; key++ {
		d := deltasync.Delta{Key: key}
		first := crdt.Slice(r.now.UnixNano()/int64(large.Width)) - 999
		for i := range crdt.Slice(1000) {
			d.Cells = append(d.Cells, crdt.Cell{Slice: first + i, Charges: 1<<63 + uint64(i), Refunds: 1 << 62})
		}
		e.send(r, deltasync.Section{Shape: large, Deltas: []deltasync.Delta{d}})
	}
	keys := 0
	for _, p := range r.snapshot() {
		for _, s := range p.Sections {
			keys += len(s.Keys)
		}
	}
	if keys != 20 {
		t.Errorf("%d keys, want 20", keys)
	}
}

// What cannot be answered is not: it is of another region, of other lanes, or the
// lane is another's or not yet read.
func TestSnapshotIsRefused(t *testing.T) {
	ask := func(r *region, s deltasync.Snap) bool {
		b, err := s.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		var hot deltasync.Hot
		return hot.UnmarshalBinary(r.Snapshot(r.now, b)) == nil
	}
	good := deltasync.Snap{Region: "eu", Lanes: 1}
	r := newRegion(t, "eu", newStore(&start))
	if ask(r, good) {
		t.Error("it is answered before the lane's hot keys were read")
	}
	r.inherit(nil)
	if !ask(r, good) || !ask(r, deltasync.Snap{Region: "eu", Lanes: 1, From: 1 << 60}) {
		t.Error("it is not answered")
	}
	if ask(r, deltasync.Snap{Region: "us", Lanes: 1}) || ask(r, deltasync.Snap{Region: "eu", Lanes: 8, Lane: 0}) {
		t.Error("it is answered to another region, or by other lanes")
	}
	name := r.yield()
	for range 3 { // it serves what it gave away for a second
		r.now = r.now.Add(400 * time.Millisecond)
		r.beat(deltasync.Live{Name: name})
	}
	if ask(r, good) {
		t.Error("it is answered by who does not own the lane")
	}
	down := newRegion(t, "eu", &broken{Store: newStore(&start), down: true})
	_ = down.Sync(t.Context(), down.now)
	if _ = down.Inherit(t.Context(), down.now); !ask(down, good) {
		t.Error("it is not answered while the store is away")
	}
}

// While one edge is told part by part, others do not change what it is told; one
// that begins later is told what is hot then.
func TestSnapshotHoldsStill(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	r.inherit(nil)
	e := &edge{name: "e1"}
	const keys = 4000
	e.fill(r, minute, 1, keys, 1, func(deltasync.Key) uint64 { return 50 })
	seen := map[deltasync.Key]int{}
	for from, n := uint64(0), 0; n == 0 || from != 0; n++ {
		snap := deltasync.Snap{Region: "eu", Lanes: 1, From: from}
		b, _ := snap.AppendBinary(nil)
		var hot deltasync.Hot
		if err := hot.UnmarshalBinary(r.Snapshot(r.now, b)); err != nil {
			t.Fatal(err)
		}
		for _, s := range hot.Sections {
			for _, k := range s.Keys {
				seen[k.Key]++
			}
		}
		from = hot.Next
		e.fill(r, minute, deltasync.Key(keys+1+n*300), deltasync.Key(keys+300+n*300), 1, func(deltasync.Key) uint64 { return 99 })
		r.now = r.now.Add(100 * time.Millisecond)
	}
	for key := deltasync.Key(1); key <= keys; key++ {
		if seen[key] != 1 {
			t.Fatalf("key %d was told %d times, want once", key, seen[key])
		}
	}
	r.now = r.now.Add(time.Second)
	if first := r.snapshot()[0].Sections[0].Keys[0]; charges(first.Peers) != 99 {
		t.Errorf("a later one begins with a key at %d, want one of those at 99 that came since", charges(first.Peers))
	}
}

// Poison on the subject of snapshots is answered with a status, and counted by reason.
func TestPoisonedSnapsAreCounted(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	for range 300 {
		var down deltasync.Down
		if err := down.UnmarshalBinary(r.Snapshot(start, []byte("poison"))); err != nil || down.Status != deltasync.StatusUnsupported {
			t.Fatalf("poison is answered with %+v, %v, want %s", down, err, deltasync.StatusUnsupported)
		}
	}
	if st := r.Stats(start); st.Refused["malformed"] != 300 || st.Muted != 0 {
		t.Errorf("refused %v, %d muted; want 300 malformed, and nobody muted, as nobody is known", st.Refused, st.Muted)
	}
}
