package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// The list of dirty records counts as what records take: a sweep makes room for
// what it may grow to, and forgets nobody where that fits.
func TestSweepMakesRoomForTheDirtyList(t *testing.T) {
	n := newNode(t, Config{MaxBytes: minBytes}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	users := neighbours(n, 20)
	for _, user := range users {
		check(n, start, user)
	}
	s := n.shard(keyOf(n, users[0]))
	takes := func() int { // two places in the list for each record; see mark
		const keyBytes = 8
		return len(s.table)*recordBytes + 16*s.weight + 2*keyBytes*s.used
	}
	s.bytes = takes()
	tickAll(n, start)
	if s.used != len(users) {
		t.Fatalf("%d of %d keys are live with room for all, want all", s.used, len(users))
	}
	s.bytes--
	tickAll(n, start)
	if s.used != len(users)-1 || takes() > s.bytes {
		t.Errorf("with a byte less than they take, %d of %d keys are live and take %d of %d bytes; want one forgotten", s.used, len(users), takes(), s.bytes)
	}
}

// A namespace whose last key is gone has no part any more: the others share what
// there is, and who has less than that is not greedy.
func TestNamespaceThatLeftHasNoPart(t *testing.T) {
	s, next := &shard{max: 100}, deltasync.Key(1)
	enter := func(space uint8, records int) (keys []deltasync.Key) {
		for range records {
			r := s.insert(next)
			r.block = s.newBlock()
			s.enter(r, space)
			keys = append(keys, next)
			next++
		}
		return keys
	}
	leave := func(keys []deltasync.Key) {
		for _, key := range keys {
			for i := range s.table {
				if s.table[i].key == key {
					s.remove(i)
					break
				}
			}
		}
	}
	wants := func(when string, key deltasync.Key, greedy bool) {
		t.Helper()
		if got := s.greedy(s.find(key)); got != greedy {
			t.Errorf("%s: a namespace with %d of %d records is greedy: %v, want %v", when, s.spaces[s.find(key).space()], s.used, got, greedy)
		}
	}
	large, small, gone := enter(1, 6), enter(2, 4), enter(3, 2)
	wants("of three", large[0], true)
	wants("of three", small[0], false) // four of twelve
	wants("of three", gone[0], false)
	leave(gone)
	wants("of two", large[0], true)
	wants("of two", small[0], false)
	leave(small)
	wants("alone", large[0], true)
	leave(large)
	if s.namespaces != 0 || s.used != 0 {
		t.Errorf("%d namespaces with %d records when all are gone, want none", s.namespaces, s.used)
	}
	back := enter(3, 1)
	wants("come back", back[0], true)
}
