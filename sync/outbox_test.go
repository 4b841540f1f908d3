package deltasync

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

var head = Up{Kind: KindEdge, Region: "eu", Pop: "ams", Name: "edge-1", Node: 1, Incarnation: 2, Lanes: 1, SentAt: 3}

func mustPut(t *testing.T, o *Outbox, shape Shape, life uint32, d Delta) {
	t.Helper()
	if !o.Put(shape, life, d) {
		t.Fatalf("Put(%v) = false with %d pending", d, o.Pending())
	}
}

func keysOf(u *Up) (keys []Key) {
	for _, s := range u.Sections {
		for _, d := range s.Deltas {
			keys = append(keys, d.Key)
		}
	}
	return keys
}

func TestOutboxCoalesces(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	mustPut(t, o, minute, 1, Delta{Key: 1, Flags: FlagTouch})
	mustPut(t, o, minute, 1, Delta{Key: 1, Flags: FlagRefresh, Cells: []crdt.Cell{{Slice: 5, Charges: 3, Refunds: 1}}})
	mustPut(t, o, minute, 1, Delta{Key: 1, Cells: []crdt.Cell{{Slice: 4, Charges: 9}, {Slice: 5, Charges: 2, Refunds: 2}}})
	mustPut(t, o, minute, 1, Delta{Key: 1, Flags: FlagTouch})
	mustPut(t, o, minute, 2, Delta{Key: 1, Cells: cell(5, 1)}) // another life
	other := minute
	other.Generation++
	mustPut(t, o, other, 1, Delta{Key: 1, Flags: FlagTouch}) // another shape
	if o.Pending() != 3 {
		t.Errorf("Pending = %d, want 3", o.Pending())
	}
	want := head
	want.Seq = 1
	want.Sections = []Section{
		{minute, 1, []Delta{{Key: 1, Flags: FlagRefresh, Cells: []crdt.Cell{{Slice: 4, Charges: 9}, {Slice: 5, Charges: 3, Refunds: 2}}}}},
		{minute, 2, []Delta{{Key: 1, Cells: cell(5, 1)}}},
		{other, 1, []Delta{{Key: 1, Flags: FlagTouch}}},
	}
	u := o.Next(head)
	want.cells = u.cells
	if !reflect.DeepEqual(u, &want) {
		t.Errorf("Next = %+v, want %+v", u, &want)
	}
	if o.Pending() != 0 || o.InFlight() != 1 || o.Next(head) != nil {
		t.Errorf("after Next: %d pending, %d in flight", o.Pending(), o.InFlight())
	}
	if got := o.Done(1); got != u {
		t.Errorf("Done = %p, want the frame %p", got, u)
	}
	if o.Done(1) != nil || o.Done(7) != nil || o.InFlight() != 0 {
		t.Error("a frame was done twice, or one that never was")
	}
	o.Lost(1)
	if o.Pending() != 0 {
		t.Error("a frame was done, then lost")
	}
}

func TestOutboxOrder(t *testing.T) {
	o := NewOutbox(OutboxConfig{MaxInFlight: 1})
	for k := Key(1); k <= 6; k++ {
		mustPut(t, o, minute, 1, Delta{Key: k, Cells: cell(1, uint64(k))})
	}
	if o.Urgent() {
		t.Error("Urgent, want nothing urgent")
	}
	mustPut(t, o, minute, 1, Delta{Key: 5, Flags: FlagUrgent})
	mustPut(t, o, minute, 1, Delta{Key: 2, Flags: FlagUrgent, Cells: cell(1, 20)})
	mustPut(t, o, minute, 1, Delta{Key: 5, Cells: cell(2, 1)}) // stays urgent, and in its place
	if !o.Urgent() {
		t.Error("not Urgent, want two")
	}
	u := o.Next(head)
	if got, want := keysOf(u), []Key{5, 2, 1, 3, 4, 6}; !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
	mustPut(t, o, minute, 1, Delta{Key: 7, Cells: cell(1, 1)})
	mustPut(t, o, minute, 1, Delta{Key: 3, Cells: cell(1, 30)})
	if o.Next(head) != nil {
		t.Error("a second frame under way, want at most 1")
	}
	o.Lost(u.Seq)
	u = o.Next(head)
	if got, want := keysOf(u), []Key{5, 2, 7, 3, 1, 4, 6}; !slices.Equal(got, want) {
		t.Errorf("keys after a loss %v, want %v", got, want)
	}
	if got, want := u.Sections[0].Deltas[3].Cells, cell(1, 30); !slices.Equal(got, want) {
		t.Errorf("cells after a loss %v, want the newer %v", got, want)
	}
	if u.Seq != 2 {
		t.Errorf("Seq = %d, want 2", u.Seq)
	}
}

