package escrow_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
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

// Keys for which there is no room are refused, and counted. Those of which nobody has said
// anything for a lease make room, and are as they were once somebody asks for them again.
func TestKeysMakeRoom(t *testing.T) {
	const most = 8
	o := newOffice(t)
	a, err := escrow.New(escrow.Config{Region: "eu", Lanes: 1, Log: o.log, Timeout: time.Minute, Boot: func() time.Duration { return o.boot }, MaxKeys: most})
	if err != nil {
		t.Fatal(err)
	}
	other := deltasync.Claims{From: "eu", Pop: "fra", Name: "e2"}
	tell := func(key deltasync.Key, holder, want uint64) (granted uint64, known bool) {
		c := other
		c.Region, c.Lanes, c.SentAt = "eu", 1, int64(o.boot)
		c.Claims = []deltasync.Claim{{Key: key, Holder: holder, Limit: 100, Lasts: time.Minute, Want: want}}
		var g deltasync.Grants
		if err := g.UnmarshalBinary(a.Handle(t.Context(), &c)); err != nil {
			t.Fatal(err)
		}
		for _, g := range g.Grants {
			return g.Granted, true
		}
		return 0, false
	}
	o.claimOf(a, 1, deltasync.Claim{Holder: 1}) // the log begins
	o.boot += 10 * time.Minute
	for key := range deltasync.Key(most) {
		if g := o.claimOf(a, 1+key, deltasync.Claim{Holder: 100 + uint64(key), Want: 60}); g.Granted != 80 { // and its part of what nobody wants
			t.Fatalf("key %d: %+v", 1+key, g)
		}
	}
	// Of one it is known that some was returned, and the log does not know that yet.
	o.claimOf(a, 2, deltasync.Claim{Holder: 101, Granted: 80, Returned: 50})
	if _, known := tell(100, 7, 1); known || a.Stats().Crowded != 1 {
		t.Fatalf("one key more than there is room for is known: %v; %+v", known, a.Stats())
	}
	o.boot += deltasync.DefaultLease + time.Second
	for range 3 { // what is owed to the log is written first
		tell(100, 7, 1)
		o.boot += time.Second
	}
	for key := range deltasync.Key(most - 1) { // all have been left to the log
		if granted, known := tell(200+key, 7, 1); !known || granted == 0 {
			t.Errorf("key %d, once the others are asked for no more: known %v, granted %d", 200+key, known, granted)
		}
	}
	o.boot += deltasync.DefaultLease + time.Second
	for key, want := range map[deltasync.Key]uint64{1: 20, 2: 70, 3: 20} {
		granted, known := tell(key, 8, 100)
		if !known { // how long the others have been silent is written first
			o.boot += time.Second
			granted, known = tell(key, 8, 100)
		}
		if !known || granted != want {
			t.Errorf("key %d, asked for again: known %v, granted %d, want %d of 100 beside those that the first holder has", key, known, granted, want)
		}
	}
	if n := a.Stats().Keys; n > most {
		t.Errorf("%d keys are known, of %d", n, most)
	}
}

// A key is left to the log once that knows what was returned: else nobody would have it until
// the window is over.
func TestKeysAreLeftToTheLogWithWhatWasReturned(t *testing.T) {
	o := newOffice(t)
	a, err := escrow.New(escrow.Config{Region: "eu", Lanes: 1, Log: o.log, Timeout: time.Minute, Boot: func() time.Duration { return o.boot }, MaxKeys: 1})
	if err != nil {
		t.Fatal(err)
	}
	short := func(k deltasync.Claim) deltasync.Claim { k.Lasts = 10 * time.Second; return k }
	o.claimOf(a, 2, short(deltasync.Claim{Holder: 1})) // the log begins
	o.boot += 10 * time.Minute
	if g := o.claimOf(a, 2, short(deltasync.Claim{Holder: 2, Want: 60})); g.Granted != 80 {
		t.Fatalf("%+v, want 80 granted", g)
	}
	o.claimOf(a, 2, short(deltasync.Claim{Holder: 2, Granted: 80, Returned: 50}))
	o.boot += deltasync.DefaultLease + time.Second
	for range 3 {
		c := deltasync.Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "ams", Name: "e1", SentAt: int64(o.boot)}
		c.Claims = []deltasync.Claim{short(deltasync.Claim{Key: 3, Holder: 3, Limit: 100, Want: 1})}
		a.Handle(t.Context(), &c)
		o.boot += time.Second
	}
	if n := a.Stats().Keys; n != 1 {
		t.Fatalf("%d keys are known", n)
	}
	if g := o.claimOf(o.authority(), 2, short(deltasync.Claim{Holder: 4, Want: 100})); g.Granted != 70 {
		t.Errorf("%+v, want 70 granted beside the 30 that are held", g)
	}
}
