package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// answerAs answers a frame as the aggregator of an epoch does, which has heard of
// nothing.
func answerAs(t *testing.T, n *Node, now time.Time, up *deltasync.Up, epoch uint64, status deltasync.Status) {
	t.Helper()
	down := deltasync.Down{Status: status, Region: "eu", Node: euNode, Seq: up.Seq, EchoSentAt: up.SentAt, StoreEpoch: epoch, LiveRegions: 2}
	for _, s := range up.Sections {
		down.Totals = append(down.Totals, make([]deltasync.Totals, len(s.Deltas))...)
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Receive(now, 0, b); err != nil {
		t.Fatalf("Receive: %v", err)
	}
}

// flushTo flushes, has each frame answered so, and calls see with each delta.
func flushTo(t *testing.T, n *Node, now time.Time, epoch uint64, status deltasync.Status, see func(*deltasync.Delta)) {
	t.Helper()
	n.Tick(now)
	for _, o := range n.Flush(now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil {
			t.Fatal(err)
		}
		for i := range up.Sections {
			for j := range up.Sections[i].Deltas {
				see(&up.Sections[i].Deltas[j])
			}
		}
		answerAs(t, n, now, &up, epoch, status)
	}
}

func ignore(*deltasync.Delta) {}

// A penalty that went into an aggregator's memory alone stays marked, though an
// older frame, without it, is answered later, or told again, by one with a store.
func TestPenaltyStaysMarkedAsUnstored(t *testing.T) {
	const tenth = 100 * time.Millisecond
	for _, lost := range []bool{false, true} {
		rule := perUser(limit.RateSpec{Limit: 2, Per: time.Hour})
		rule.Penalty = limit.Penalty{For: time.Hour}
		n := inStep(newNode(t, Config{}, rule))
		now := start
		for i := range 60 { // both are known, and the resend to the second has passed
			now = now.Add(tenth)
			check(n, now, "other")
			flushTo(t, n, now, uint64(1+i%2), deltasync.StatusOK, ignore)
		}
		check(n, now, "u")
		older := upOf(t, n.Flush(now))
		if d := checkCost(n, now, "u", 3); d.Allowed {
			t.Fatal("three more of two are allowed")
		}
		newer := upOf(t, n.Flush(now))
		if d := onlyDelta(t, newer); d.Until == 0 {
			t.Fatalf("told %+v, want the penalty", d)
		}
		answerAs(t, n, now, newer, 1, deltasync.StatusStoreDown)
		if lost {
			n.Lost(now, 0, older.Seq)
			now = now.Add(time.Second)
			older = upOf(t, n.Flush(now))
		}
		answerAs(t, n, now, older, 2, deltasync.StatusOK)
		until := int64(0)
		for i := range 350 { // 5 s in which the first still answers now and then, and 30 s
			now = now.Add(tenth)
			epoch, status := uint64(2), deltasync.StatusOK
			if i < 50 && i%10 == 5 {
				epoch, status = 1, deltasync.StatusStoreDown
			}
			flushTo(t, n, now, epoch, status, func(d *deltasync.Delta) { until = max(until, d.Until) })
		}
		if until == 0 {
			t.Errorf("older frame lost: %t: who has a store was not told the penalty within 30 s of the death of who has none", lost)
		}
	}
}

// After an outage in which an aggregator died without its store, a key that is
// charged faster than answers come is told in full until one has it all, and not
// for ever.
func TestBusyKeyIsCoveredByARefresh(t *testing.T) {
	alone.Mark(t)
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1 << 30, Per: time.Hour}))
	now := start
	run := func(length time.Duration, epoch uint64, status deltasync.Status) (refreshes int) {
		for end := now.Add(length); now.Before(end); now = now.Add(100 * time.Millisecond) {
			check(n, now, "u")
			flushTo(t, n, now, epoch, status, func(d *deltasync.Delta) {
				check(n, now, "u") // while it is under way
				if d.Flags&deltasync.FlagRefresh != 0 {
					refreshes++
				}
			})
		}
		return refreshes
	}
	run(70*time.Minute, 1, deltasync.StatusOK)
	run(2*time.Second, 1, deltasync.StatusStoreDown)
	if got := run(2*time.Minute, 2, deltasync.StatusOK); got == 0 { // the first is dead
		t.Error("nothing was told again when the first was silent")
	}
	if got := run(10*time.Minute, 2, deltasync.StatusOK); got > 5 {
		t.Errorf("told in full %d times in ten minutes, long after the outage", got)
	}
}

// A region that is full is told with patience what it refused, though the key
// goes on being charged.
func TestRefusedBusyKeyIsToldPatiently(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 2000, Per: 10 * time.Minute, Slices: 600}))
	refreshes := 0
	for now := start; now.Before(start.Add(2 * time.Minute)); now = now.Add(100 * time.Millisecond) {
		check(n, now, "u")
		flushTo(t, n, now, 1, deltasync.StatusOverloaded, func(d *deltasync.Delta) {
			if d.Flags&deltasync.FlagRefresh != 0 {
				refreshes++
			}
		})
	}
	if refreshes < 5 || refreshes > 14 {
		t.Errorf("told in full %d times in two minutes, want after 1, 2, 4, 8, 16, 16 … seconds", refreshes)
	}
}

// What reached an aggregator late, as frames were lost before, is told again when
// that dies at once.
func TestWhatLeftLateIsToldAgain(t *testing.T) {
	for _, losses := range []int{0, 6} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: 24 * time.Hour}))
		now, again := start, false
		flush := func(epoch uint64) {
			now = now.Add(100 * time.Millisecond)
			flushTo(t, n, now, epoch, deltasync.StatusOK, func(d *deltasync.Delta) {
				again = again || d.Key == keyOf(n, "u") && d.Tells()
			})
		}
		for i := range 200 { // both are known, and nothing is told again any more
			check(n, now, "warm")
			flush(uint64(1 + i%2))
		}
		check(n, now, "u")
		up := upOf(t, n.Flush(now))
		for range losses { // an uplink that is cut for some seconds
			n.Lost(now, 0, up.Seq)
			now = now.Add(time.Second)
			up = upOf(t, n.Flush(now))
		}
		answerAs(t, n, now, up, 1, deltasync.StatusOK) // it takes it, and dies before it exports
		for range 300 {
			flush(2)
		}
		if !again {
			t.Errorf("after %d losses: told to an aggregator that died at once, and to nobody else in 30 s", losses)
		}
	}
}