func TestOutboxFull(t *testing.T) {
	o := NewOutbox(OutboxConfig{MaxDeltas: 3, MaxInFlight: 1})
	for k := Key(1); k <= 3; k++ {
		mustPut(t, o, minute, 1, Delta{Key: k, Cells: cell(1, 1)})
	}
	if o.Put(minute, 1, Delta{Key: 4, Cells: cell(1, 1)}) || o.Put(minute, 2, Delta{Key: 1, Cells: cell(1, 1)}) {
		t.Error("Put into a full outbox = true")
	}
	if len(o.sections) != 1 {
		t.Errorf("a refused delta left a section: %d", len(o.sections))
	}
	mustPut(t, o, minute, 1, Delta{Key: 2, Cells: cell(1, 2)}) // is in already
	u := o.Next(head)
	if o.Put(minute, 1, Delta{Key: 4, Cells: cell(1, 1)}) {
		t.Error("Put = true, though what is in flight may come back")
	}
	o.Done(u.Seq)
	mustPut(t, o, minute, 1, Delta{Key: 4, Cells: cell(1, 1)})
}

// TestOutboxHeldCounts: what only asks is held, and nothing is lost with it.
func TestOutboxHeldCounts(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	want := func(when string, held, counts int) {
		t.Helper()
		if o.Held() != held || o.HeldCounts() != counts {
			t.Errorf("%s: %d held, %d with counts; want %d and %d", when, o.Held(), o.HeldCounts(), held, counts)
		}
	}
	want("empty", 0, 0)
	mustPut(t, o, minute, 1, Delta{Key: 1, Flags: FlagTouch})
	mustPut(t, o, minute, 1, Delta{Key: 2, Flags: FlagTouch | FlagUrgent})
	want("two questions", 2, 0)
	mustPut(t, o, minute, 1, Delta{Key: 3, Cells: cell(1, 1)})
	mustPut(t, o, minute, 1, Delta{Key: 4, Flags: FlagUrgent, Cells: cell(1, 1)})
	mustPut(t, o, bucket, 1, Delta{Key: 5, Carry: crdt.Carry{Boundary: 5, Level: 1}})
	mustPut(t, o, minute, 1, Delta{Key: 6, Until: 7})
	want("and counts, one of them a carry, one a penalty", 6, 4)
	u := o.Next(head)
	want("under way", 6, 4)
	mustPut(t, o, minute, 1, Delta{Key: 1, Cells: cell(1, 1)})
	want("and more of one key", 7, 5)
	o.Lost(u.Seq)
	want("lost: the question is told of", 6, 5)
	o.Done(o.Next(head).Seq)
	want("answered", 0, 0)
}

func TestOutboxRefuses(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	mustPut(t, o, minute, 1, Delta{Key: 2, Cells: cell(1, 1)}) // what is like it is not looked at as closely
	for name, put := range map[string]bool{
		"key 0":      o.Put(minute, 1, Delta{Cells: cell(1, 1)}),
		"no shape":   o.Put(Shape{}, 1, Delta{Key: 1}),
		"large life": o.Put(minute, MaxLife+1, Delta{Key: 1}),
		"zero cell":  o.Put(minute, 1, Delta{Key: 1, Cells: cell(1, 0)}),
		"carry":      o.Put(bucket, 1, Delta{Key: 1, Carry: crdt.Carry{Boundary: maxSlice + 1, Level: 1}}),
		"until":      o.Put(minute, 1, Delta{Key: 1, Until: -1}),
		"slices":     o.Put(minute, 1, Delta{Key: 1, Cells: append(cell(2, 1), cell(1, 1)...)}),
	} {
		if put {
			t.Errorf("Put with %s = true: it could not be encoded", name)
		}
	}
	if o.Pending() != 1 || deltas(o.Next(head)) != 1 || o.Next(head) != nil {
		t.Error("something refused is pending")
	}
}

