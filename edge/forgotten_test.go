package edge

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What a counter returned that is no more is told until an authority has answered, thrice at the most.
func TestLastWordsAreTold(t *testing.T) {
	var e escrow
	for holder := uint64(1); holder <= 3; holder++ {
		e.forgotten.say(lastWord{claim: deltasync.Claim{Key: 1, Holder: holder}})
	}
	tell := func(boot time.Duration, most int, want ...uint64) {
		t.Helper()
		var got []uint64
		for _, l := range e.lastWords(boot, most) {
			got = append(got, l.claim.Holder)
		}
		if len(got) != len(want) {
			t.Fatalf("at %v told are %v, want %v", boot, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("at %v told are %v, want %v", boot, got, want)
			}
		}
	}
	const later = claimTimeout + time.Millisecond
	tell(1, 2, 1, 2) // as there are bytes for
	tell(2, 5, 3)
	tell(3, 5)
	e.heard([]deltasync.Grant{{Holder: 2}, {Holder: 9}}, 1)
	e.heard([]deltasync.Grant{{Holder: 3}}, 1) // to what was said before
	e.heard([]deltasync.Grant{{Holder: 1, Home: "us"}}, 1)
	tell(3, 5, 1) // at once, there
	if got := e.forgotten.waiting[0].home; got != "us" {
		t.Errorf("it is told %q, want us", got)
	}
	tell(3+later, 5, 1, 3)
	if n := e.unheard(); n != 2 {
		t.Errorf("%d are not answered, want 2", n)
	}
	tell(3+2*later, 5, 3) // the other was told thrice
	tell(3+3*later, 5)
	if n := e.unheard(); n != 0 || len(e.forgotten.waiting) != 0 {
		t.Errorf("%d are waited for after three times, want none", n)
	}
	for holder := range uint64(mostLastWords + 5) {
		e.forgotten.say(lastWord{claim: deltasync.Claim{Holder: 10 + holder}})
	}
	if n := len(e.forgotten.waiting); n != mostLastWords {
		t.Errorf("%d wait, want %d at the most", n, mostLastWords)
	}
}

// A counter that is forgotten while it has asked for rights returns those, too, once it hears of them.
func TestLastWordsReturnWhatComesLate(t *testing.T) {
	var e escrow
	e.forgotten.say(lastWord{claim: deltasync.Claim{Key: 1, Holder: 7, Granted: 10, Returned: 8}})
	e.heard([]deltasync.Grant{{Holder: 7, Granted: 50}}, 0) // to what it asked before
	for at, want := range []deltasync.Claim{{Key: 1, Holder: 7, Granted: 50, Returned: 48}, {Key: 1, Holder: 7, Granted: 60, Returned: 58}} {
		boot := time.Duration(at + 1)
		if l := e.lastWords(boot, 5); len(l) != 1 || !reflect.DeepEqual(l[0].claim, want) {
			t.Fatalf("told is %+v, want %+v", l, want)
		}
		if at == 0 {
			e.heard([]deltasync.Grant{{Holder: 7, Granted: 60}}, boot)
		}
	}
	e.heard([]deltasync.Grant{{Holder: 7, Granted: 60}}, 2)
	if n := e.unheard(); n != 0 || len(e.forgotten.waiting) != 0 {
		t.Errorf("%d are waited for, want none", n)
	}
}

// What is given back frees the right that it was charged, if its counter has not been forgotten since: those
// of an earlier life are free by themselves.
func TestWhatIsGivenBackFreesARightOfItsLifeAlone(t *testing.T) {
	for _, forgot := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, _, _ := holding(t)
			of := func(more func(req *limit.Request)) *limit.Request {
				req := n.Rules().Only().NewRequest()
				req.Set("user", "u")
				more(req)
				return req
			}
			pass := func() (spent time.Duration) {
				t.Helper()
				req := of(func(req *limit.Request) { req.Dates = true })
				defer req.Release()
				if d := n.Check(time.Now(), req); !d.Allowed || req.Spent == 0 {
					t.Fatalf("%+v, want it to pass by a right, and be told when", d)
				}
				time.Sleep(time.Millisecond)
				return req.Spent
			}
			spent := pass()
			if forgot {
				s := n.shard(keyOf(n, "u"))
				s.mu.Lock()
				n.forget(s, s.placeOf(keyOf(n, "u")), n.clock.At(time.Now()))
				s.mu.Unlock()
				check(n, time.Now(), "u")
				began := n.cluster.escrow.boot()
				n.Claims(time.Now())
				hearGrants(t, n, grantOf(n, deltasync.Grants{Echo: int64(began), Log: 2}, deltasync.Grant{Granted: 5, Target: 5}))
			}
			again := pass()
			rt := rightsOf(n)
			used := func() uint64 {
				n.shard(keyOf(n, "u")).find(keyOf(n, "u")).settle() // what was just spent is with the rest
				return rt.spent.Used(n.Rules().Rules()[0].Rates[0], rt.held(rt.escrow.boot()), limit.Instant{Boot: rt.escrow.boot(), Wall: n.clock.At(time.Now())})
			}
			for _, c := range []struct {
				name  string
				spent time.Duration
				frees bool
			}{{"nobody knows by whom", 0, false}, {"before", spent, !forgot}, {"since", again, true}} {
				before, want := used(), used()
				if c.frees {
					want--
				}
				req := of(func(req *limit.Request) { req.Cost, req.Spent = 1, c.spent })
				n.GiveBack(time.Now(), req)
				req.Release()
				if got := used(); got != want {
					t.Errorf("forgotten: %t: %d rights are spent, and %d before one was given back that was charged %s, want %d", forgot, got, before, c.name, want)
				}
				pass()
			}
		})
	}
}
