package escrow_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// office is an authority over one lane, its log, and a clock that tests move.
type office struct {
	*testing.T
	log  *memstore.Rights
	boot time.Duration
	sent int64

	longest time.Duration // that a strict limit of the rules lasts
	peers   []string
	trusted time.Duration // when, by boot; 0: never
}

func (o *office) now() time.Time { return time.Unix(1_790_000_000, 0).Add(o.boot) }

func newOffice(t *testing.T) *office {
	o := &office{T: t, boot: time.Hour}
	o.log = memstore.NewRights(time.Time{}, o.now)
	return o
}

// trustedLog is the office's log as an operator trusts it.
type trustedLog struct {
	*memstore.Rights
	o *office
}

func (l trustedLog) Take(ctx context.Context, lane int, token uint64, regions []string) (escrow.Origin, error) {
	origin, err := l.Rights.Take(ctx, lane, token, regions)
	if l.o.trusted > 0 {
		origin.Trusted = l.o.boot - l.o.trusted
	}
	return origin, err
}

func (o *office) authority() *escrow.Authority {
	o.Helper()
	a, err := escrow.New(escrow.Config{Region: "eu", Peers: o.peers, Lanes: 1, Log: trustedLog{o.log, o}, Timeout: time.Minute, Boot: func() time.Duration { return o.boot }, Longest: func() time.Duration { return o.longest }})
	if err != nil {
		o.Fatal(err)
	}
	return a
}

// claim is what a holder says of key 1, and what it is answered.
func (o *office) claim(a *escrow.Authority, k deltasync.Claim) deltasync.Grant {
	o.Helper()
	return o.claimOf(a, 1, k)
}

// claimOf is claim of another key; of a limit of 100 a minute, where it says nothing else.
func (o *office) claimOf(a *escrow.Authority, key deltasync.Key, k deltasync.Claim) deltasync.Grant {
	o.Helper()
	o.sent++
	k.Key, k.Limit, k.Lasts = key, cmp.Or(k.Limit, 100), cmp.Or(k.Lasts, time.Minute)
	return o.claimBy(a, deltasync.Claims{From: "eu", Pop: "ams", Name: "e1", SentAt: o.sent}, k)
}

// claimOfEdge is claim of the edge of a name.
func (o *office) claimOfEdge(a *escrow.Authority, name string, k deltasync.Claim) deltasync.Grant {
	o.Helper()
	o.sent++
	k.Key, k.Lasts = 1, cmp.Or(k.Lasts, time.Minute)
	return o.claimBy(a, deltasync.Claims{From: "eu", Pop: "ams", Name: name, SentAt: o.sent}, k)
}

// claimBy is a claim of an edge.
func (o *office) claimBy(a *escrow.Authority, c deltasync.Claims, k deltasync.Claim) deltasync.Grant {
	o.Helper()
	c.Region, c.Lanes, c.Claims = "eu", 1, []deltasync.Claim{k}
	var g deltasync.Grants
	if err := g.UnmarshalBinary(a.Handle(o.Context(), &c)); err != nil || len(g.Grants) != 1 {
		o.Fatalf("answer to %+v: %+v, %v", k, g, err)
	}
	return g.Grants[0]
}

// logged is the deposit of key 1, for who takes the lane for the question.
func (o *office) logged() escrow.Deposit {
	o.Helper()
	const token = 1 << 40
	if _, err := o.log.Take(o.Context(), 0, token, nil); err != nil {
		o.Fatal(err)
	}
	d, err := o.log.Load(o.Context(), 0, token, []deltasync.Key{1})
	if err != nil {
		o.Fatal(err)
	}
	return d[0]
}

// What holders tell an authority whose log lost it is in the log again before they are
// answered: the next authority finds the log old enough, and does not ask.
func TestWhatHoldersTellIsLogged(t *testing.T) {
	o := newOffice(t)
	o.log.Wipe()
	a := o.authority()
	if g := o.claim(a, deltasync.Claim{Holder: 7, Granted: 60, Returned: 10, Want: 50}); g.Granted != 60 || g.Flags&deltasync.GrantVoid != 0 {
		t.Fatalf("answer = %+v, want what the holder said", g)
	}
	if d := o.logged(); len(d.Holdings) != 1 || d.Holdings[0].Granted != 60 || d.Holdings[0].Out() != 50 {
		t.Fatalf("the log has %+v, want the holder with 50", d)
	}
	// Its lease goes on, by an authority that comes later than any quarantine.
	a = o.authority()
	for range 12 {
		o.boot += 10 * time.Second
		o.claim(a, deltasync.Claim{Holder: 7, Granted: 60, Returned: 10, Want: 50})
	}
	a = o.authority()
	if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 100}); g.Granted > 50 {
		t.Errorf("the next was granted %d while another holds 50 of 100", g.Granted)
	}
}

// Leases are renewed without a write; what the log may forget meanwhile is written again.
func TestFadingDepositsAreWrittenAgain(t *testing.T) {
	o := newOffice(t)
	a := o.authority()
	g := o.claim(a, deltasync.Claim{Holder: 7, Want: 50})
	if g.Granted == 0 {
		t.Fatalf("answer = %+v, want rights", g)
	}
	renew := func(a *escrow.Authority, d time.Duration) {
		t.Helper()
		for end := o.boot + d; o.boot < end; {
			o.boot += 10 * time.Second
			g = o.claim(a, deltasync.Claim{Holder: 7, Granted: g.Granted, Want: 50})
		}
	}
	first := o.logged().Version
	a = o.authority()
	renew(a, 10*time.Second)
	second := o.logged().Version
	if second != first+1 {
		t.Errorf("version = %d after another took the lane, want %d: nobody knows how old what it read is", second, first+1)
	}
	a = o.authority()
	renew(a, 10*time.Minute)
	if v := o.logged().Version; v != second+1 {
		t.Errorf("version = %d after ten minutes of renewals, want %d", v, second+1)
	}
	a = o.authority()
	keeps := escrow.Keeps([]escrow.Holding{{Lasts: time.Minute}})
	renew(a, keeps)
	if v := o.logged().Version; v != second+3 && v != second+4 {
		t.Errorf("version = %d after %v of renewals, want it written twice or thrice, %d and more", v, keeps, second+3)
	}
}