// TestOutboxKeeps: under a long cut slices that have left every window go.
func TestOutboxKeeps(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	for s := range crdt.Slice(100_000) {
		mustPut(t, o, minute, 1, Delta{Key: 1, Cells: cell(s, 1)})
	}
	cells := o.Next(head).Sections[0].Deltas[0].Cells
	if n := len(cells); n < minute.Slices+1 || n > minute.Slices+10 || cells[n-1].Slice != 99_999 {
		t.Errorf("%d cells from %d on, want those of a window and some slack", n, cells[0].Slice)
	}
}

// TestOutboxFits: whatever is put, frames stay within their bound, use most of
// it, and everything arrives.
func TestOutboxFits(t *testing.T) {
	for _, most := range []int{1, minFrame, 5000, 0} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			for seed := range uint64(6) {
				r := newFrames(seed)
				o := NewOutbox(OutboxConfig{MaxFrame: most, MaxInFlight: 1})
				want := map[Key]*crdt.Vector{}
				carries, heard := map[Key]crdt.Carry{}, map[Key]crdt.Carry{}
				untils, told := map[Key]int64{}, map[Key]int64{}
				for range 3000 {
					key := Key(1 + r.IntN(2500))
					life := uint32(uint64(key) % 3)
					shape := minute
					shape.Generation = uint64(key) % 5
					if seed%2 == 0 { // extremes
						shape.Generation, shape.Limit, shape.Width, life = math.MaxUint64-uint64(key)%2, math.MaxUint64, maxWindow/40, MaxLife-life
					}
					d := Delta{Key: key, Flags: Flags(r.IntN(256)), Cells: r.cells(crdt.Slice(r.IntN(5)))}
					if seed > 3 { // 4: extremes
						shape.Refill, shape.RefillPer, shape.Floor = maxUnits, maxWindow, maxUnits
						d.Carry = r.carry(0)
						carries[key] = carries[key].Later(d.Carry)
					}
					if seed%3 == 1 { // some of them near the end of a frame
						d.Until = r.until()
						untils[key] = max(untils[key], d.Until)
						d.Heard = r.heard(0)
					}
					if seed > 1 && r.IntN(int(seed)) == 0 { // some, or late in a frame
						d.Demand = &Demand{Fast: 1, Mid: 2, Slow: 3, Window: 4}
					}
					mustPut(t, o, shape, life, d)
					if want[key] == nil {
						want[key] = &crdt.Vector{}
					}
					for _, c := range d.Cells {
						want[key].Join(c)
					}
				}
				long := head
				long.Region, long.Pop, long.Name = "a2345678901234567890123456789012", "a2345678901234567890123456789012", "a2345678901234567890123456789012"
				long.Node, long.Incarnation, long.SentAt = math.MaxUint64, maxIncarnation, -1
				for o.Pending() > 0 {
					u := o.Next(long)
					b := encode(t, u)
					limit := o.cfg.MaxFrame
					if len(b) > limit {
						t.Fatalf("seed %d: frame of %d bytes, want at most %d", seed, len(b), limit)
					}
					if o.Pending() > 0 && len(b) < limit*3/5-200 {
						t.Errorf("seed %d: frame of %d bytes with %d deltas pending, want it fuller: %d", seed, len(b), o.Pending(), limit)
					}
					for _, s := range o.Done(u.Seq).Sections {
						for _, d := range s.Deltas {
							heard[d.Key] = heard[d.Key].Later(d.Carry)
							told[d.Key] = max(told[d.Key], d.Until)
							for _, c := range d.Cells {
								if got := want[d.Key].Get(c.Slice); got != c {
									t.Fatalf("seed %d: key %d sent %v, want %v", seed, d.Key, c, got)
								}
							}
							if n := len(d.Cells); n > 0 {
								want[d.Key].Retire(d.Cells[n-1].Slice + 1)
							}
						}
					}
				}
				for key, v := range want {
					if v.Len() > 0 {
						t.Fatalf("seed %d: key %d: %v never sent", seed, key, v.Cells(nil))
					}
				}
				for key, c := range carries {
					if heard[key] != c {
						t.Fatalf("seed %d: key %d arrived with the carry %v, want the latest, %v", seed, key, heard[key], c)
					}
				}
				for key, until := range untils {
					if told[key] != until {
						t.Fatalf("seed %d: key %d arrived with a penalty until %d, want the latest, %d", seed, key, told[key], until)
					}
				}
				if len(o.sections)+o.entries.taken+o.inFlight != 0 {
					t.Errorf("seed %d: an empty outbox holds %d sections, %d entries, %d in flight", seed, len(o.sections), o.entries.taken, o.inFlight)
				}
			}
		})
	}
}

