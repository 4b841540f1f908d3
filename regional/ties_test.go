package regional_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
)

// An aggregator that starts knows from the store which regions are there, how far they are
// and until when they told what they counted: it waits until they answer or are overdue.
// Of one that nobody ever heard it knows nothing.
func TestTiesOutliveAggregators(t *testing.T) {
	now := start
	store := newStore(&now)
	sync := func(a *regional.Aggregator) {
		t.Helper()
		if err := a.Sync(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	starts := func() *regional.Aggregator {
		t.Helper()
		a, err := regional.New(regional.Config{Region: "eu", Name: "a", Peers: []string{"us", "ap"}, Now: func() time.Time { return now }}, store)
		if err != nil {
			t.Fatal(err)
		}
		sync(a)
		return a
	}
	knows := func(a *regional.Aggregator, us string, told time.Time) {
		t.Helper()
		got := a.Regions(now)
		if got[0].State != us || got[0].WayMS != 80 || got[0].Told == nil || !got[0].Told.Equal(told) || got[1].State != "never_heard" || got[1].WayMS != 0 {
			t.Errorf("it knows %+v (told %v); want us %s, 80 ms away, told until %v, and nothing of ap", got[:2], got[0].Told, us, told)
		}
	}
	before := starts()
	if before.Awaits(now) {
		t.Error("the first that starts awaits somebody")
	}
	for range 5 {
		now = now.Add(time.Second)
		before.MeetPeer(0, 160*time.Millisecond, now)
		sync(before)
	}
	last := now
	now = now.Add(10 * time.Second)
	sync(before)

	a := starts()
	knows(a, "silent", last)
	if !a.Awaits(now) || a.CutOff(now) != 0 {
		t.Error("it does not await who has yet to answer")
	}
	if a.AskPeer(0, now); a.Awaits(now.Add(time.Second)) || a.CutOff(now.Add(time.Second)) != 1 {
		t.Error("who does not answer is not taken to be cut off")
	}
	now = now.Add(2 * time.Second)
	sync(a) // it has nothing new to note
	knows(starts(), "silent", last)
	if a.MeetPeer(0, 160*time.Millisecond, now); a.Awaits(now) {
		t.Error("it awaits who has spoken")
	}
	now = now.Add(28 * time.Hour)
	if got := starts().Regions(now)[0]; got.State != "never_heard" {
		t.Errorf("%+v, which was not heard for longer than a day: want nothing known of it", got)
	}
}

// While its store is away an aggregator that starts takes all that are configured to be
// there, until they speak: they may be cut off, and nothing tells. As soon as the store
// answers who is not in it counts for nobody.
func TestTiesThatCannotBeRead(t *testing.T) {
	now := start
	store := &broken{Store: newStore(&now)}
	store.down = true
	a, err := regional.New(regional.Config{Region: "eu", Name: "a", Peers: []string{"us", "ap"}, Now: func() time.Time { return now }}, store)
	if err != nil {
		t.Fatal(err)
	}
	if a.Awaits(now) || a.CutOff(now) != 0 {
		t.Error("it awaits somebody before the store was asked")
	}
	_ = a.Sync(t.Context(), now)
	if a.AskPeer(0, now); !a.Awaits(now) || a.CutOff(now) != 0 {
		t.Error("it does not await who may be there, and has yet to answer")
	}
	a.AskPeer(1, now)
	now = now.Add(time.Second)
	if a.Awaits(now) || a.CutOff(now) != 3 {
		t.Error("who does not answer is not taken to be cut off")
	}
	a.MeetPeer(0, 160*time.Millisecond, now)
	if now = now.Add(time.Second); a.CutOff(now) != 2 {
		t.Errorf("cut off are %b, as the first has spoken; want the second alone", a.CutOff(now))
	}
	store.down = false
	if err := a.Sync(t.Context(), now); err != nil || a.Awaits(now) || a.CutOff(now) != 0 {
		t.Errorf("cut off are %b, as the store knows of nobody (%v); want none", a.CutOff(now), err)
	}
}
