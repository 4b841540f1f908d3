package escrow_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// As long as a peer says that this region is none of its, and a lease and a window after, nothing is
// granted of keys that it may have drawn another home for; what was granted stands, and who comes back
// when his lease is over has nothing. Keys that count in the region alone are granted on.
func TestWhoIsNoPeerGrantsNothing(t *testing.T) {
	o := newOffice(t)
	a := o.authority()
	const lease, window = deltasync.DefaultLease, time.Minute
	held := o.claim(a, deltasync.Claim{Holder: 7, Want: 50}).Granted
	if held == 0 {
		t.Fatal("nothing is granted before")
	}
	for range 20 {
		a.Unsettle()
		if g := o.claim(a, deltasync.Claim{Holder: 7, Granted: held, Want: 80}); g.Granted != held || g.Flags&deltasync.GrantVoid != 0 {
			t.Fatalf("answer = %+v, want the %d that it had", g, held)
		}
		if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 10}); g.Granted != 0 {
			t.Fatalf("answer = %+v to another, want none", g)
		}
		if g := o.claim(a, deltasync.Claim{Holder: 9, Granted: 30, Want: 30}); g.Flags&deltasync.GrantVoid == 0 {
			t.Fatalf("answer = %+v to who says that it has some, and is not known to, want it void", g)
		}
		if g := o.claimOf(a, 2, deltasync.Claim{Holder: 8, Want: 10, Regional: true}); g.Granted == 0 {
			t.Fatalf("answer = %+v of the region's own key, want rights", g)
		}
		o.boot += time.Second
	}
	last := o.boot - time.Second
	for o.boot < last+lease+window {
		if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 10}); g.Granted != 0 {
			t.Fatalf("answer = %+v %v after it was said last, want none", g, o.boot-last)
		}
		o.boot += time.Second
	}
	o.boot += 5 * time.Second
	if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 10}); g.Granted == 0 {
		t.Errorf("answer = %+v %v after it was said last, want rights", g, o.boot-last)
	}
}