// TestOutboxCarries: of carries the later stays, also where a lost frame comes
// back under a newer one; those of windows, and of level 0, do not travel.
func TestOutboxCarries(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	put := func(shape Shape, key Key, boundary crdt.Slice, level uint64) {
		t.Helper()
		mustPut(t, o, shape, 1, Delta{Key: key, Flags: FlagTouch, Carry: crdt.Carry{Boundary: boundary, Level: level}})
	}
	next := func() []Delta {
		t.Helper()
		return o.Next(head).Sections[0].Deltas
	}
	put(bucket, 1, 5, 7)
	put(bucket, 1, 5, 9)
	put(bucket, 1, 4, 99)
	put(bucket, 2, 5, 0)
	want := []Delta{{Key: 1, Carry: crdt.Carry{Boundary: 5, Level: 9}}, {Key: 2, Flags: FlagTouch}}
	if got := next(); !reflect.DeepEqual(got, want) {
		t.Errorf("sent %+v, want %+v", got, want)
	}
	put(bucket, 1, 6, 1)
	o.Lost(1)
	put(bucket, 2, 6, 3)
	want = []Delta{{Key: 1, Carry: crdt.Carry{Boundary: 6, Level: 1}}, {Key: 2, Carry: crdt.Carry{Boundary: 6, Level: 3}}}
	if got := next(); !reflect.DeepEqual(got, want) {
		t.Errorf("sent after a loss %+v, want %+v", got, want)
	}
	put(minute, 3, 5, 7)
	if got, want := next(), []Delta{{Key: 3, Flags: FlagTouch}}; !reflect.DeepEqual(got, want) {
		t.Errorf("sent for a window %+v, want %+v", got, want)
	}
}

// TestOutboxPenalties: the later end stays, also where a lost frame comes back
// under a newer one; one without counts is something told, and no question.
func TestOutboxPenalties(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	next := func() []Delta {
		t.Helper()
		return o.Next(head).Sections[0].Deltas
	}
	for _, until := range []int64{0, 70, 60} {
		mustPut(t, o, minute, 1, Delta{Key: 1, Flags: FlagTouch | FlagUrgent, Until: until})
	}
	mustPut(t, o, minute, 1, Delta{Key: 2, Flags: FlagTouch})
	want := []Delta{{Key: 1, Flags: FlagUrgent, Until: 70}, {Key: 2, Flags: FlagTouch}}
	if got := next(); !reflect.DeepEqual(got, want) {
		t.Errorf("sent %+v, want %+v", got, want)
	}
	mustPut(t, o, minute, 1, Delta{Key: 1, Cells: cell(1, 1), Until: 65})
	o.Lost(1)
	mustPut(t, o, minute, 1, Delta{Key: 2, Until: 80})
	want = []Delta{{Key: 1, Flags: FlagUrgent, Cells: cell(1, 1), Until: 70}, {Key: 2, Until: 80}}
	if got := next(); !reflect.DeepEqual(got, want) {
		t.Errorf("sent after a loss %+v, want %+v", got, want)
	}
	o.Done(2)
	mustPut(t, o, minute, 1, Delta{Key: 3, Cells: cell(1, 1)})
	if got := next()[0].Until; got != 0 {
		t.Errorf("an entry that was used before has a penalty until %d, want none", got)
	}
}

