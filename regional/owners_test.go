package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// Two who both own a lane and never hear of each other lack what the other took for
// as long as they may, and no longer.
func TestTwoOwnersLackNoMoreThanTheBound(t *testing.T) {
	now := start
	store := newStore(&now)
	a, b := newRegion(t, "eu", store), newRegion(t, "eu", store)
	after := func(d time.Duration) {
		now = start.Add(d)
		a.now, b.now = now, now
	}
	asks := func(r *region) uint64 { return charges((&edge{name: "asks"}).tell(r, 9).Totals[0].Peers) }
	(&edge{name: "e1"}).tell(a, 9, charge(now, 5))
	if got := asks(b); got != 5 {
		t.Fatalf("who has never asked the store knows %d, want 5", got)
	}
	(&edge{name: "e1"}).tell(a, 9, charge(now, 8))
	after(regional.OwnersApart)
	if got := asks(b); got != 5 {
		t.Errorf("%v later it knows %d, want 5: it does not ask at every question", regional.OwnersApart, got)
	}
	after(regional.OwnersApart + time.Millisecond)
	if got := asks(b); got != 8 {
		t.Errorf("after more than that it knows %d, want 8", got)
	}
	(&edge{name: "e1"}).tell(a, 9, charge(now, 13))
	(&edge{name: "e2"}).tell(b, 9, charge(now, 1)) // what it writes it also reads
	if got := asks(b); got != 14 {
		t.Errorf("after news of its own it knows %d, want 14", got)
	}
}

// asksFor has an edge tell of so many charges, and of what it is asked for.
func (e *edge) asksFor(r *region, key deltasync.Key, n uint64) deltasync.Down {
	r.t.Helper()
	return e.send(r, deltasync.Section{Shape: minute, Deltas: []deltasync.Delta{{
		Key: key, Cells: []crdt.Cell{charge(start, n)}, Demand: &deltasync.Demand{Fast: 5, Mid: 5, Slow: 5, Window: 5},
	}}})
}

// Shares are the owner's to tell: of two who know of each other the one that does not own
// the lane hears of few who ask for a key, and each of those would have too much. All else
// it answers.
func TestSharesAreAnsweredByTheOwnerAlone(t *testing.T) {
	now := start
	store := newStore(&now)
	other := newRegion(t, "eu", store)
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: other.yield(), Lanes: 1, Incarnation: 1, StoreTimeout: time.Second}, store)
	if err != nil {
		t.Fatal(err)
	}
	owner := &region{Aggregator: a, t: t, name: "eu", now: start}
	owner.beat(deltasync.Live{Name: "a1"})
	e1, e2 := &edge{name: "e1"}, &edge{name: "e2"}
	shares := 0
	for round := range uint64(5) {
		now = now.Add(200 * time.Millisecond)
		owner.now, other.now = now, now
		down := e1.asksFor(owner, 9, round+1)
		if down.Status != deltasync.StatusOK {
			t.Fatalf("round %d: the owner answers %v, want ok", round, down.Status)
		}
		if down.Totals[0].Share != nil {
			shares++
		}
		down = e2.asksFor(other, 9, round+1)
		if got := charges(down.Totals[0].Peers); down.Status != deltasync.StatusNotOwner || got != round+1 {
			t.Errorf("round %d: the other answers %v and %d of others, want that it is not the owner, and %d", round, down.Status, got, round+1)
		}
		if got := down.Totals[0].Share; got != nil {
			t.Errorf("round %d: the other answers with a share, %+v, want none", round, *got)
		}
	}
	if shares == 0 {
		t.Error("the owner answers with no share")
	}
}

// Who gave a lane away pushes its keys for a while, and the shares with them no more.
func TestSharesArePushedByTheOwnerAlone(t *testing.T) {
	r, e := newRegion(t, "eu", newStore(&start)), &edge{name: "e1"}
	// push is what is pushed of the key, after so many charges.
	push := func(n uint64) (last deltasync.HotKey) {
		t.Helper()
		r.now = r.now.Add(200 * time.Millisecond)
		e.asksFor(r, 9, n)
		for _, p := range r.Pushes(r.now) {
			var hot deltasync.Hot
			if err := hot.UnmarshalBinary(p.Payload); err != nil {
				t.Fatal(err)
			}
			last = hot.Sections[0].Keys[0]
		}
		if got := charges(last.Peers); got != n {
			t.Fatalf("edges are pushed %d, want %d", got, n)
		}
		return last
	}
	push(80) // from here on each change is pushed
	if push(81).Share == nil {
		t.Error("the owner pushes no share")
	}
	r.yield()
	if got := push(82).Share; got != nil || !r.Serves(0) {
		t.Errorf("who still serves the lane (%t) pushes the share %+v, want none", r.Serves(0), got)
	}
}

// What is asked for in a region its owner of the lane tells the others, alone: who has given
// it away hears of that no more, and would tell how what he knew fades, while the owner has
// nothing new to say.
func TestDemandIsToldByTheOwnerAlone(t *testing.T) {
	now := start
	r := newRegion(t, "eu", newStore(&now), "us")
	tells := func(lasts time.Duration) (told int) {
		for end := now.Add(lasts); now.Before(end); now = now.Add(100 * time.Millisecond) {
			r.now = now
			for _, o := range r.Exports(now) {
				var up deltasync.Up
				if err := up.UnmarshalBinary(o.Payload); err != nil {
					t.Fatal(err)
				}
				for _, sec := range up.Sections {
					for _, d := range sec.Deltas {
						if d.Demand != nil {
							told++
						}
					}
				}
				down := deltasync.Down{Status: deltasync.StatusOK, Region: "us", Node: deltasync.NodeID("us", "", ""), Seq: up.Seq, EchoSentAt: up.SentAt, ReceivedAt: up.SentAt, SentAt: up.SentAt}
				b, err := down.AppendBinary(nil)
				if err == nil {
					err = r.Receive(now, o, b)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return told
	}
	e, second := &edge{name: "e1"}, deltasync.Shape{Generation: 1, Width: 25 * time.Millisecond, Slices: 40, Limit: 100}
	for n := range uint64(5) {
		e.send(r, deltasync.Section{Shape: second, Deltas: []deltasync.Delta{{
			Key: 9, Cells: []crdt.Cell{{Slice: crdt.Slice(now.UnixNano() / int64(second.Width)), Charges: n + 1}}, Demand: &deltasync.Demand{Fast: 90, Mid: 90, Slow: 90, Window: 90},
		}}})
		if tells(200*time.Millisecond) == 0 {
			t.Fatal("the owner does not tell what is asked for")
		}
	}
	tells(time.Second)
	r.yield()
	if told := tells(8 * time.Second); told != 0 {
		t.Errorf("it has given the lane away, and tells %d times what is asked for", told)
	}
}
