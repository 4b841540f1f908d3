package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// An aggregator whose frames take long tells edges a pace with its replies, and other
// regions none: theirs are few.
func TestRepliesTellThePace(t *testing.T) {
	watch, each := start, time.Millisecond // each look at the watch takes so long
	a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second,
		Now: func() time.Time { watch = watch.Add(each); return watch }}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	r, e := &region{Aggregator: a, t: t, name: "eu", now: start}, &edge{name: "e1"}
	second := func() deltasync.Down {
		r.now = r.now.Add(time.Second)
		for i := range 20 {
			e.tell(r, 9, charge(start, uint64(i+1)))
		}
		r.Tick(r.now)
		return e.tell(r, 9, charge(start, 30))
	}
	second()
	if down := second(); down.Pace != 0 {
		t.Errorf("at ease edges are told a pace of %v, want none", down.Pace)
	}
	each = 10 * time.Second
	second()
	if down := second(); down.Pace < 200*time.Millisecond {
		t.Errorf("with frames that take %v edges are told a pace of %v, want one", each, down.Pace)
	}
	us := newRegion(t, "us", newStore(&start), "eu")
	us.now = r.now
	(&edge{name: "u1"}).tell(us, 9, charge(start, 1))
	for _, o := range us.Exports(us.now) {
		if down := decode(t, r.Handle(t.Context(), r.now, o.Subject, o.Payload)); down.Status != deltasync.StatusOK || down.Pace != 0 {
			t.Errorf("a region is answered %v with a pace of %v, want ok and none", down.Status, down.Pace)
		}
	}
}
