package escrow_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// An edge whose rights are taken back is answered nothing, whatever it goes on saying, and
// what it held is others' when its lease has ended and what it spent has left the window,
// and not before; what it returns is at once. It is the edge's, or all of its PoP's, of a
// key or of all.
func TestRevokedRights(t *testing.T) {
	edge, pop := deltasync.NodeID("eu", "ams", "e1"), deltasync.PopOf(deltasync.NodeID("eu", "ams", "e1"))
	for _, tt := range []struct {
		name   string
		who    escrow.Revoked
		barred bool
	}{
		{"the edge's", escrow.Revoked{Node: edge}, true},
		{"the edge's of the key", escrow.Revoked{Node: edge, Key: 1}, true},
		{"the PoP's", escrow.Revoked{Node: pop}, true},
		{"the edge's of another key", escrow.Revoked{Node: edge, Key: 2}, false},
		{"another edge's", escrow.Revoked{Node: deltasync.NodeID("eu", "ams", "e2")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOffice(t)
			l := &revocable{Rights: memstore.NewRights(time.Time{}, o.now)}
			a, err := escrow.New(escrow.Config{Region: "eu", Lanes: 1, Log: l, Timeout: time.Minute, Boot: func() time.Duration { return o.boot }})
			if err != nil {
				t.Fatal(err)
			}
			says := func(name string, k deltasync.Claim) (g deltasync.Grants) {
				t.Helper()
				o.sent++
				k.Key, k.Limit, k.Lasts = 1, 100, time.Minute
				c := deltasync.Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "ams", Name: name, SentAt: o.sent, Claims: []deltasync.Claim{k}}
				if name == "other" {
					c.Pop = "fra"
				}
				reply := a.Handle(t.Context(), &c)
				if reply == nil { // it was fenced off
					reply = a.Handle(t.Context(), &c)
				}
				if err := g.UnmarshalBinary(reply); err != nil {
					t.Fatal(err)
				}
				return g
			}
			if g := says("e1", deltasync.Claim{Holder: 7, Want: 100}); len(g.Grants) != 1 || g.Grants[0].Granted != 100 {
				t.Fatalf("grants %+v, want all", g)
			}
			l.revoke(t, 1<<40, tt.who)
			if g := says("e1", deltasync.Claim{Holder: 7, Granted: 100, Returned: 30, Want: 100}); len(g.Grants) > 0 == tt.barred {
				t.Fatalf("it is answered with %+v", g.Grants)
			}
			if !tt.barred {
				return
			}
			if g := says("e1", deltasync.Claim{Holder: 8, Want: 100}); len(g.Grants) > 0 {
				t.Fatalf("another life of it is answered with %+v", g.Grants)
			}
			var got uint64
			for took, other := o.boot, uint64(0); got < 100; o.boot += 5 * time.Second {
				says("e1", deltasync.Claim{Holder: 7, Granted: 100, Returned: 30, Want: 100})
				got = says("other", deltasync.Claim{Holder: 9, Granted: other, Want: 100}).Grants[0].Granted
				switch since := o.boot - took; {
				case since <= deltasync.DefaultLease+time.Minute && got != 30:
					t.Fatalf("after %v another has %d, want the 30 that were returned", since, got)
				case since > deltasync.DefaultLease+70*time.Second:
					t.Fatalf("after %v another has %d, want all", since, got)
				}
				other = got
			}
			if a.Stats().Revoked == 0 {
				t.Error("nothing is counted")
			}
			l.revoke(t, 1<<41)
			if g := says("e1", deltasync.Claim{Holder: 7, Granted: 100, Returned: 30, Want: 100}); len(g.Grants) != 1 || g.Grants[0].Flags&deltasync.GrantVoid == 0 {
				t.Errorf("given back, it is answered with %+v, want that its rights are gone", g.Grants)
			}
			if g := says("e1", deltasync.Claim{Holder: 10, Want: 10}); len(g.Grants) != 1 {
				t.Errorf("anew, it is answered with %+v", g.Grants)
			}
		})
	}
}
