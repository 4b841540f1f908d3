package escrow_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// begin is an authority that has its lane.
func (o *office) begin() *escrow.Authority {
	o.Helper()
	a := o.authority()
	if err := a.Keep(o.Context(), func(int) bool { return true }); err != nil {
		o.Fatal(err)
	}
	return a
}

// As long as a peer says that this region is none of its, nothing is renewed, nor, for a lease and a
// window more, granted of keys that it may have drawn another home for: what was is over by the time
// that one grants it. Keys that count in the region alone are granted on. Who has the lane next knows.
func TestWhoIsNoPeerGrantsNothing(t *testing.T) {
	o := newOffice(t)
	a := o.begin()
	const lease, window = deltasync.DefaultLease, time.Minute
	held := o.claim(a, deltasync.Claim{Holder: 7, Want: 50}).Granted
	if held == 0 {
		t.Fatal("nothing is granted before")
	}
	silent := func(k deltasync.Claim) {
		t.Helper()
		k.Key, k.Limit, k.Lasts = 1, 100, window
		o.sent++
		var g deltasync.Grants
		c := deltasync.Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "ams", Name: "e1", SentAt: o.sent, Claims: []deltasync.Claim{k}}
		if err := g.UnmarshalBinary(a.Handle(t.Context(), &c)); err != nil || len(g.Grants) != 0 {
			t.Fatalf("answer = %+v, %v, want none", g, err)
		}
	}
	for range 21 { // two seconds since that was noted last
		a.NamedBy(0, "us", 0)
		silent(deltasync.Claim{Holder: 7, Granted: held, Want: 80})
		silent(deltasync.Claim{Holder: 8, Want: 10})
		silent(deltasync.Claim{Holder: 9, Granted: 30, Want: 30})
		if g := o.claimOf(a, 2, deltasync.Claim{Holder: 8, Want: 10, Regional: true}); g.Granted == 0 {
			t.Fatalf("answer = %+v of the region's own key, want rights", g)
		}
		if err := a.Keep(t.Context(), func(int) bool { return true }); err != nil {
			t.Fatal(err)
		}
		o.boot += time.Second
	}
	last := o.boot - time.Second
	a.NamedBy(0, "us", time.Millisecond)
	for o.boot < last+lease+window {
		if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 10}); g.Granted != 0 {
			t.Fatalf("answer = %+v %v after it was said last, want none", g, o.boot-last)
		}
		if o.boot += time.Second; o.boot == last+lease {
			a = o.begin() // and hears nothing of us
		}
	}
	o.boot += 10 * time.Second // as it may have been said after it was noted last
	if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 10}); g.Granted == 0 {
		t.Errorf("answer = %+v %v after it was said last, want rights", g, o.boot-last)
	}
}