// A penalty after many deltas without one has a column made for all of them: the
// frame has room for it, or ends before it.
func TestOutboxFitsALatePenalty(t *testing.T) {
	wide := Shape{Width: time.Second, Slices: 200}
	var cells []crdt.Cell
	for s := range crdt.Slice(128) { // with all columns, whose sizes are then known to the byte
		cells = append(cells, crdt.Cell{Slice: s, Charges: 1, Refunds: 1})
	}
	const full = 165
	for n := range cells {
		o := NewOutbox(OutboxConfig{})
		for k := range Key(full) {
			mustPut(t, o, wide, 1, Delta{Key: k + 1, Flags: FlagRefresh, Cells: cells})
		}
		mustPut(t, o, wide, 1, Delta{Key: full + 1, Flags: FlagRefresh, Cells: cells[:n]})
		mustPut(t, o, wide, 1, Delta{Key: full + 2, Until: math.MaxInt64})
		if b, err := o.Next(head).AppendBinary(nil); err != nil {
			t.Fatalf("after %d cells: %d bytes, %v", full*len(cells)+n, len(b), err)
		}
	}
}

// TestOutboxCuts: a delta larger than a frame goes in parts.
func TestOutboxCuts(t *testing.T) {
	o := NewOutbox(OutboxConfig{MaxFrame: minFrame, MaxInFlight: 1})
	wide := Shape{Width: 30 * time.Second, Slices: 1024}
	var cells []crdt.Cell
	for s := range crdt.Slice(1000) {
		cells = append(cells, crdt.Cell{Slice: s, Charges: math.MaxUint64, Refunds: 1})
	}
	mustPut(t, o, wide, 1, Delta{Key: 1, Flags: FlagUrgent, Cells: cells})
	var got []crdt.Cell
	for o.Pending() > 0 {
		u := o.Next(head)
		if n := len(encode(t, u)); n > minFrame {
			t.Fatalf("frame of %d bytes, want at most %d", n, minFrame)
		}
		d := u.Sections[0].Deltas[0]
		if d.Flags != FlagUrgent || len(d.Cells) == 0 {
			t.Fatalf("part %d has flags %d and %d cells", u.Seq, d.Flags, len(d.Cells))
		}
		got = append(got, d.Cells...)
		o.Done(u.Seq)
	}
	if !slices.Equal(got, cells) {
		t.Errorf("%d cells in parts, want the %d that were put", len(got), len(cells))
	}
}

// What a key's totals were heard in goes out with it: of several the earliest,
// and none once it is to be told all, or whoever answered is another.
func TestOutboxTellsWhatWasHeard(t *testing.T) {
	o := NewOutbox(OutboxConfig{})
	heard := func() map[Key]crdt.Slice {
		u := o.Next(Up{Kind: KindEdge, Region: "eu", Pop: "p", Name: "e", Node: 1, Lanes: 1})
		got := map[Key]crdt.Slice{}
		for _, d := range u.Sections[0].Deltas {
			got[d.Key] = d.Heard
		}
		return got
	}
	for _, d := range []Delta{
		{Key: 1, Cells: cell(10, 1), Heard: 9}, {Key: 1, Cells: cell(10, 2), Heard: 8}, {Key: 1, Cells: cell(10, 3), Heard: 9},
		{Key: 2, Cells: cell(10, 1), Heard: 9}, {Key: 2, Cells: cell(10, 2)}, {Key: 2, Cells: cell(10, 3), Heard: 9},
		{Key: 3, Cells: cell(10, 1)}, {Key: 3, Cells: cell(10, 2), Heard: 9},
	} {
		mustPut(t, o, minute, 1, d)
	}
	if got, want := heard(), (map[Key]crdt.Slice{1: 8, 2: 0, 3: 0}); !maps.Equal(got, want) {
		t.Errorf("heard %v, want %v", got, want)
	}
	o.Lost(1)
	if got := heard(); got[1] != 0 {
		t.Errorf("told again: heard %v, want nothing: whoever answers may be another", got)
	}
	o.Done(2)
	mustPut(t, o, minute, 1, Delta{Key: 1, Flags: FlagTouch, Heard: 9})
	mustPut(t, o, minute, 1, Delta{Key: 2, Flags: FlagUrgent, Cells: cell(10, 9), Heard: 9})
	o.HearAll()
	if got, want := heard(), (map[Key]crdt.Slice{1: 0, 2: 0}); !maps.Equal(got, want) {
		t.Errorf("another answers: heard %v, want %v", got, want)
	}
}
