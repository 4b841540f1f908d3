package regional

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// A peer is suspected when it owes an answer for longer than one takes, whoever else
// may answer; and when it speaks again, until it has told what it counted meanwhile.
func TestSuspects(t *testing.T) {
	const interval, way = 100 * time.Millisecond, 80 * ms
	l := links{waiting: make([]atomic.Int64, 2), unanswered: make([]atomic.Int64, 2), deaf: make([]atomic.Bool, 2), ways: []int64{way, way}, again: make([]int64, 2), back: make([]int64, 2), awake: make([]atomic.Bool, 2)}
	suspected := func(at int64) bool { return l.suspects(0, interval, at) }
	start := 1000 * ms
	if suspected(start) {
		t.Error("who owes nothing is suspected")
	}
	l.sent(0, start)
	l.sent(0, start+300*ms) // the first counts
	late := start + way*26/10 + int64(2*interval+suspicion)
	if suspected(late) || !suspected(late+ms) {
		t.Errorf("suspected in time %v, later %v; want only later", suspected(late), suspected(late+ms))
	}
	if l.suspects(1, interval, late+ms) {
		t.Error("another peer is suspected with it")
	}
	l.heard(0, false, false, interval, late+50*ms)
	if !suspected(late + 60*ms) {
		t.Error("it has spoken, and is believed to have told all at once")
	}
	told := late + 50*ms + int64(2*interval) + way*26/10
	if l.answered(0, late+49*ms, interval, late+60*ms); !suspected(told) {
		t.Error("it has answered what was sent before it spoke, may hear nothing any more, and is not suspected")
	}
	if l.answered(0, late+50*ms, interval, late+60*ms); !suspected(told-ms) || suspected(told) {
		t.Errorf("it has spoken, and answers: suspected until it has told all %v, and then %v; want only until then", suspected(told-ms), suspected(told))
	}
	l.ways[1] = 0
	if l.sent(1, start); l.suspects(1, interval, start+int64(time.Hour)) {
		t.Error("who was never there is suspected to be cut off")
	}
	l.heard(1, true, false, interval, start)
	if !l.suspects(1, interval, start+int64(time.Hour)) {
		t.Error("who says that it is deaf is there, and is not suspected, as it never answered")
	}
	l.sent(0, late+3000*ms)
	l.heard(0, false, false, interval, late+3170*ms)
	if suspected(late + 3171*ms) {
		t.Error("who answers in time is suspected")
	}
}

// A peer that says it is deaf is suspected when it has answered none of our frames for
// longer than it takes, though it is heard: not sooner, as it may have been heard again just
// now; nor is one that is not deaf, as what it sent was for others. That it says so no more
// changes nothing, as who starts there does not; when it answers, or says that it hears, it is
// suspected until it can know what was counted here.
func TestSuspectsTheDeaf(t *testing.T) {
	const interval, way = 100 * time.Millisecond, 80 * ms
	l := links{waiting: make([]atomic.Int64, 2), unanswered: make([]atomic.Int64, 2), deaf: make([]atomic.Bool, 2), ways: []int64{way, way}, again: make([]int64, 2), back: make([]int64, 2), awake: make([]atomic.Bool, 2)}
	suspected := func(at int64) bool { return l.suspects(0, interval, at) }
	start := 1000 * ms
	late := start + way*26/10 + int64(2*interval+suspicion)
	for at := start; at <= late+ms; at += ms {
		l.sent(0, at)
		l.heard(0, false, false, interval, at)
		l.sent(1, at)
		l.answered(1, at, interval, at)
	}
	if suspected(late + ms) {
		t.Error("who is heard, and does not answer, is suspected")
	}
	l.heard(0, true, false, interval, late+ms)
	l.heard(1, true, false, interval, late+ms)
	if l.suspects(1, interval, late+ms) {
		t.Error("who answers is suspected")
	}
	for at := late + ms; at < late+3000*ms; at += ms {
		l.sent(0, at)
		if l.heard(0, true, false, interval, at); !suspected(at) {
			t.Fatalf("%v after it was found to be deaf it is not suspected any more", time.Duration(at-late))
		}
	}
	healed := late + 3000*ms
	told := healed + int64(2*interval) + way*26/10
	l.heard(0, false, false, interval, healed-50*ms)
	if !suspected(healed + 3000*ms) {
		t.Error("it says no more that it is deaf, answers nothing, and is not suspected")
	}
	for what, c := range map[string]struct {
		hears func(l *links)
		told  int64
	}{
		"it answers":            {func(l *links) { l.answered(0, healed, interval, healed) }, told},
		"it says that it hears": {func(l *links) { l.heard(0, false, true, interval, healed) }, healed + int64(finds*interval+suspicion) + way*36/10},
	} {
		told := c.told
		l := links{waiting: make([]atomic.Int64, 1), unanswered: make([]atomic.Int64, 1), deaf: make([]atomic.Bool, 1), ways: []int64{way}, again: make([]int64, 1), back: make([]int64, 1), awake: make([]atomic.Bool, 1)}
		l.sent(0, start)
		l.heard(0, true, false, interval, start)
		c.hears(&l)
		if !l.suspects(0, interval, told-ms) || l.suspects(0, interval, told) || !l.awake[0].Load() {
			t.Errorf("%s: suspected until then %v, and from then on %v; want only until it knows what was counted, which is told at once", what, l.suspects(0, interval, told-ms), l.suspects(0, interval, told))
		}
	}
	l.answered(0, healed, interval, healed)
	// After a cut in both directions it is deaf for a moment yet: that changes nothing.
	l.sent(0, told)
	back := told + 3000*ms
	l.heard(0, true, false, interval, back)
	l.answered(0, back, interval, back+300*ms)
	if told := back + int64(2*interval) + way*26/10; !suspected(told-ms) || suspected(told) {
		t.Errorf("after a cut in both directions: suspected until then %v, and from then on %v; want only until it has told what it counted", suspected(told-ms), suspected(told))
	}
}

