package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// An aggregator whose machine's clock is not that of the other regions says the time by
// theirs: its store goes by that.
func TestNowIsTheTimeOfTheOtherRegions(t *testing.T) {
	const behind = 30 * time.Second
	now := start
	cfg := regional.Config{
		Region: "eu", Name: "a1", Peers: []string{"us", "ap"}, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second,
		Now: func() time.Time { return now }, Boot: func() time.Duration { return now.Sub(start) },
	}
	a, err := regional.New(cfg, newStore(&now))
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: now}
	(&edge{name: "e1"}).tell(r, 9, charge(now, 1))
	if got := a.Now(); !got.Equal(now) {
		t.Errorf("before it heard of others it is %v, want %v by its own clock", got, now)
	}
	for _, o := range a.Exports(now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil {
			t.Fatal(err)
		}
		at := now.Add(behind).UnixNano()
		down := deltasync.Down{
			Status: deltasync.StatusOK, Region: o.Peer, Node: deltasync.NodeID(o.Peer, "", ""), Seq: up.Seq, StoreEpoch: 1,
			EchoSentAt: up.SentAt, ReceivedAt: at, SentAt: at,
		}
		b, err := down.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Receive(now, o, b); err != nil {
			t.Fatal(err)
		}
	}
	a.Tick(now)
	now = now.Add(time.Minute)
	if got, want := a.Now(), now.Add(behind); !got.Equal(want) {
		t.Errorf("it is %v, want %v by the clocks of two others", got, want)
	}
}
