package memstore

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// shard holds a part of the keys.
type shard struct {
	mu      sync.Mutex     // guards all below
	index   map[name]int32 // of a key's record
	records []record       // some of them free
	free    []int32        // records that hold no key
	hand    int            // the record whose expiry is looked at next
	version uint64         // last one given to a key; never given twice
}

// name is what a record is found by. Slices of one width say nothing of those of
// another, which a node that lies may tell of the same key.
type name struct {
	key   deltasync.Key
	width time.Duration
}

func nameOf(it *regional.Item) name { return name{it.Key, it.Width} }

// record is one key. Its zero value is free.
type record struct {
	name
	version uint64 // 0: free
	expires int64  // when its newest slice is no longer kept, in nanoseconds since 1970
	first   crdt.Slice
	entries []entry
	carries crdt.Vector // a boundary and a level a cell
	rest    crdt.Carry
	until   int64    // end of a penalty
	notes   []string // that it is listed with, the first as it was last
}

// entry is what one replica counted.
type entry struct {
	source  regional.Source
	replica crdt.Replica
	vector  crdt.Vector
}

// merge joins the vectors and carries of it, what rests, and the penalty; ok is
// false when there was no room for the key.
func (sh *shard) merge(s *Store, it *regional.Item, now time.Time) (answer regional.Item, ok bool) {
	first, last := it.Live(now)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.sweep(s, now, steps)

	at, held := sh.index[nameOf(it)]
	before := uint64(0)
	if held {
		before = sh.records[at].version
		sh.records[at].retire(first)
	}
	// hold finds or makes the key's record; nil when there is no room.
	hold := func() *record {
		if !held {
			if at, held = sh.take(s, nameOf(it)); !held {
				return nil
			}
			sh.records[at].first = first
		}
		return &sh.records[at]
	}
	changed := false
	note := func(r *record, c crdt.Cell, rise crdt.Cell) {
		if !rise.Zero() {
			changed = true
			r.expires = max(r.expires, (int64(c.Slice)+1)*int64(it.Width)+int64(it.Kept()))
		}
	}
	for i := range it.Vectors {
		v := &it.Vectors[i]
		var e *entry
		for _, c := range v.Cells {
			if c.Slice < first || c.Slice > last {
				continue
			}
			r := hold()
			if r == nil {
				return regional.Item{}, false
			}
			if e == nil {
				e = r.entry(v.Source, v.Replica)
			}
			note(r, c, e.vector.Join(c))
		}
	}
	for _, carry := range it.Carries {
		c := crdt.Cell{Slice: carry.Boundary, Charges: carry.Level}
		if c.Slice < first || c.Slice > last {
			continue
		}
		r := hold()
		if r == nil {
			return regional.Item{}, false
		}
		note(r, c, r.carries.Join(c))
	}
	if since, until := it.Rests(now); it.Floor && it.Rest.Level > 0 && it.Rest.Boundary >= since && it.Rest.Boundary <= until {
		r := hold()
		if r == nil {
			return regional.Item{}, false
		}
		joined := crdt.Carry{Boundary: max(r.rest.Boundary, it.Rest.Boundary), Level: max(r.rest.Level, it.Rest.Level)}
		if joined != r.rest {
			changed, r.rest = true, joined
			r.expires = max(r.expires, (int64(joined.Boundary)+1)*int64(it.Width)+int64(regional.RestKept))
		}
	}
	if until := it.Punished(now); until != 0 {
		r := hold()
		if r == nil {
			return regional.Item{}, false
		}
		if until > r.until {
			changed, r.until = true, until
			r.expires = max(r.expires, until)
		}
	}
	if changed {
		sh.records[at].version = sh.nextVersion()
	}
	if it.Note != "" && it.NotedUntil > now.UnixNano() {
		r := hold()
		if r == nil {
			return regional.Item{}, false
		}
		if r.expires = max(r.expires, it.NotedUntil); r.version == 0 {
			r.version = sh.nextVersion()
		}
	}
	if held && it.Note != "" {
		sh.records[at].list(it.Note, it.Former)
	}
	return sh.answer(it, now, it.Version, before), true
}

// load answers what is held of it.Key; it never fails.
func (sh *shard) load(s *Store, it *regional.Item, now time.Time) (answer regional.Item, ok bool) {
	first, _ := it.Live(now)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.sweep(s, now, steps)
	before := uint64(0)
	if at, held := sh.index[nameOf(it)]; held {
		before = sh.records[at].version
		sh.records[at].retire(first)
	}
	return sh.answer(it, now, 0, before), true
}

