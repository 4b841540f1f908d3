package edge

import (
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// lanePeer is a lane's aggregators as an edge knows them: by their answers.
type lanePeer struct {
	t   *testing.T
	n   *Node
	now time.Time
}

// told has whoever has the epoch answer all that the node sends now, and is the
// keys that were told, in order.
func (l *lanePeer) told(epoch uint64, status deltasync.Status) (keys []deltasync.Key) {
	l.t.Helper()
	for _, out := range l.n.Flush(l.now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(out.Payload); err != nil {
			l.t.Fatal(err)
		}
		asked := 0
		for _, sec := range up.Sections {
			asked += len(sec.Deltas)
			for _, d := range sec.Deltas {
				if d.Tells() {
					keys = append(keys, d.Key)
				}
			}
		}
		down := deltasync.Down{Status: status, Region: "eu", Seq: up.Seq, StoreEpoch: epoch, LiveRegions: 1, Totals: make([]deltasync.Totals, asked)}
		b, err := down.AppendBinary(nil)
		if err != nil {
			l.t.Fatal(err)
		}
		if err := l.n.Receive(l.now, out.Lane, b); err != nil {
			l.t.Fatalf("Receive: %v", err)
		}
	}
	slices.Sort(keys)
	return keys
}

// pass lets time go by, with a whole sweep in it.
func (l *lanePeer) pass(d time.Duration) {
	l.now = l.now.Add(d)
	for range shards {
		l.n.Tick(l.now)
	}
}

// keys are those of some users, in order.
func (l *lanePeer) keys(users ...string) (keys []deltasync.Key) {
	for _, u := range users {
		keys = append(keys, keyOf(l.n, u))
	}
	slices.Sort(keys)
	return keys
}

// newLanePeer is a node that has heard of aggregators 1 and 2, and told the
// first about "before".
func newLanePeer(t *testing.T) *lanePeer {
	l := &lanePeer{t, newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: 24 * time.Hour})), start}
	for epoch := range uint64(2) {
		check(l.n, l.now, "before")
		l.told(epoch+1, deltasync.StatusOK)
		l.pass(time.Second)
		l.told(epoch+1, deltasync.StatusOK) // what the second's epoch had sent again
		l.pass(time.Second)
	}
	return l
}

// What an aggregator took into its memory alone goes with it when it dies. The
// next one to answer the lane is told, and only of that.
func TestCountsTakenWithoutAStoreAreToldToTheNext(t *testing.T) {
	l := newLanePeer(t)
	check(l.n, l.now, "u")
	if got := l.told(1, deltasync.StatusStoreDown); !slices.Equal(got, l.keys("u")) {
		t.Fatalf("told %x, want u's", got)
	}
	l.pass(2 * time.Second)
	check(l.n, l.now, "later")
	if got := l.told(2, deltasync.StatusOK); !slices.Equal(got, l.keys("later")) {
		t.Fatalf("told %x, want what is new", got)
	}
	l.pass(time.Second)
	if got := l.told(2, deltasync.StatusOK); !slices.Equal(got, l.keys("u", "later")) {
		t.Errorf("the next aggregator was told %x, want %x: u's counts are nowhere else, and may be later's are not either", got, l.keys("u", "later"))
	}
	l.pass(time.Second)
	if got := l.told(2, deltasync.StatusOK); len(got) > 0 {
		t.Errorf("and %x once more", got)
	}
}

// Nobody is told twice while the aggregator itself lives: it writes what it has.
func TestCountsTakenWithoutAStoreAreWrittenByTheirHolder(t *testing.T) {
	l := newLanePeer(t)
	check(l.n, l.now, "u")
	l.told(1, deltasync.StatusStoreDown)
	l.pass(200 * time.Millisecond)
	check(l.n, l.now, "other")
	if l.told(2, deltasync.StatusOK); len(l.n.unstored[0]) != 1 {
		t.Fatalf("%d holders after another's answer so soon, want the one", len(l.n.unstored[0]))
	}
	l.pass(3 * time.Second)
	if got := l.told(1, deltasync.StatusOK); len(got) > 0 { // a beat: the lane is asked what became of it
		t.Fatalf("told %x, want nothing", got)
	}
	if len(l.n.unstored[0]) != 0 {
		t.Fatal("the holder said that all is stored, and is still remembered")
	}
	l.pass(time.Second)
	if got := l.told(2, deltasync.StatusOK); len(got) > 0 {
		t.Errorf("told %x again", got)
	}
}

// However many come and go without a store, all that they held is told again.
func TestManyHoldersWithoutAStore(t *testing.T) {
	l := newLanePeer(t)
	var users []string
	for i := range 3 * mostUnstored {
		users = append(users, string(rune('A'+i)))
		check(l.n, l.now, users[i])
		l.told(1, deltasync.StatusStoreDown) // epochs that are new would have all sent again anyway
		l.n.unstored[0][len(l.n.unstored[0])-1].epoch = uint64(100 + i)
		l.now = l.now.Add(time.Millisecond)
	}
	if got := len(l.n.unstored[0]); got > mostUnstored {
		t.Fatalf("%d holders are remembered, want %d at most", got, mostUnstored)
	}
	l.pass(2 * time.Second)
	l.told(2, deltasync.StatusOK)
	l.pass(time.Second)
	if got := l.told(2, deltasync.StatusOK); !slices.Equal(got, l.keys(users...)) {
		t.Errorf("told %d keys, want all %d", len(got), len(users))
	}
}

// Twenty aggregators that answer in turn are no news each time.
func TestManyAggregatorsAnswerInTurn(t *testing.T) {
	l := newLanePeer(t)
	const aggregators = 20
	again := 0
	for i := range 10 * aggregators {
		check(l.n, l.now, "busy")
		told := l.told(uint64(1+i%aggregators), deltasync.StatusOK)
		if i > 2*aggregators && slices.Contains(told, keyOf(l.n, "before")) {
			again++
		}
		l.pass(time.Second)
	}
	if again > 0 {
		t.Errorf("a key that rests was told %d times", again)
	}
}
