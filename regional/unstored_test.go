package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// What a peer took while its store was away is told again, seldom while that
// lasts and at once when it is over: whoever took it may be gone.
func TestPeerWithoutItsStoreIsToldAgain(t *testing.T) {
	eu, e := newRegion(t, "eu", newStore(&start), "us"), &edge{name: "e1"}
	away, back := far{epoch: 1, away: true}, far{epoch: 1}
	e.send(eu, hits(start, 1, 1, 2, 3))
	var at []int // the seconds in which they are told
	for second := range 60 {
		switch keys := away.second(t, eu); len(keys) {
		case 0:
		case 3:
			at = append(at, second)
		default:
			t.Fatalf("second %d: %d keys are told, want all or none", second, len(keys))
		}
	}
	if len(at) < 2 || len(at) > 6 {
		t.Errorf("told in the seconds %v of 60, want to be told again, and seldom", at)
	}
	back.second(t, eu) // a beat
	if got := len(back.second(t, eu)); got != 3 {
		t.Fatalf("%d keys are told when the store is back, want 3", got)
	}
	for range 20 {
		if got := len(back.second(t, eu)); got != 0 {
			t.Fatalf("%d keys are told once more", got)
		}
	}
}

// However much waits for a peer without its store, a round tells all of it.
func TestPeerWithoutItsStoreIsToldInWholeRounds(t *testing.T) {
	eu, e := newRegion(t, "eu", newStore(&start), "us"), &edge{name: "e1"}
	const keys = 2000 // several stretches
	for from := 0; from < keys; from += 200 {
		e.send(eu, hits(start, 1, upTo(keys)[from:from+200]...))
	}
	away, told := far{epoch: 1, away: true}, map[deltasync.Key]int{}
	for range 60 {
		for _, key := range away.second(t, eu) {
			told[key]++
		}
	}
	for key := range deltasync.Key(keys) {
		if n := told[key+1]; n < 3 || n > 6 {
			t.Fatalf("key %d was told %d times in a minute, want to be told again, and seldom", key+1, n)
		}
	}
}

// A peer that says that its store is away has its outage, whatever it refused.
func TestRefusalDoesNotEndAPeersOutage(t *testing.T) {
	eu, e := newRegion(t, "eu", newStore(&start), "us"), &edge{name: "e1"}
	e.send(eu, hits(start, 1, 1))
	away, full := far{epoch: 1, away: true}, far{epoch: 1, refuses: true, away: true}
	away.second(t, eu)
	told := 0
	for range 12 {
		e.send(eu, hits(start, 1, 2)) // something to refuse
		for _, key := range full.second(t, eu) {
			if key == 1 {
				told++
			}
		}
	}
	if told > 1 {
		t.Errorf("told %d times in 12 s of an outage, want to wait for its end", told)
	}
}

// A peer that is full when its outage ends has what it took stored by then: it
// is told once more, not for ever.
func TestOutageOfAFullPeerEnds(t *testing.T) {
	eu, e := newRegion(t, "eu", newStore(&start), "us"), &edge{name: "e1"}
	e.send(eu, hits(start, 1, 1))
	away, full := far{epoch: 1, away: true}, far{epoch: 1, lacks: 2}
	away.second(t, eu)
	told := 0
	for i := range 120 {
		e.send(eu, hits(start, uint64(i+1), 2)) // something to refuse
		for _, key := range full.second(t, eu) {
			if key == 1 {
				told++
			}
		}
	}
	if told != 1 {
		t.Errorf("a key that rests was told %d times in two minutes, want once", told)
	}
}

// A reply to another frame answers nothing: the one that was sent is lost, and
// goes out again.
func TestReplyToAnotherFrameIsRefused(t *testing.T) {
	eu, e := newRegion(t, "eu", newStore(&start), "us"), &edge{name: "e1"}
	for i := range 100 {
		e.tell(eu, 9, charge(start, uint64(i+1)))
		sent := eu.Exports(eu.now)
		if len(sent) == 0 {
			t.Fatalf("round %d: nothing is exported any more", i)
		}
		for _, o := range sent {
			if err := eu.Receive(eu.now, o, replyAs(t, "us", o.Seq+1000)); err == nil {
				t.Fatalf("the reply to frame %d is taken for that to %d", o.Seq+1000, o.Seq)
			}
			eu.Lost(eu.now, o) // as Run does
		}
		eu.now = eu.now.Add(2 * time.Second)
	}
}

// Twenty aggregators of a peer that answer in turn are no news each time.
func TestManyAggregatorsOfAPeerAnswerInTurn(t *testing.T) {
	eu, e := newRegion(t, "eu", newStore(&start), "us"), &edge{name: "e1"}
	e.send(eu, hits(start, 1, 1))
	const aggregators = 20
	again := 0
	for i := range 10 * aggregators {
		e.send(eu, hits(start, uint64(i+1), 2)) // something to answer
		for _, key := range (far{epoch: uint64(1 + i%aggregators)}).second(t, eu) {
			if key == 1 && i > 2*aggregators {
				again++
			}
		}
	}
	if again > 0 {
		t.Errorf("a key that rests was told %d times", again)
	}
}
