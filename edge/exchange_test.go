package edge

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// peersAt is a reply's totals: cost that other edges counted in one slice.
func peersAt(slice crdt.Slice, cost uint64) deltasync.Totals {
	return deltasync.Totals{Peers: []crdt.Cell{{Slice: slice, Charges: cost}}}
}

// A reply leaves out what is stored of the life that asked. It says nothing
// complete of a later one, which must not pass for heard of.
func TestReplyToAnEarlierLifeIsNotHeard(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	users := neighbours(n, 2)
	n.shard(keyOf(n, users[0])).max = 1
	check(n, start, users[0])
	up := upOf(t, n.Flush(start))
	check(n, start, users[1]) // the first is forgotten
	check(n, start, users[0]) // and born again
	rate := n.Rules().Rules()[0].Rates[0]
	answer(t, n, start, up, peersAt(rate.SliceAt(start.UnixNano()), 7))
	if b := n.Believe(start, rate, keyOf(n, users[0])); !b.Live || b.Age != -1 || b.Total != 1 {
		t.Fatalf("after a reply to its first life: %+v, want it live, never heard of, 1 used", b)
	}
}

// What an outbox refuses stays dirty, and goes out when there is room.
func TestRefusedByTheOutboxIsNotDropped(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	rate := n.Rules().Rules()[0].Rates[0]
	box := n.outboxes[0]
	for key := deltasync.Key(1); box.Pending() < 65535; key++ { // room for one more that is near its limit
		if !box.Put(shapeOf(rate), 0, deltasync.Delta{Key: key, Flags: deltasync.FlagTouch | deltasync.FlagFirst}) {
			t.Fatalf("the outbox is full after %d keys, want 65536", box.Pending())
		}
	}
	users := neighbours(n, 4) // one shard is drained in one batch
	for _, user := range users[:3] {
		checkCost(n, start, user, 51)
	}
	denied := n.Rules().Only().NewRequest()
	denied.Set("user", users[3])
	denied.Cost, denied.Peek = 1, true
	n.Check(start, denied)
	n.Flush(start)
	if !box.Full() {
		t.Fatal("the outbox has room left, want it full")
	}
	n.outboxes[0] = deltasync.NewOutbox(deltasync.OutboxConfig{})
	cells, touches := 0, 0
	for _, d := range upOf(t, n.Flush(start.Add(time.Second))).Sections[0].Deltas {
		if len(d.Cells) == 1 && d.Cells[0].Charges == 51 {
			cells++
		} else if d.Flags&deltasync.FlagTouch != 0 {
			touches++
		}
	}
	if cells != 2 || touches != 1 {
		t.Fatalf("with room again %d counts and %d questions go out, want the 2 and the 1 refused", cells, touches)
	}
}

// What an outbox refuses is told again from its first slice on, and so is what was
// given back of earlier ones meanwhile.
func TestRefusedSlicesAreToldWithEarlierOnes(t *testing.T) {
	for name, given := range map[string]bool{"": false, "given back meanwhile": true} {
		n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
		rate, now := n.Rules().Rules()[0].Rates[0], start.Add(10*time.Minute)
		_, charges := take(t, n, start, "u", 4)
		early := crdt.Cell{Slice: rate.SliceAt(start.UnixNano()), Charges: 4}
		late := crdt.Cell{Slice: rate.SliceAt(now.UnixNano()), Charges: 1}
		settleFrames(n, start)
		check(n, now, "u")
		s, b := n.shard(keyOf(n, "u")), new(drained)
		for c := pressing; c <= cold; c++ {
			s.drain(c, now.UnixNano(), 0, anyTick, all, b)
		}
		want := []crdt.Cell{late}
		if len(b.news) != 1 || !slices.Equal(b.news[0].delta.Cells, want) {
			t.Fatalf("%s: drained %+v, want one delta with %+v", name, b.news, want)
		}
		if given {
			n.Refund(now, charges, 3)
			early.Refunds = 3
			want = []crdt.Cell{early, late}
		}
		n.putBack(b.news[0].life, &b.news[0].delta)
		if got := onlyDelta(t, upOf(t, n.Flush(now))).Cells; !slices.Equal(got, want) {
			t.Errorf("%s: told %+v, want %+v", name, got, want)
		}
	}
}

// lose has the node's next frame lost at now.
func lose(t *testing.T, n *Node, now time.Time) {
	t.Helper()
	n.Lost(now, 0, upOf(t, n.Flush(now)).Seq)
}

// A lane rests longer after each loss in a row, and an answer ends the row.
func TestAnswerEndsTheRowOfLosses(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	check(n, start, "u")
	now := start
	for range 5 {
		lose(t, n, now)
		now = now.Add(2 * time.Second)
	}
	lose(t, n, now)
	if out := n.Flush(now.Add(900 * time.Millisecond)); len(out) != 0 {
		t.Fatalf("%d frames 900 ms after the sixth loss, want the lane to rest a second", len(out))
	}
	now = now.Add(2 * time.Second)
	answer(t, n, now, upOf(t, n.Flush(now)), deltasync.Totals{})
	check(n, now, "u")
	lose(t, n, now)
	upOf(t, n.Flush(now.Add(100*time.Millisecond))) // fails unless it rested no longer than after a first loss
}

