package escrow_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Holders are told to all edges of a region, and one may mean ill: nobody speaks for a
// holder but the edge that it is a life of, and not after the lane changed hands.
func TestNobodySpeaksForAnothersHolder(t *testing.T) {
	for name, lie := range map[string]deltasync.Claim{
		"returned what it uses":  {Holder: 7, Granted: 100, Returned: 100},
		"said it later than all": {Holder: 7, Granted: 100, Want: 100},
		"wants nothing":          {Holder: 7, Granted: 100, Limit: 1},
	} {
		for _, moved := range []bool{false, true} {
			t.Run(fmt.Sprint(name, moved), func(t *testing.T) {
				o := newOffice(t)
				a := o.authority()
				if g := o.claim(a, deltasync.Claim{Holder: 7, Want: 100}); g.Granted != 100 {
					t.Fatalf("%+v, want all 100", g)
				}
				if moved {
					a = o.authority()
				}
				lie.Key, lie.Limit, lie.Lasts = 1, max(lie.Limit, 100), time.Minute
				for _, by := range []deltasync.Claims{{From: "eu", Pop: "fra", Name: "e1"}, {From: "us", Pop: "ams", Name: "e1"}, {From: "eu", Pop: "ams", Name: "e2"}} {
					by.SentAt = math.MaxInt64
					if g := o.claimBy(a, by, lie); g.Flags&deltasync.GrantVoid == 0 || g.Granted != 0 {
						t.Errorf("%s/%s/%s speaks for it: %+v, want void", by.From, by.Pop, by.Name, g)
					}
				}
				if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 100}); g.Granted != 0 {
					t.Errorf("%+v while another holds all, want none", g)
				}
				if g := o.claim(a, deltasync.Claim{Holder: 7, Granted: 100, Returned: 40}); g.Flags&deltasync.GrantVoid != 0 {
					t.Errorf("%+v to the holder itself, want it heard", g)
				}
				if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 40}); g.Granted != 40 {
					t.Errorf("%+v once 40 were returned, want them", g)
				}
			})
		}
	}
}

// Holders are an edge's to invent: of each so many are heard of, and of a PoP so many that
// others find room.
func TestHoldersAreBounded(t *testing.T) {
	o := newOffice(t)
	a := o.authority()
	holder := uint64(0)
	taken := func(pop string, edge, lives int) (n int) {
		for range lives {
			holder++
			o.sent++
			k := deltasync.Claim{Key: 1, Holder: holder, Limit: 1 << 40, Lasts: time.Minute, Want: 1}
			if g := o.claimBy(a, deltasync.Claims{From: "eu", Pop: pop, Name: fmt.Sprint("e", edge), SentAt: o.sent}, k); g.Flags&deltasync.GrantVoid == 0 {
				n++
			}
		}
		return n
	}
	if n := taken("ams", 0, 20); n != 16 {
		t.Errorf("%d lives of an edge are heard of, want 16", n)
	}
	all := 16
	for edge := range 128 {
		all += taken("ams", 1+edge, 16)
	}
	if all != 1536 {
		t.Errorf("%d lives of a PoP are heard of, want 1536: three times what is left", all)
	}
	if n := taken("fra", 0, 16) + taken("fra", 1, 16); n != 32 {
		t.Errorf("%d of another PoP's 32 lives are heard of, want all", n)
	}
	if st := a.Stats(); st.Crowded != 20+128*16-1536 {
		t.Errorf("%d claims had no room, want %d", st.Crowded, 20+128*16-1536)
	}
}