// Operators are told of windows of which rights are granted: of none that an authority
// still waits for, and of each by the time that it does not.
func TestLongestWindow(t *testing.T) {
	o := newOffice(t)
	o.log = memstore.NewRights(o.now(), o.now)
	a, began := o.authority(), o.boot
	granted := false
	for ; !granted; o.boot += 10 * time.Millisecond {
		g := o.claim(a, deltasync.Claim{Holder: 1, Want: 10}) // of a minute
		told := escrow.LongestWindow(deltasync.DefaultLease, o.boot-began) > time.Minute
		if granted = g.Granted > 0; granted != told {
			t.Fatalf("%v after the log began: granted %v, told so %v", o.boot-began, granted, told)
		}
		if o.boot-began > 2*time.Minute {
			t.Fatal("nothing was granted in two minutes")
		}
	}
}

func TestKeeps(t *testing.T) {
	for lasts, least := range map[time.Duration]time.Duration{
		0: 2 * deltasync.MaxLease, time.Minute: 2 * (deltasync.MaxLease + time.Minute), 366 * 24 * time.Hour: 2 * 366 * 24 * time.Hour,
	} {
		if got := escrow.Keeps([]escrow.Holding{{}, {Lasts: lasts}}); got < least || got > least+least/50+2*deltasync.MaxLease+time.Second {
			t.Errorf("Keeps of %v = %v, want %v and little more", lasts, got, least)
		}
	}
	if _, err := escrow.New(escrow.Config{Region: "eu", Lanes: 1, Log: memstore.NewRights(time.Time{}, nil), Lease: deltasync.MaxLease + 1}); err == nil {
		t.Error("a lease that frames cannot tell: no error")
	}
}

// Rights of an edge that died are free a lease and a window later, though its lane is
// taken anew again and again meanwhile, as with each write that Redis does not answer:
// what is known of its silence is in the log.
func TestRightsOfTheDeadAreFreed(t *testing.T) {
	for name, asks := range map[string]bool{"while others ask": true, "while others ask for other keys": false} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			a := o.authority()
			dead := o.claim(a, deltasync.Claim{Holder: 7, Want: 100})
			if dead.Granted == 0 {
				t.Fatalf("answer = %+v, want rights", dead)
			}
			const span = 20 * time.Second // between takes of the lane
			other, died := deltasync.Grant{}, o.boot
			for other.Granted < 100 {
				if o.boot-died > 3*time.Minute { // what is lost with each take: the time since the last write
					t.Fatalf("%v after an edge died another has %d of 100, want all", o.boot-died, other.Granted)
				}
				if o.boot += 5 * time.Second; (o.boot-died)%span == 0 {
					a = o.authority()
					o.claim(a, deltasync.Claim{Holder: 8, Granted: other.Granted, Want: 100})
				}
				if asks || o.boot-died > 110*time.Second {
					other = o.claim(a, deltasync.Claim{Holder: 8, Granted: other.Granted, Want: 100})
				} else {
					o.claimOf(a, 2, deltasync.Claim{Holder: 9})
				}
				if other.Granted > 100-dead.Granted && o.boot-died <= deltasync.DefaultLease+time.Minute {
					t.Fatalf("%v after an edge that held %d of 100 died another has %d", o.boot-died, dead.Granted, other.Granted)
				}
			}
		})
	}
}

// One who was silent for long and is heard again holds what it held, for a lease from
// then on and by whoever has the lane next, whether the lane changed hands before or not.
func TestTheSilentAreHeardAgain(t *testing.T) {
	for _, taken := range []bool{false, true} {
		o := newOffice(t)
		a := o.authority()
		g := o.claim(a, deltasync.Claim{Holder: 7, Want: 100})
		o.boot += 70 * time.Second
		o.claim(a, deltasync.Claim{Holder: 8, Want: 100}) // the log has it that 7 is silent
		if taken {
			if d := o.logged(); len(d.Holdings) != 2 || d.Holdings[0].Silent != 70*time.Second || d.Holdings[1].Silent != 0 {
				t.Fatalf("the log has %+v, want the first silent for 70 s", d)
			}
			a = o.authority()
		}
		if g = o.claim(a, deltasync.Claim{Holder: 7, Granted: g.Granted, Want: 100}); g.Granted == 0 || g.Flags&deltasync.GrantVoid != 0 {
			t.Fatalf("answer = %+v, want what it had: its lease and its window are not over for sure", g)
		}
		if d := o.logged(); len(d.Holdings) != 2 || d.Holdings[0].Silent != 0 {
			t.Fatalf("the log has %+v, want nobody silent, as the first was answered", d)
		}
		a = o.authority()
		for range 14 { // what the next knows of it begins with that
			o.boot += 5 * time.Second
			if other := o.claim(a, deltasync.Claim{Holder: 8, Want: 100}); other.Granted > 100-g.Granted {
				t.Fatalf("another was granted %d while one that was heard lately holds %d of 100", other.Granted, g.Granted)
			}
		}
	}
}