// drawn returns keys, each another one, whose home is one region, and another if that is not there.
func drawn(t *testing.T, home, next string, others ...string) func() deltasync.Key {
	t.Helper()
	of := func(regions ...string) *escrow.Authority {
		a, err := escrow.New(escrow.Config{Region: regions[0], Peers: regions[1:], Lanes: 1, Log: memstore.NewRights(time.Time{}, nil)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	all, without := of(append([]string{home, next}, others...)...), of(append([]string{next}, others...)...)
	key := deltasync.Key(0)
	return func() deltasync.Key {
		for key++; all.Home(key) != home || without.Home(key) != next; key++ {
		}
		return key
	}
}

// until is how long nothing is granted of a key of which nobody has any, from now on.
func (o *office) until(a *escrow.Authority, key deltasync.Key) time.Duration {
	o.Helper()
	for began := o.boot; ; o.boot += time.Second {
		if o.claimOf(a, key, deltasync.Claim{Holder: uint64(o.boot), Want: 1}).Granted > 0 {
			return o.boot - began
		}
		if o.boot-began > time.Hour {
			o.Fatal("nothing is granted for an hour")
		}
	}
}

const leaseAndWindow = deltasync.DefaultLease + time.Minute

// Whose authority is taken away had granted rights: who has its keys by then grants none of those
// until they are over, and all others at once; as long where it is started anew meanwhile. An
// operator who knows better says so.
func TestKeysOfARegionThatLeftAreGrantedLater(t *testing.T) {
	o := newOffice(t)
	o.peers = []string{"ap", "us"}
	own, inherited := drawn(t, "eu", "us", "ap"), drawn(t, "ap", "eu", "us")
	before := o.begin()
	for _, p := range o.peers {
		before.NamedBy(0, p, escrow.Forever)
	}
	if g := o.claimOf(before, own(), deltasync.Claim{Holder: 1, Want: 5}); g.Granted == 0 {
		t.Fatalf("answer = %+v, want rights", g)
	}
	if g := o.claimOf(before, inherited(), deltasync.Claim{Holder: 1, Want: 5}); g.Home != "ap" {
		t.Fatalf("answer = %+v, want that ap is to be asked", g)
	}
	o.peers = []string{"us"}
	left := o.boot
	after := func() *escrow.Authority {
		a := o.begin()
		a.NamedBy(0, "us", escrow.Forever)
		if d := o.until(a, own()); d != 0 {
			t.Errorf("nothing is granted for %v of a key that was drawn to this region all the time", d)
		}
		return a
	}
	a := after()
	if g := o.claimOf(a, inherited(), deltasync.Claim{Holder: 1, Want: 5}); g.Granted != 0 || g.Home != "" {
		t.Errorf("answer = %+v, want nothing, and nobody else", g)
	}
	if d := a.Withheld(); d < 24*time.Hour {
		t.Errorf("rights are withheld for %v, want a day, as no rules are known", d)
	}
	o.boot += 10 * time.Second
	if d := o.until(after(), inherited()); o.boot-left < leaseAndWindow+10*time.Second || o.boot-left > leaseAndWindow+13*time.Second {
		t.Errorf("its keys are granted after %v more, %v after it left, want a lease and a window after it heard of that", d, o.boot-left)
	}

	o.peers = []string{"ap", "us"}
	a = o.begin()
	o.peers = []string{"us"}
	a.NamedBy(0, "us", escrow.Forever)
	a.NamedBy(0, "ap", escrow.Forever)
	o.claimOf(a, own(), deltasync.Claim{Holder: 2, Want: 1})
	o.boot += time.Second
	o.claimOf(after(), own(), deltasync.Claim{Holder: 2, Want: 1}) // it left again
	o.boot += time.Second
	o.trusted = o.boot
	o.boot += time.Second
	if d := o.until(after(), inherited()); d != 0 {
		t.Errorf("nothing is granted for %v of what an operator said is known", d)
	}
}

// A peer that knows of a time when it did not name this region granted in its place until then,
// whenever this one's log began, and so it is told; whoever takes the lane next hears it with the
// first answer, and grants nothing before, for some seconds.
func TestWhoWasNamedLatelyGrantsLater(t *testing.T) {
	o := newOffice(t)
	o.peers = []string{"us"}
	key := drawn(t, "eu", "us")
	a := o.begin()
	a.NamedBy(0, "us", 20*time.Second)
	if d := o.until(a, key()); d < leaseAndWindow-20*time.Second || d > leaseAndWindow-17*time.Second {
		t.Errorf("rights are granted %v after us said that it names this region for 20s, want the rest of a lease and a window", d)
	}
	a.NamedBy(0, "us", 100*time.Second) // which is not later
	if d := o.until(a, key()); d != 0 {
		t.Errorf("nothing is granted for %v as us says again what it said", d)
	}
	a = o.begin()
	a.NamedBy(0, "us", 20*time.Second)
	o.trusted = o.boot + 1
	o.boot += 2
	a = o.begin()
	a.NamedBy(0, "us", 20*time.Second)
	if d := o.until(a, key()); d != 0 {
		t.Errorf("nothing is granted for %v of what an operator said is known", d)
	}

	a = o.begin()
	if d := o.until(a, key()); d < 5*time.Second || d > 7*time.Second {
		t.Errorf("rights are granted after %v of silence, want some seconds", d)
	}
	a = o.begin()
	if g := o.claimOf(a, key(), deltasync.Claim{Holder: 1, Want: 1}); g.Granted != 0 {
		t.Errorf("answer = %+v before us was heard, want nothing", g)
	}
	if g := o.claimOf(a, key(), deltasync.Claim{Holder: 1, Want: 1, Regional: true}); g.Granted == 0 {
		t.Errorf("answer = %+v of the region's own key, want rights", g)
	}
	a.NamedBy(0, "us", escrow.Forever)
	if d := o.until(a, key()); d != 0 {
		t.Errorf("nothing is granted for %v after us was heard", d)
	}
}

// What a peer is told: for how long it has been one, where the log knows of a time without it.
func TestPeersHearSinceWhenTheyAreNamed(t *testing.T) {
	o := newOffice(t)
	says := func(a *escrow.Authority, peer string, want time.Duration) {
		t.Helper()
		if got, known := a.Naming(0, peer); got != want || known != (want > 0) {
			t.Errorf("%s is told that it has been a peer for %v, %v; want %v", peer, got, known, want)
		}
	}
	start := func(peers ...string) *escrow.Authority {
		o.peers = peers
		says(o.authority(), "us", 0) // it has no lane yet
		return o.begin()
	}
	a := start("us")
	says(a, "us", escrow.Forever)
	a = start("us", "ap")
	says(a, "us", escrow.Forever)
	says(a, "ap", 1)
	o.boot += time.Minute
	says(a, "ap", time.Minute)
	a = start("us", "ap")
	says(a, "ap", time.Minute)
	a = start("us")
	says(a, "ap", 0)
	o.boot += time.Minute
	says(start("us", "ap"), "ap", 1)
}

// Who was told by a peer that it does not name this region grants nothing, and renews nothing, until that
// one says otherwise, however long it is silent: it may go on granting the same. An operator who
// knows better says so, or takes it from the peers.
func TestSilentDenierIsWaitedFor(t *testing.T) {
	o := newOffice(t)
	o.peers = []string{"us"}
	key := drawn(t, "eu", "us")
	keep := func(a *escrow.Authority) {
		t.Helper()
		if err := a.Keep(t.Context(), func(int) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	denied := func() *escrow.Authority {
		t.Helper()
		a := o.begin()
		a.NamedBy(0, "us", escrow.Forever)
		if o.claimOf(a, 1, deltasync.Claim{Holder: 1, Want: 1, Regional: true}).Granted == 0 {
			t.Fatal("nothing is granted of the region's own key")
		}
		a.NamedBy(0, "us", 0)
		keep(a)
		for range 3 { // it is started anew, too
			o.boot += time.Hour
			g, claims := deltasync.Grants{}, deltasync.Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "ams", Name: "e1", SentAt: int64(o.boot), Claims: []deltasync.Claim{{Key: key(), Holder: uint64(o.boot), Limit: 100, Lasts: time.Minute, Want: 1}}}
			if err := g.UnmarshalBinary(a.Handle(t.Context(), &claims)); err != nil || len(g.Grants) != 0 {
				t.Fatalf("answer = %+v, %v hours after a peer said that it does not name this region, want none", g, err)
			}
			if d := a.Withheld(); d < 24*time.Hour {
				t.Errorf("rights are withheld for %v, want a day, as no rules are known", d)
			}
			if !a.Asks(0, "us") {
				t.Error("the peer is not asked")
			}
			a = o.begin()
		}
		return a
	}
	soon := func(what string, a *escrow.Authority) {
		t.Helper()
		if d := o.until(a, key()); d > 7*time.Second {
			t.Errorf("nothing is granted for %v once %s", d, what)
		}
	}
	for what, says := range map[string]func(a *escrow.Authority){
		"its log began anew": func(a *escrow.Authority) { a.NamedBy(0, "us", escrow.Forever) },
		"names it since now": func(a *escrow.Authority) { a.NamedBy(0, "us", 1) },
		"does not say since": func(a *escrow.Authority) { a.IsNamedBy(0, "us") },
	} {
		a := denied()
		says(a)
		if d := o.until(a, key()); d < leaseAndWindow || d > leaseAndWindow+3*time.Second {
			t.Errorf("rights are granted %v after the peer (%s) named this region, want a lease and a window", d, what)
		}
		keep(a)
		soon("that was noted", o.begin())
	}
	_ = denied()
	o.boot += time.Second
	o.trusted = o.boot
	o.boot += time.Second
	soon("an operator said that all is known", o.begin())
	_ = denied()
	o.peers = nil
	if d := o.until(o.begin(), key()); d < leaseAndWindow+10*time.Second || d > leaseAndWindow+13*time.Second { // until then it may have granted them
		t.Errorf("rights are granted %v after the peer was taken away, want a lease and a window after it may have heard of that", d)
	}
}
