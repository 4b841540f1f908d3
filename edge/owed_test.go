package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A refresh that found no room in the outbox is one still when it goes out: the
// aggregator is to tell the other regions though nothing rose.
func TestRefreshThatWaitedIsOneStill(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	for _, user := range neighbours(n, 2) { // drained in one batch
		check(n, start, user)
	}
	answer(t, n, start, upOf(t, n.Flush(start)), deltasync.Totals{}, deltasync.Totals{})
	n.outboxes[0] = deltasync.NewOutbox(deltasync.OutboxConfig{MaxDeltas: 1})
	now := start.Add(11 * time.Minute) // a sixth of the window and some
	tickAll(n, now)
	told := map[deltasync.Key]bool{}
	for i := range 2 {
		up := upOf(t, n.Flush(now))
		d := onlyDelta(t, up)
		if told[d.Key] = true; d.Flags&deltasync.FlagRefresh == 0 || len(d.Cells) != 1 {
			t.Errorf("frame %d: %+v, want a refresh with its counts", i+1, d)
		}
		answer(t, n, now, up, deltasync.Totals{})
	}
	if len(told) != 2 {
		t.Errorf("%d keys are told again, want both", len(told))
	}
}

// What is told once more before the end is a refresh: an aggregator that has the
// counts, and turned them away all the same, is to pass them on.
func TestOwedIsToldAsARefresh(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	checkCost(n, start, "u", 3)
	answerStatus(t, n, start, upOf(t, n.Flush(start)), deltasync.StatusOverloaded, deltasync.Totals{})
	n.tellOwed(start)
	d := onlyDelta(t, upOf(t, n.Flush(start)))
	if d.Flags&deltasync.FlagRefresh == 0 || len(d.Cells) != 1 || d.Cells[0].Charges != 3 {
		t.Errorf("told %+v, want a refresh with the 3 charges", d)
	}
}

// A question that the region turned away is no count: nothing is owed for it.
func TestRefusedQuestionIsNotOwed(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	n.Check(start, peekOf(n, "u"))
	up := upOf(t, n.Flush(start))
	if d := onlyDelta(t, up); d.Tells() || d.Flags&deltasync.FlagTouch == 0 {
		t.Fatalf("sent %+v, want a question", d)
	}
	answerStatus(t, n, start, up, deltasync.StatusOverloaded, deltasync.Totals{})
	s := n.shard(keyOf(n, "u"))
	if s.owing != 0 || s.find(keyOf(n, "u")).flags&owed != 0 {
		t.Errorf("%d keys of the shard are owed, want none", s.owing)
	}
	if keys := n.unsent(); keys != 0 {
		t.Errorf("counts of %d keys are unsent, want none: nothing was counted", keys)
	}
}

// What was turned away and has left its window is owed no more, though the key
// lives on by what others count.
func TestRetiredCountsAreNotOwed(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute}))
	rate, key := n.Rules().Rules()[0].Rates[0], keyOf(n, "u")
	check(n, start, "u")
	answerStatus(t, n, start, upOf(t, n.Flush(start)), deltasync.StatusOverloaded, deltasync.Totals{})
	if keys := n.unsent(); keys != 1 {
		t.Fatalf("counts of %d keys are unsent, want those of the one that was turned away", keys)
	}
	now := start.Add(3 * time.Minute)
	pushTotals(t, n, now, "u", peersAt(rate.SliceAt(now.UnixNano()), 5))
	tickAll(n, now)
	s := n.shard(key)
	if r := s.find(key); r == nil || r.block.own.Len() != 0 {
		t.Fatalf("record %+v, want it live with others' counts alone", r)
	}
	if s.owing != 0 || s.find(key).flags&owed != 0 {
		t.Errorf("%d keys of the shard are owed, want none", s.owing)
	}
	if keys := n.unsent(); keys != 0 {
		t.Errorf("counts of %d keys are unsent, want none", keys)
	}
}

// A region that has no room for a key is told of it less and less often, and
// within 16 s of having some.
func TestRefusedIsToldLessAndLessOften(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	checkCost(n, start, "u", 3)
	now, status := start, deltasync.StatusOverloaded
	told := func(d time.Duration) (times int) {
		for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
			n.Tick(now)
			for _, o := range n.Flush(now) {
				var up deltasync.Up
				if err := up.UnmarshalBinary(o.Payload); err != nil {
					t.Fatal(err)
				}
				totals := make([]deltasync.Totals, 0, 1)
				for _, sec := range up.Sections {
					times += len(sec.Deltas)
					totals = append(totals, make([]deltasync.Totals, len(sec.Deltas))...)
				}
				if s := status; len(totals) > 0 {
					answerStatus(t, n, now, &up, s, totals...)
				} else {
					answer(t, n, now, &up)
				}
			}
		}
		return times
	}
	if got := told(900 * time.Millisecond); got != 1 {
		t.Errorf("told %d times in the first second, want once", got)
	}
	if got := told(2 * time.Minute); got < 7 || got > 14 {
		t.Errorf("told %d times in two minutes, want after 1, 2, 4, 8, 16, 16 … seconds", got)
	}
	status = deltasync.StatusOK
	if got := told(18 * time.Second); got != 1 {
		t.Errorf("told %d times once there is room, want once", got)
	}
	if got := told(2 * time.Minute); got != 0 {
		t.Errorf("told %d times more", got)
	}
	// It is forgiven by then: the next refusal is told again in a second or two.
	status = deltasync.StatusOverloaded
	checkCost(n, now, "u", 1)
	if got := told(3 * time.Second); got < 2 {
		t.Errorf("told %d times in three seconds, want again after one", got)
	}
}
