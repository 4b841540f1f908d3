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

// Whose rights are taken back stands in the log, of one key or of all, until they are given
// back, and whoever has a lane takes it anew and reads it.
func TestRightsAreRevoked(t *testing.T) {
	server := proc.Redis(t)
	r, _ := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
	key := deltasync.Key(42)
	lane := key.Lane(8)
	edge, other := deltasync.NodeID("eu", "ams", "e1"), deltasync.NodeID("eu", "fra", "e1")
	all, one := escrow.Revoked{Node: edge}, escrow.Revoked{Node: edge, Key: key}
	if err := r.Revoke(t.Context(), all); !errors.Is(err, escrow.ErrLog) || !strings.Contains(err.Error(), "no log of the lane yet") {
		t.Errorf("Revoke without a log: %v", err)
	}
	token := uint64(0)
	takes := func(lane int, want ...escrow.Revoked) {
		t.Helper()
		token++
		o, err := r.Take(t.Context(), lane, token, nil)
		if err != nil || len(o.Revoked) != len(want) {
			t.Fatalf("Take: %+v, %v, want %v revoked", o, err, want)
		}
		for i := range want {
			if o.Revoked[i] != want[i] {
				t.Errorf("Take: %v is revoked, want %v", o.Revoked, want)
			}
		}
	}
	for lane := range 8 {
		takes(lane)
	}
	takes(lane)
	d := escrow.Deposit{Key: key, Version: 1, Holdings: []escrow.Holding{
		{Holder: 1, Node: edge, Granted: 50, Returned: 8, Limit: 100, Lasts: time.Minute, Region: "eu"},
		{Holder: 2, Node: other, Granted: 20, Limit: 100, Lasts: time.Minute, Region: "eu"}}}
	if err := r.Commit(t.Context(), lane, token, []escrow.Deposit{d}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(r.Revoke(t.Context(), one), r.Revoke(t.Context(), all)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Commit(t.Context(), lane, token, nil); !errors.Is(err, escrow.ErrFenced) {
		t.Errorf("Commit by who had the lane: %v, want ErrFenced", err)
	}
	takes(lane, one, all)
	takes((lane+1)%8, all)
	looks, err := r.Look(t.Context())
	if err != nil || len(looks[lane].Revoked) != 2 || looks[lane].Keys != 1 || looks[(lane+1)%8].Keys != 0 {
		t.Errorf("Look: %+v, %v", looks, err)
	}
	found, err := r.Deposits(t.Context(), lane)
	if err != nil || len(found) != 1 || len(found[0].Holdings) != 2 || found[0].Holdings[0] != d.Holdings[0] {
		t.Errorf("Deposits: %+v, %v", found, err)
	}
	if freed, err := r.Free(t.Context(), all); err != nil || freed != 42 {
		t.Errorf("Free: %d, %v, want 42", freed, err)
	}
	takes(lane, one, all)
	if left, err := r.Load(t.Context(), lane, token, []deltasync.Key{key}); err != nil || len(left[0].Holdings) != 1 || left[0].Holdings[0] != d.Holdings[1] {
		t.Errorf("Load: %+v, %v, want what the other holds", left, err)
	}
	if err := r.Restore(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	takes(lane, one)
	for n := range escrow.MostRevoked {
		err = r.Revoke(t.Context(), escrow.Revoked{Node: uint64(n), Key: key})
	}
	if !errors.Is(err, escrow.ErrLog) || !strings.Contains(err.Error(), "256 stand there already") {
		t.Errorf("Revoke of one more than there may be: %v", err)
	}
}

// Nothing is revoked in a log that another server serves than wrote it: who had the lane
// knows what was written last, and could not prove it any more.
func TestNothingIsRevokedInAMovedLog(t *testing.T) {
	server := durable(t)
	r, _ := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
	for lane := range 8 {
		if _, err := r.Take(t.Context(), lane, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	server.Kill()
	server.Restart()
	if err := r.Revoke(t.Context(), escrow.Revoked{Node: 1}); !errors.Is(err, escrow.ErrLog) || !strings.Contains(err.Error(), "an aggregator takes the lane first") {
		t.Errorf("Revoke: %v", err)
	}
}
