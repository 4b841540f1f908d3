package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// tells flushes and answers, and says which users' counts were told.
func tells(t *testing.T, n *Node, now time.Time, flush func(time.Time) []Outgoing, users ...string) (told []string) {
	t.Helper()
	for _, o := range flush(now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil {
			t.Fatal(err)
		}
		var totals []deltasync.Totals
		for _, sec := range up.Sections {
			for _, d := range sec.Deltas {
				totals = append(totals, deltasync.Totals{})
				for _, user := range users {
					if d.Key == keyOf(n, user) && len(d.Cells) > 0 {
						told = append(told, user)
					}
				}
			}
		}
		answer(t, n, now, &up, totals...)
	}
	return told
}

// Little changed of a long window is told once a second, much with the next
// regular flush, and what is near its limit at once and alone.
func TestCadence(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1000, Per: time.Minute}))
	for _, user := range []string{"little", "much", "near"} { // each is asked about when it is new
		check(n, start, user)
	}
	tells(t, n, start, n.flushAll)
	now, little, much := start, 0, 0
	for i := range 100 {
		now = now.Add(100 * time.Millisecond)
		if i%2 == 0 {
			check(n, now, "little") // half a hundredth of the limit in a second
		}
		checkCost(n, now, "much", 10)
		for _, user := range tells(t, n, now, n.Flush, "little", "much") {
			if user == "little" {
				little++
			} else {
				much++
			}
		}
	}
	if little < 9 || little > 11 || much < 40 {
		t.Errorf("in ten seconds little was told %d times and much %d; want 10, and each flush until it is near its limit", little, much)
	}
	checkCost(n, now, "near", 600)
	check(n, now, "little")
	if told := tells(t, n, now, n.FlushUrgent, "little", "near"); fmt.Sprint(told) != "[near]" {
		t.Errorf("an urgent flush tells of %v, want what is near its limit alone", told)
	}
	// What gathers to a hundredth waits no longer.
	now = now.Add(2 * time.Second)
	check(n, now, "little")
	tells(t, n, now, n.Flush) // at once, after a rest
	checkCost(n, now, "little", 6)
	if told := tells(t, n, now, n.Flush, "little"); len(told) != 0 {
		t.Errorf("6 of 1000 are told at once")
	}
	checkCost(n, now, "little", 6)
	if told := tells(t, n, now, n.Flush, "little"); len(told) != 1 {
		t.Errorf("12 of 1000 wait")
	}
}

// A short window has nothing cold: a second is much of it.
func TestShortWindowsAreNeverCold(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100_000, Per: 10 * time.Second}))
	check(n, start, "u")
	tells(t, n, start, n.flushAll)
	for i := range 10 {
		now := start.Add(time.Duration(i+1) * 100 * time.Millisecond)
		check(n, now, "u")
		if told := tells(t, n, now, n.Flush, "u"); len(told) != 1 {
			t.Fatalf("flush %d: one hit of a window of 10 s waits", i+1)
		}
	}
}

// The shards' seconds begin one after the other, and all are drained in one.
func TestColdShardsTakeTurns(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1000, Per: time.Minute}))
	now := start
	for i := range 1000 {
		check(n, now, fmt.Sprint("u", i))
	}
	tells(t, n, now, n.flushAll)
	now = now.Add(2 * time.Second)
	for range 2 { // what comes after a rest goes at once
		for i := range 1000 {
			check(n, now, fmt.Sprint("u", i))
		}
		tells(t, n, now, n.Flush)
	}
	dirtyNow := func() (total int) {
		for i := range n.shards {
			total += len(n.shards[i].dirty[cold])
		}
		return total
	}
	before := dirtyNow()
	for range 10 {
		now = now.Add(100 * time.Millisecond)
		tells(t, n, now, n.Flush)
		if left := dirtyNow(); before-left > 250 {
			t.Errorf("%d of 1000 are told at once", before-left)
		} else {
			before = left
		}
	}
	if before != 0 {
		t.Errorf("%d wait longer than a second", before)
	}
}
