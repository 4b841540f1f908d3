package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// longer than any window
const aYear = 366 * 24 * time.Hour

// A log that was said to be new is as old as can be for whoever takes it, before it was
// first taken and after, and keeps what is in it; who had a lane has to take it anew.
func TestRightsAreTrusted(t *testing.T) {
	server := proc.Redis(t)
	r, _ := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
	look := func() []redisstore.LaneLog {
		t.Helper()
		found, err := r.Look(t.Context())
		if err != nil || len(found) != 8 {
			t.Fatalf("Look: %d lanes, %v", len(found), err)
		}
		return found
	}
	for _, l := range look() {
		if l.Lanes != 0 || l.Age != 0 || l.Keys != 0 {
			t.Fatalf("Look at an empty Redis: %+v, want no log", l)
		}
	}
	if err := r.Trust(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, err := r.Take(t.Context(), 3, 7, nil)
	if err != nil || first.Age < aYear {
		t.Fatalf("Take of a log that is trusted: %v old, %v; want longer than any window", first.Age, err)
	}
	key := deltasync.Key(42)
	d := escrow.Deposit{Key: key, Version: 1, Holdings: []escrow.Holding{{Holder: 1, Granted: 5, Limit: 10, Lasts: time.Second, Region: "eu"}}}
	if err := r.Commit(t.Context(), 3, 7, []escrow.Deposit{d}); err != nil {
		t.Fatal(err)
	}
	server.Kill() // and what it forgets with it, as it writes no file
	server.Restart()
	born, err := r.Take(t.Context(), 3, 8, []string{"eu", "us"})
	if err != nil || born.Age > time.Minute || born.Trusted != 0 {
		t.Fatalf("Take of a log that is gone: %v old, %v; want a new one", born.Age, err)
	}
	if err := r.Commit(t.Context(), 3, 8, []escrow.Deposit{d}); err != nil {
		t.Fatal(err)
	}
	if l := look()[3]; l.Lanes != 8 || l.Age > time.Minute || l.Keys != 1 || l.Moved {
		t.Errorf("Look: %+v, want a young log of 8 lanes with 1 key", l)
	}
	if err := r.Trust(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(t.Context(), 3, 8, nil); !errors.Is(err, escrow.ErrFenced) {
		t.Errorf("Commit by who had the lane before: %v, want ErrFenced", err)
	}
	again, err := r.Take(t.Context(), 3, 9, nil)
	if err != nil || again.Age < aYear || again.ID != born.ID || again.Trusted == 0 || again.Trusted > time.Minute {
		t.Errorf("Take of a log that is trusted: %v old, ID %x, trusted %v ago, %v; want longer than any window, %x, and just now", again.Age, again.ID, again.Trusted, err, born.ID)
	}
	found, err := r.Load(t.Context(), 3, 9, []deltasync.Key{key})
	if err != nil || len(found) != 1 || len(found[0].Holdings) != 1 || found[0].Holdings[0].Granted != 5 {
		t.Errorf("Load: %+v, %v; want what was committed before", found, err)
	}
}

// Where the region had other lanes, keys were in others: nothing is trusted of that.
func TestRightsOfOtherLanesAreNotTrusted(t *testing.T) {
	server := proc.Redis(t)
	r, _ := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
	if _, err := r.Take(t.Context(), 0, 1, nil); err != nil {
		t.Fatal(err)
	}
	other, err := redisstore.NewRights(redisstore.Config{Addrs: []string{server.Addr}, Prefix: "sg", Timeout: 10 * time.Second}, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Trust(t.Context()); !errors.Is(err, escrow.ErrLog) || !strings.Contains(err.Error(), "of 8 lanes, not of 4") {
		t.Errorf("Trust: %v, want that the log is of 8 lanes", err)
	}
}
