package storetest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// noted is an item that is to be listed.
func noted(key deltasync.Key, note string, vectors ...regional.Vector) regional.Item {
	it := item(key, vectors...)
	it.Note = note
	return it
}

// hot lists all pages: the notes of each key.
func (s *subject) hot() map[deltasync.Key][]string {
	s.Helper()
	all := map[deltasync.Key][]string{}
	for from, pages := 0, 0; pages == 0 || from != 0; pages++ {
		page, next, err := s.Store.Hot(s.Context(), from)
		if err != nil {
			s.Fatalf("Hot(%d): %v", from, err)
		}
		if next != 0 && next <= from {
			s.Fatalf("Hot(%d) goes on at %d", from, next)
		}
		for _, n := range page {
			all[n.Key] = append(all[n.Key], n.Note)
		}
		from = next
	}
	return all
}

// lists checks that exactly these keys are listed, each with its note.
func (s *subject) lists(what string, want map[deltasync.Key]string) {
	s.Helper()
	got := s.hot()
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		s.wrong("%s: the keys %x are listed, want %x", what, g, w)
	}
	for key, note := range want {
		if !slices.Contains(got[key], note) {
			s.wrong("%s: key %x is listed as %q, want %q", what, uint64(key), got[key], note)
		}
	}
}

func testHot(s *subject) {
	s.lists("nothing is stored", nil)
	long := strings.Repeat("\x00\xff ", regional.MaxNote)[:regional.MaxNote]
	batch := []regional.Item{item(5, edge(1, charge(s.at(0), 5)))} // without a note
	want := map[deltasync.Key]string{}
	for i := range 600 { // all tags and shards
		key := deltasync.Key(1+i) * 0x0123_4567_89ab_cd01
		want[key] = long[:1+i%regional.MaxNote]
		batch = append(batch, noted(key, want[key], edge(1, charge(s.at(i%8), 7))))
	}
	for _, it := range s.merge(batch...) {
		if it.Note != "" {
			s.Errorf("the answer has the note %q, want none", it.Note)
		}
	}
	s.lists("600 of 601 have notes", want)

	// Not every merge brings a note; one that does need not bring counts.
	const key = 0x0123_4567_89ab_cd01
	s.merge(item(key, edge(2, charge(s.at(0), 1))))
	s.lists("merged without a note", want)
	s.merge(noted(5, "asked", edge(1, charge(s.at(0), 5))), noted(key, "other"))
	want[5], want[key] = "asked", "other"
	s.lists("merged again with notes", want)

	third := noted(key, "third")
	third.Former = "other"
	s.merge(third)
	if want[key] = "third"; slices.Contains(s.hot()[key], "other") {
		s.wrong("key %x is listed with a note that it had before, want it no more", uint64(key))
	}
	s.lists("merged with another note for one that was", want)

	s.load(noted(6, "loaded"))
	s.merge(noted(7, "nothing"), noted(8, "too late", edge(1, charge(-1, 5))), noted(9, "too early", edge(1, charge(1<<62, 5))))
	s.lists("of which nothing is stored", want)

	nothing := noted(12, "still")
	nothing.NotedUntil = s.Now().Add(time.Hour).UnixNano()
	over := noted(13, "over")
	over.NotedUntil = s.Now().Add(-time.Hour).UnixNano()
	s.merge(nothing, over)
	want[12] = "still"
	s.lists("of one of which nothing is stored, for an hour", want)
	if got := s.load(item(12))[0]; len(got.Vectors) > 0 {
		s.wrong("a key that is listed alone has %v", got.Vectors)
	}

	gone := carried(10, crdt.Carry{Boundary: s.at(2), Level: 5})
	gone.Note = "carry"
	punished := noted(11, "penalty")
	punished.Until = s.Now().Add(time.Hour).UnixNano()
	s.merge(gone, punished)
	want[10], want[11] = "carry", "penalty"
	s.lists("a carry and a penalty", want)

	s.Wipe()
	s.lists("after a wipe", nil)
}

func testHotErrors(s *subject) {
	it := noted(1, strings.Repeat("x", regional.MaxNote+1), edge(1, charge(s.at(0), 5)))
	_, err := s.Store.Merge(s.Context(), []regional.Item{it})
	s.fails("Merge with a note that is too long", err)
	s.holds(1)
	_, _, err = s.Store.Hot(cancelled(), 0)
	s.fails("Hot, cancelled", err, context.Canceled)
	if err := s.Store.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	_, _, err = s.Store.Hot(s.Context(), 0)
	s.fails("Hot, closed", err)
}