// An answer also ends the rest itself: the region is there.
func TestAnswerEndsTheRest(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	check(n, start, "a")
	first := upOf(t, n.Flush(start))
	check(n, start, "b")
	lose(t, n, start)
	if out := n.Flush(start); len(out) != 0 {
		t.Fatalf("%d frames right after a loss, want none", len(out))
	}
	answer(t, n, start, first, deltasync.Totals{})
	upOf(t, n.Flush(start))
}

// A frame that got lost while a newer one was answered is no reason to rest.
func TestLostBetweenAnswersIsNoReasonToRest(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	check(n, start, "a")
	older := upOf(t, n.Flush(start))
	check(n, start, "b")
	answer(t, n, start, upOf(t, n.Flush(start)), deltasync.Totals{})
	n.Lost(start, 0, older.Seq)
	if d := onlyDelta(t, upOf(t, n.Flush(start))); !d.Tells() { // fails where the lane rests
		t.Fatalf("%+v after the loss, want what was lost", d)
	}
}

// A denied key asks what others did: nothing else would tell it of refunds, or
// show that somebody still wants it.
func TestDeniedKeyAsks(t *testing.T) {
	for _, rates := range [][]limit.RateSpec{
		{{Limit: 1, Per: time.Hour}},
		{{Limit: 1, Per: time.Hour}, {Name: "day", Limit: 9, Per: 24 * time.Hour}},
	} {
		n := newNode(t, Config{}, perUser(rates...))
		check(n, start, "u")
		up := upOf(t, n.Flush(start))
		totals := 0
		for i := range up.Sections {
			totals += len(up.Sections[i].Deltas)
		}
		answer(t, n, start, up, make([]deltasync.Totals, totals)...)
		if n.Urgent() {
			t.Fatal("urgent with everything sent and answered")
		}
		now := start.Add(time.Second)
		if d := check(n, now, "u"); d.Allowed {
			t.Fatalf("second of one: %+v, want denied", d)
		}
		if !n.Urgent() {
			t.Fatalf("%d rates: a denial is not urgent", len(rates))
		}
		asked := 0
		for _, sec := range upOf(t, n.Flush(now)).Sections {
			for _, d := range sec.Deltas {
				if d.Flags&deltasync.FlagTouch != 0 && d.Flags&deltasync.FlagUrgent != 0 && len(d.Cells) == 0 {
					asked++
				}
			}
		}
		if asked != len(rates) {
			t.Fatalf("a denial asks about %d of %d rates, want all", asked, len(rates))
		}
	}
}

// Slices more than a second ahead of our clock are not believed, whoever sends
// them: they would deny until the clock has caught up.
func TestFarFutureOfAReplyIsRefused(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Minute}))
	rate := n.Rules().Rules()[0].Rates[0]
	now := start.Add(time.Second) // half a second before the next slice
	current := rate.SliceAt(now.UnixNano())
	check(n, now, "u")
	answer(t, n, now, upOf(t, n.Flush(now)), deltasync.Totals{Peers: []crdt.Cell{
		{Slice: rate.Reach(now.UnixNano()) - 1, Charges: 50}, // retired
		{Slice: current, Charges: 2}, {Slice: current + 1, Charges: 3}, {Slice: current + 2, Charges: 40},
	}})
	if got := n.shard(keyOf(n, "u")).find(keyOf(n, "u")).block.others.Len(); got != 2 {
		t.Errorf("%d slices of others kept, want the 2 that count", got)
	}
	if got := n.Believe(now, rate, keyOf(n, "u")).Total; got != 6 {
		t.Fatalf("1 own, 2 now, 3 half a second ahead, 40 two seconds ahead: believes %d, want 6", got)
	}
}

// A reply with more totals than the frame had keys cannot be told which is whose: nothing of
// it is taken, and the frame waits for another.
func TestReplyWithTooManyTotalsIsRefused(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	rate := n.Rules().Rules()[0].Rates[0]
	check(n, start, "u")
	up, current := upOf(t, n.Flush(start)), rate.SliceAt(start.UnixNano())
	down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, LiveRegions: 2,
		Totals: []deltasync.Totals{peersAt(current, 7), peersAt(current, 8)}}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Receive(start, 0, b); err == nil {
		t.Error("a reply with two totals for one key is taken")
	}
	if got, bad := n.Believe(start, rate, keyOf(n, "u")).Total, n.stats.badReplies.Load(); got != 1 || bad != 1 {
		t.Errorf("after it the edge believes %d, and has had %d bad replies; want its own 1, and 1", got, bad)
	}
	answer(t, n, start, up, peersAt(current, 7))
	if got := n.Believe(start, rate, keyOf(n, "u")).Total; got != 8 {
		t.Errorf("after the right reply the edge believes %d, want 8", got)
	}
}

// refundOf is a reply's totals: cost that other edges gave back in one slice.
func refundOf(slice crdt.Slice, cost uint64) deltasync.Totals {
	return deltasync.Totals{Peers: []crdt.Cell{{Slice: slice, Refunds: cost}}}
}