// answer is what is said of a key to a caller who last saw version named, when
// before was stored. Vectors and carries are copies. Under mu.
func (sh *shard) answer(it *regional.Item, now time.Time, named, before uint64) regional.Item {
	out := regional.Item{Key: it.Key, Width: it.Width, Slices: it.Slices, Floor: it.Floor}
	at, held := sh.index[nameOf(it)]
	if !held {
		return out
	}
	r := &sh.records[at]
	out.Version = r.version
	if before == named {
		return out
	}
	n := 0
	for i := range r.entries {
		n += r.entries[i].vector.Len()
	}
	cells := make([]crdt.Cell, 0, n)
	out.Vectors = make([]regional.Vector, 0, len(r.entries))
	for i := range r.entries {
		e := &r.entries[i]
		from := len(cells)
		cells = e.vector.Cells(cells)
		out.Vectors = append(out.Vectors, regional.Vector{Source: e.source, Replica: e.replica, Cells: cells[from:len(cells):len(cells)]})
	}
	if since, _ := it.Rests(now); it.Floor && r.rest.Boundary >= since {
		out.Rest = r.rest
	}
	out.Until = r.until
	out.Until = out.Punished(now)
	for i := range r.carries.Len() {
		c := r.carries.At(i)
		out.Carries = append(out.Carries, crdt.Carry{Boundary: c.Slice, Level: c.Charges})
	}
	return out
}

// mostNotes is how many notes a key is listed with at the most.
const mostNotes = 8

// list has the key listed with a note, and with the former one no more.
func (r *record) list(note, former string) {
	r.notes = slices.DeleteFunc(r.notes, func(n string) bool { return n == note || n == former })
	r.notes = slices.Insert(r.notes, 0, note)
	r.notes = r.notes[:min(len(r.notes), mostNotes)]
}

// listed appends the keys that were merged with notes, each with every one of them, as
// Redis does, where nothing tells which was the last.
func (sh *shard) listed(out []regional.Noted, now time.Time) []regional.Noted {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for i := range sh.records {
		r := &sh.records[i]
		if r.expires <= now.UnixNano() {
			continue
		}
		for _, note := range r.notes {
			out = append(out, regional.Noted{Key: r.key, Note: note})
		}
	}
	return out
}

// entry finds or makes the entry of a replica.
func (r *record) entry(source regional.Source, replica crdt.Replica) *entry {
	for i := range r.entries {
		if e := &r.entries[i]; e.replica == replica && e.source == source {
			return e
		}
	}
	r.entries = append(r.entries, entry{source: source, replica: replica})
	return &r.entries[len(r.entries)-1]
}

// retire drops what came before slice first.
func (r *record) retire(first crdt.Slice) {
	if first <= r.first {
		return
	}
	r.first = first
	kept := r.entries[:0]
	for i := range r.entries {
		r.entries[i].vector.Retire(first)
		if r.entries[i].vector.Len() > 0 {
			kept = append(kept, r.entries[i])
		}
	}
	clear(r.entries[len(kept):])
	r.entries = kept
	r.carries.Retire(first)
}

// steps is how many records the hand passes with each item: more than the one
// that an item may add, so that it gains on them.
const steps = 2

// sweep drops the keys among the next n records that have expired. Under mu.
func (sh *shard) sweep(s *Store, now time.Time, n int) {
	t := now.UnixNano()
	for range min(n, len(sh.records)) {
		if sh.hand >= len(sh.records) {
			sh.hand = 0
		}
		if r := &sh.records[sh.hand]; r.version != 0 && r.expires <= t {
			delete(sh.index, r.name)
			*r = record{}
			sh.free = append(sh.free, int32(sh.hand))
			s.keys.Add(-1)
		}
		sh.hand++
	}
}

// take finds a record for a new key; ok is false when the store is full.
func (sh *shard) take(s *Store, n name) (at int32, ok bool) {
	if s.keys.Add(1) > s.max || len(sh.records) == math.MaxInt32 {
		s.keys.Add(-1)
		return 0, false
	}
	if last := len(sh.free) - 1; last >= 0 {
		at, sh.free = sh.free[last], sh.free[:last]
	} else {
		at = int32(len(sh.records))
		sh.records = append(sh.records, record{})
	}
	sh.records[at].name = n
	sh.index[n] = at
	return at, true
}

// nextVersion is a version that no key of this shard ever had; 0 means none.
func (sh *shard) nextVersion() uint64 {
	sh.version++
	if sh.version == 0 {
		sh.version++
	}
	return sh.version
}

// wipe forgets all keys and returns how many there were. Versions go on, so
// that none is ever given twice.
func (sh *shard) wipe() int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	n := len(sh.index)
	sh.index = make(map[name]int32)
	sh.records, sh.free, sh.hand = nil, nil, 0
	return n
}
