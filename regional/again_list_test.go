package regional

import (
	"testing"

	"github.com/spillgate/spillgate/sync"
)

// Keys that retire and come back while a peer is away must not make its list
// longer and longer, nor be told twice.
func TestListOfKeysToTellAgainIsBounded(t *testing.T) {
	a, err := New(Config{Region: "eu", Name: "a1", Peers: []string{"jp", "us"}, Lanes: 1, Incarnation: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const us, keys = 1, 50
	l := a.lanes[0]
	for round := range 100 {
		for key := deltasync.Key(1); key <= keys; key++ {
			if uint64(key)%3 == uint64(round%3) {
				l.counters[key] = &counter{} // as Tick and the next frame do
			}
			if c := l.counters[key]; c != nil {
				before := len(l.peers[us].again)
				a.tellLater(l, us, key, c)
				a.tellLater(l, us, key, c)
				if len(l.peers[us].again) > before+1 {
					t.Fatalf("key %d was put there twice", key)
				}
			}
		}
	}
	list := l.peers[us].again
	if len(list) > 2*keys+1 {
		t.Errorf("%d places for %d keys, want at most twice as many", len(list), keys)
	}
	l.clearAgain(us)
	seen := map[deltasync.Key]bool{}
	for _, key := range l.peers[us].again {
		if seen[key] {
			t.Errorf("key %d stands there twice", key)
		}
		seen[key] = true
	}
	if len(seen) != keys {
		t.Errorf("%d keys on the list, want all %d", len(seen), keys)
	}
	if n := len(l.peers[0].again); n > 0 {
		t.Errorf("%d keys on another peer's list, want none", n)
	}
	if got := a.stats.toldLater.Load(); got == 0 {
		t.Error("nothing is counted as told later")
	}
}