// A region's part falls at once and rises when the others can know; and what they
// cannot have seen is what was counted since they were told.
func TestPartsRiseLate(t *testing.T) {
	a, err := New(Config{Region: "eu", Name: "a", Peers: []string{"us"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, now := a.lanes[0], int64(1_800_000_000)*int64(time.Second)
	c := &counter{shape: deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 100}}
	l.counters[1], l.learnt = c, 1
	a.links.ways[0] = 80 * ms
	share := func() *deltasync.Share { return a.shareOf(l, c, now) }
	charge := func(n uint64) {
		c.join(FromEdge, crdt.Replica{Node: 9}, []crdt.Cell{{Slice: sliceAt(c.shape, now), Charges: n}}, 0, now)
	}
	say := func(rate float32) {
		l.contested(1, c, a.unseen(now), now).asks(9, nil, &deltasync.Demand{Fast: rate, Mid: rate, Window: rate}, now)
		a.republish(c, now)
	}
	us := func(rate float32) { c.contest.regions[0] = regionDemand{Demand: deltasync.Demand{Mid: rate}, at: now} }

	republished := func() (kept bool) {
		a.republishAll(l, now)
		return c.contest != nil && len(l.contests) == 1
	}

	say(80)
	us(80)
	charge(3)
	if s := share(); s.Omega > 0.1 || s.Unseen != 3 {
		t.Errorf("before anybody was told: %+v, want next to nothing, and 3 unseen", *s)
	}
	c.contest.exported(now)
	charge(8)
	if now += a.unseen(now) - ms; share().Omega > 0.1 {
		t.Errorf("before the others can know: %+v", *share())
	}
	now += ms
	say(80)
	if s := share(); s.Omega < 0.49 || s.Omega > 0.51 || s.Unseen != 5 {
		t.Errorf("when they can: %+v, want a half, and 5 unseen", *s)
	}
	say(10)
	if s := share(); s.Omega > 0.2 {
		t.Errorf("when less is asked for: %+v, want less at once", *s)
	}
	us(1)
	c.contest.exported(now)
	now += a.unseen(now)
	say(10)
	if s := share(); s.Unseen != 0 || s.Omega < 0.7 {
		t.Errorf("later: %+v, want nothing unseen, and most of it", *s)
	}

	// Cut off from each other, both have what they had, and no one forgets it soon.
	say(60)
	us(20)
	for range 3 {
		now += int64(time.Second)
		say(60)
		c.contest.exported(now)
		republished()
	}
	a.links.sent(0, now)
	now += int64(time.Second)
	say(90) // which the others do not know
	s := share()
	if s.Omega != 1 || s.Kept < 20 || s.Kept > 30 || s.Unseen != 0 {
		t.Errorf("alone: %+v, want all but some quarter of the limit", *s)
	}
	c.join(FromRegion, crdt.Replica{Node: a.nodes[0]}, []crdt.Cell{{Slice: sliceAt(c.shape, now), Charges: 10}}, 0, now)
	if more := share(); more.Kept != s.Kept-10 {
		t.Errorf("the others spent 10 of theirs: %+v after %+v, want that much less to be kept for them", *more, *s)
	}

	kept, had := *s, now
	if now += int64(forgetContest) + ms; !republished() {
		t.Error("what the others had is forgotten while they are cut off")
	} else if s := share(); s.Omega != 1 || s.Kept < kept.Kept {
		t.Errorf("nobody asks for a while: %+v after %+v, want as much to be kept for the others", *s, kept)
	}
	if now = had + int64(keepFrozen) + ms; republished() {
		t.Error("it is kept for ever")
	}
}

// Who alone asks for a key has nearly all of it when another region falls silent, if that
// could have told of demand; of a key that came too late for that each has as much. It is
// forgotten when the cut is over and nobody asks.
func TestPartsOfWhoNeverAsked(t *testing.T) {
	a, err := New(Config{Region: "eu", Name: "a", Peers: []string{"us", "ap"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, now := a.lanes[0], int64(1_800_000_000)*int64(time.Second)
	a.links.ways[0], a.links.ways[1] = 80*ms, 80*ms
	asks := func(key deltasync.Key, region bool) *counter {
		c := l.counters[key]
		if c == nil {
			c = &counter{shape: deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 3000}}
			l.counters[key] = c
		}
		t := l.contested(key, c, a.unseen(now), now)
		t.asks(9, nil, demandOf(3000), now)
		if region {
			t.regions[1] = regionDemand{Demand: deltasync.Demand{Mid: 3000}, at: now, past: t.regions[1].past}
		}
		a.republish(c, now)
		t.exported(now)
		return c
	}
	l.learnt = 1
	old := asks(1, false)
	for range 20 {
		now += 150 * ms
		asks(1, false)
		a.republishAll(l, now)
	}
	late := asks(2, false)
	now += a.tells(0) - ms
	a.links.sent(0, now)
	for range 10 { // and meanwhile another region asks for both, of which the silent one cannot know
		now += 100 * ms
		asks(1, true)
		asks(2, true)
		a.republishAll(l, now)
	}
	if s := a.shareOf(l, old, now); s.Kept < 1 || s.Kept > 100 {
		t.Errorf("%+v: want next to nothing kept for who never asked", *s)
	}
	if s := a.shareOf(l, late, now); s.Kept < 999 || s.Kept > 1000 {
		t.Errorf("%+v: want a third kept for who could not tell", *s)
	}
	now += int64(forgetContest) + ms
	if a.republishAll(l, now); old.contest == nil || late.contest != nil {
		t.Errorf("kept: %v, %v; want what is known and not what is not", old.contest != nil, late.contest != nil)
	}
	a.links.waiting[0].Store(0)
	if a.republishAll(l, now); old.contest != nil || len(l.contests) != 0 {
		t.Error("nobody asks any more, nobody is cut off, and the contest goes on")
	}
}

// What the others cannot have seen is told as it is, whatever else is counted anew
// meanwhile, and less what was given back: where requests come and go, as with slots
// that are held for a moment, it would be above the limit else.
func TestUnseenIsNet(t *testing.T) {
	a, err := New(Config{Region: "eu", Name: "a", Peers: []string{"us"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, now := a.lanes[0], int64(1_800_000_000)*int64(time.Second)
	c := &counter{shape: deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 10}}
	l.counters[1], l.learnt = c, 1
	a.links.ways[0] = 80 * ms
	unseen := func(want uint64) {
		t.Helper()
		if s := a.shareOf(l, c, now); s.Unseen != want {
			t.Errorf("%d unseen, want %d", s.Unseen, want)
		}
	}
	cell := crdt.Cell{Slice: sliceAt(c.shape, now)}
	tell := func(charges, refunds uint64) {
		cell.Charges, cell.Refunds = cell.Charges+charges, cell.Refunds+refunds
		c.join(FromEdge, crdt.Replica{Node: 9}, []crdt.Cell{cell}, 0, now)
	}
	tell(7, 2)
	l.contested(1, c, a.unseen(now), now).asks(9, nil, demandOf(80), now)
	unseen(5) // as recent as that
	tell(100, 98)
	unseen(7)
	c.contest.exported(now)
	now += a.unseen(now)
	unseen(0)
	tell(60, 1)
	unseen(59)
	l.clamp(c, c.most(c.shape), crdt.Replica{Node: 9}, []crdt.Cell{cell}, retirement(c.shape, now)) // it counts anew how much was counted
	unseen(59)
}
