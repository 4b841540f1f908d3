package escrow_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// What a holder said before what is known of it changes nothing, though it comes later:
// what it wants, what limit it knows of.
func TestWhatWasSaidBeforeIsNotHeard(t *testing.T) {
	o := newOffice(t)
	a := o.authority()
	o.sent = 10
	if g := o.claim(a, deltasync.Claim{Holder: 7, Want: 10}); g.Granted == 0 {
		t.Fatalf("answer = %+v, want rights", g)
	}
	g := o.claim(a, deltasync.Claim{Holder: 7, Want: 5, Limit: 5}) // the limit was lowered
	before := g.Granted
	o.sent -= 2
	if g = o.claim(a, deltasync.Claim{Holder: 7, Want: 90}); g.Granted != before {
		t.Errorf("answer = %+v to what was said before the limit was lowered, want the %d that it has", g, before)
	}
	o.sent += 2
	if g = o.claim(a, deltasync.Claim{Holder: 7, Want: 90}); g.Granted < 90 {
		t.Errorf("answer = %+v to what is said now, want the 90 that it wants, or more", g)
	}
}

// Whoever has a lane anew asks nobody to return rights who has said nothing to it yet: there
// is nothing of his to tell him of that it is said after, and he would take it for old.
func TestWhoSaidNothingIsAskedNothing(t *testing.T) {
	o := newOffice(t)
	g := o.claim(o.authority(), deltasync.Claim{Holder: 7, Want: 100})
	a := o.authority()
	o.boot += time.Second
	if g := o.claim(a, deltasync.Claim{Holder: 8, Want: 100}); g.Granted != 0 {
		t.Fatalf("answer = %+v while another holds all, want none", g)
	}
	if p := a.Pushes(); len(p) != 0 {
		t.Errorf("%d pushes to who said nothing, want none", len(p))
	}
	sent := o.sent + 1
	o.boot += time.Second
	o.claim(a, deltasync.Claim{Holder: 7, Granted: g.Granted, Want: 100})
	p := a.Pushes()
	var told deltasync.Grants
	if len(p) != 1 || told.UnmarshalBinary(p[0].Payload) != nil || len(told.Grants) != 1 {
		t.Fatalf("%d pushes, %+v, once it spoke; want one of one grant", len(p), told)
	}
	if r := told.Grants[0]; r.Holder != 7 || r.Echo != sent || r.Flags&deltasync.GrantRecall == 0 {
		t.Errorf("%+v is pushed, want holder 7 asked to return some, by what it said at %d", r, sent)
	}
}

// Who claims a smaller limit than most has its part of it, though they hold more than all of
// it: what they hold is theirs by the limit that holds, and they may never return it.
func TestWhoLagsBehindARaisedLimitHasItsPart(t *testing.T) {
	o := newOffice(t)
	a := o.authority()
	for holder := range uint64(3) { // each has 20 spent, in the end
		k := deltasync.Claim{Holder: holder + 1, Limit: 100, Want: 20}
		k.Granted = o.claimOfEdge(a, fmt.Sprint(holder), k).Granted
		k.Returned, k.Want = k.Granted-20, 0
		o.claimOfEdge(a, fmt.Sprint(holder), k)
	}
	// Of 100 it would have what it wants and half of the rest, of 50 half as much.
	if g := o.claimOfEdge(a, "lags", deltasync.Claim{Holder: 4, Limit: 50, Want: 50}); g.Granted != 38 {
		t.Errorf("who claims 50 holds %d beside 60, want 38", g.Granted)
	}
}

// Where as many claim one limit as another the smaller holds, whoever came first.
func TestTheSmallerOfTwoLimitsHolds(t *testing.T) {
	for _, limits := range [][2]uint64{{100, 60}, {60, 100}} {
		t.Run(fmt.Sprint(limits), func(t *testing.T) {
			o := newOffice(t)
			a := o.authority()
			var granted, returned [2]uint64
			for range 3 {
				for i, limit := range limits {
					k := deltasync.Claim{Holder: uint64(i + 1), Limit: limit, Granted: granted[i], Returned: returned[i]}
					if limit == 100 { // who knows of the smaller one wants none
						k.Want = 100
					}
					g := o.claimOfEdge(a, fmt.Sprint(i), k)
					if granted[i] = g.Granted; g.Flags&deltasync.GrantRecall != 0 {
						returned[i] = max(returned[i], granted[i]-g.Target)
					}
				}
			}
			if got := granted[0] - returned[0] + granted[1] - returned[1]; got != 60 {
				t.Errorf("%d are held by two who claim limits of %v, want 60", got, limits)
			}
		})
	}
}

// How many lives an edge has, and how many edges a PoP invents, makes no other limit of the one that most
// PoPs claim, be it larger or smaller; nor do the lives of one that is started anew outvote others.
func TestLivesAndEdgesAreNoVotes(t *testing.T) {
	for _, other := range []uint64{1, 1 << 50} {
		for name, lie := range map[string]func(i int) deltasync.Claims{
			"lives of one edge": func(int) deltasync.Claims { return deltasync.Claims{From: "us", Pop: "evil", Name: "e"} },
			"edges of one PoP": func(i int) deltasync.Claims {
				return deltasync.Claims{From: "us", Pop: "evil", Name: fmt.Sprint("e", i)}
			},
			"lives of one of us": func(int) deltasync.Claims { return deltasync.Claims{From: "eu", Pop: "ams", Name: "old"} },
		} {
			o := newOffice(t)
			a := o.authority()
			var held [4]uint64
			for range 5 {
				for i := range 12 {
					c := lie(i)
					o.sent++
					c.SentAt = o.sent
					o.claimBy(a, c, deltasync.Claim{Key: 1, Holder: uint64(100 + i), Limit: other, Lasts: time.Minute})
				}
				for i := range held { // two in each of two PoPs
					o.sent++
					c := deltasync.Claims{From: "eu", Pop: []string{"ams", "fra"}[i%2], Name: fmt.Sprint("e", i), SentAt: o.sent}
					held[i] = o.claimBy(a, c, deltasync.Claim{Key: 1, Holder: uint64(i + 1), Limit: 100, Lasts: time.Minute, Granted: held[i], Want: 100}).Granted
				}
				o.boot += time.Second
			}
			if all := held[0] + held[1] + held[2] + held[3]; all < 90 || all > 100 {
				t.Errorf("%s that claim a limit of %d: the others hold %v of 100", name, other, held)
			}
		}
	}
}

// Who is gone has no vote, though what he spent counts: a limit that was raised since is had by those that
// are there, and one that was lowered is not exceeded by theirs. One edge of another PoP does not
// outvote those of one.
func TestTheGoneHaveNoVote(t *testing.T) {
	for name, c := range map[string]struct {
		before, after, spent, want uint64
		gone, live                 int // PoPs, and edges of one
	}{
		"raised":               {100, 200, 50, 100, 2, 10},
		"raised, an edge each": {100, 1000, 100, 900, 1, 1},
		"lowered":              {200, 100, 30, 10, 3, 1},
	} {
		o := newOffice(t)
		a := o.authority()
		claim := func(pop, edge string, k deltasync.Claim) uint64 {
			o.sent++
			k.Key, k.Holder, k.Lasts = 1, deltasync.NodeID("eu", pop, edge), 24*time.Hour
			return o.claimBy(a, deltasync.Claims{From: "eu", Pop: pop, Name: edge, SentAt: o.sent}, k).Granted
		}
		o.longest = 24 * time.Hour
		for i := range c.gone {
			k := deltasync.Claim{Limit: c.before, Want: c.spent}
			k.Granted = claim(fmt.Sprint("p", i), "old", k)
			k.Returned, k.Want = k.Granted-c.spent, 0
			claim(fmt.Sprint("p", i), "old", k)
		}
		o.boot += time.Minute
		held := make([]uint64, c.live)
		for range 20 {
			for i := range held {
				held[i] = claim("p0", fmt.Sprint("new", i), deltasync.Claim{Limit: c.after, Granted: held[i], Want: c.after})
			}
			o.boot += time.Second
		}
		sum := uint64(0)
		for _, n := range held {
			sum += n
		}
		if sum < c.want*9/10 || sum > c.want {
			t.Errorf("%s: those that are there hold %d, want %d", name, sum, c.want)
		}
	}
	o := newOffice(t)
	a := o.authority()
	var held [4]uint64
	for range 5 {
		o.sent++
		o.claimBy(a, deltasync.Claims{From: "us", Pop: "evil", Name: "e", SentAt: o.sent}, deltasync.Claim{Key: 1, Holder: 99, Limit: 1, Lasts: time.Minute})
		for i := range held {
			held[i] = o.claimOfEdge(a, fmt.Sprint("e", i), deltasync.Claim{Holder: uint64(i + 1), Limit: 100, Granted: held[i], Want: 100}).Granted
		}
		o.boot += time.Second
	}
	if all := held[0] + held[1] + held[2] + held[3]; all < 90 || all > 100 {
		t.Errorf("beside one edge that claims a limit of 1 four hold %v of 100", held)
	}
}

// Of a limit with fewer rights than edges what nobody wants is for whoever does: it is recalled to the last,
// and who has none hears that some may come soon; not if all are wanted by those that have them.
func TestScarceRightsGoToWhoWantsThem(t *testing.T) {
	o := newOffice(t)
	a := o.authority()
	claim := func(name string, k deltasync.Claim) deltasync.Grant {
		t.Helper()
		k.Limit, k.Holder = 3, deltasync.NodeID("eu", "ams", name)
		return o.claimOfEdge(a, name, k)
	}
	first := claim("first", deltasync.Claim{Want: 3})
	if first.Granted != 3 {
		t.Fatalf("the first holds %d of 3", first.Granted)
	}
	for _, name := range []string{"b", "c", "d", "e"} {
		if g := claim(name, deltasync.Claim{Want: 1}); g.Granted != 0 {
			t.Fatalf("%s holds %d of what the first has", name, g.Granted)
		}
	}
	if g := claim("first", deltasync.Claim{Granted: 3}); g.Target != 0 || g.Flags&deltasync.GrantRecall == 0 {
		t.Errorf("who wants none is told %+v, want that it returns all", g)
	}
	if g := claim("b", deltasync.Claim{Want: 1}); g.Flags&deltasync.GrantSought == 0 {
		t.Errorf("who has none is told %+v, want that some may come", g)
	}
	claim("first", deltasync.Claim{Granted: 3, Returned: 3})
	for _, name := range []string{"b", "c", "d"} {
		if g := claim(name, deltasync.Claim{Want: 1}); g.Granted != 1 {
			t.Errorf("%s holds %d of what the first returned", name, g.Granted)
		}
	}
	for range 3 { // they use theirs, and say so
		o.boot += time.Second
		for _, name := range []string{"b", "c", "d"} {
			claim(name, deltasync.Claim{Granted: 1, Want: 1})
		}
	}
	if g := claim("e", deltasync.Claim{Want: 1}); g.Granted != 0 || g.Flags&deltasync.GrantSought != 0 {
		t.Errorf("who has none is told %+v, want that none is to come", g)
	}
}

// Whoever gets rights by what another returns hears of it unasked: of all that it was ever
// granted, by what it said last. Who returned them hears nothing but its answer.
func TestGrantsByWhatOthersReturnAreTold(t *testing.T) {
	o := newOffice(t)
	a := o.authority()
	all := o.claim(a, deltasync.Claim{Holder: 7, Want: 100})
	o.claim(a, deltasync.Claim{Holder: 8, Want: 40})
	said := o.sent
	a.Pushes() // that the first is asked to return some
	o.claim(a, deltasync.Claim{Holder: 7, Granted: all.Granted, Returned: 90, Want: 10})
	p := a.Pushes()
	var told deltasync.Grants
	if len(p) != 1 || told.UnmarshalBinary(p[0].Payload) != nil || len(told.Grants) != 1 {
		t.Fatalf("%d pushes, %+v; want one of one grant", len(p), told)
	}
	if g := told.Grants[0]; told.Echo != 0 || g.Holder != 8 || g.Granted < 40 || g.Target != g.Granted || g.Echo != said || g.Flags != 0 {
		t.Errorf("%+v is pushed, want holder 8 granted 40 and more, by what it said at %d", g, said)
	}
	if p := a.Pushes(); len(p) != 0 {
		t.Errorf("%d pushes once it was told, want none", len(p))
	}
}

// slow is a log during whose writes something happens, and that may fail with them.
type slow struct {
	*memstore.Rights
	meanwhile func()
	fails     bool
}

func (l *slow) Commit(ctx context.Context, lane int, token uint64, d []escrow.Deposit) error {
	if l.meanwhile(); l.fails {
		return escrow.ErrLog
	}
	return l.Rights.Commit(ctx, lane, token, d)
}

// Nobody hears of a grant that is not in the log: not while it is being written, nor when
// that failed. Whoever has the lane next would grant the same to others.
func TestGrantsAreToldOnceTheyAreLogged(t *testing.T) {
	for name, fails := range map[string]bool{"the write takes its time": false, "the write fails": true} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			l := &slow{Rights: o.log, meanwhile: func() {}}
			a, err := escrow.New(escrow.Config{Region: "eu", Lanes: 1, Log: l, Boot: func() time.Duration { return o.boot }})
			if err != nil {
				t.Fatal(err)
			}
			// pushed is what others hear that they were granted.
			pushed := func() (granted uint64) {
				for _, p := range a.Pushes() {
					var told deltasync.Grants
					if err := told.UnmarshalBinary(p.Payload); err != nil {
						t.Fatal(err)
					}
					for _, g := range told.Grants {
						granted += g.Granted
					}
				}
				return granted
			}
			all := o.claim(a, deltasync.Claim{Holder: 7, Want: 100})
			o.claim(a, deltasync.Claim{Holder: 8, Want: 40})
			writes := 0
			l.fails, l.meanwhile = fails, func() {
				if writes++; pushed() != 0 {
					t.Error("another is told of a grant that is being written")
				}
			}
			o.sent++
			answer := a.Handle(t.Context(), &deltasync.Claims{From: "eu", Region: "eu", Pop: "ams", Name: "e1", Lanes: 1, SentAt: o.sent, Claims: []deltasync.Claim{
				{Key: 1, Holder: 7, Limit: 100, Lasts: time.Minute, Granted: all.Granted, Returned: 90, Want: 10},
			}})
			if writes != 1 || fails != (answer == nil) {
				t.Errorf("%d writes, answered %t; want one write, answered %t", writes, answer != nil, !fails)
			}
			if got := pushed(); fails && got != 0 || !fails && got < 40 {
				t.Errorf("another is told of %d when the write is over, which failed: %t; want none if it did, else 40 and more", got, fails)
			}
		})
	}
}

// What a holder spent counts for as long as it ever said: rules that have a shorter window
// now do not have its rights be others' sooner.
func TestTheLongestWindowCounts(t *testing.T) {
	for name, lasts := range map[string][2]time.Duration{
		"longer, then shorter": {time.Minute, time.Second},
		"shorter, then longer": {time.Second, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			a := o.authority()
			g := o.claim(a, deltasync.Claim{Holder: 7, Want: 100, Lasts: lasts[0]})
			if g.Granted == 0 {
				t.Fatalf("answer = %+v, want rights", g)
			}
			o.claim(a, deltasync.Claim{Holder: 7, Granted: g.Granted, Want: 100, Lasts: lasts[1]})
			o.boot += deltasync.DefaultLease + time.Minute
			if other := o.claim(a, deltasync.Claim{Holder: 8, Want: 100}); other.Granted > 100-g.Granted {
				t.Errorf("another was granted %d, while %d of 100 may still count", other.Granted, g.Granted)
			}
			o.boot += 5 * time.Second
			if other := o.claim(a, deltasync.Claim{Holder: 8, Want: 100, Granted: 100 - g.Granted}); other.Granted != 100 {
				t.Errorf("another was granted %d when nothing counts any more, want all", other.Granted)
			}
		})
	}
}

// What a holder spent counts for no longer than in any strict limit of the rules, or for a
// day, whatever it says: else a PoP would keep for a year what it names such a window of.
func TestNoWindowIsLongerThanTheRulesHave(t *testing.T) {
	const day, year = 24 * time.Hour, 366 * 24 * time.Hour
	for _, tt := range []struct {
		name           string
		longest, lasts time.Duration
		free           time.Duration // after a lease
	}{
		{"no rules are known", 0, year, year},
		{"the rules have a shorter one", time.Minute, year, day},
		{"the rules have a longer one", 30 * day, year, 30 * day},
		{"the rules have a longer one than is said", 30 * day, time.Minute, time.Minute},
		{"it is one that the rules may have by now", time.Minute, 12 * time.Hour, 12 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newOffice(t)
			o.longest = tt.longest
			a := o.authority()
			g := o.claim(a, deltasync.Claim{Holder: 7, Want: 100, Lasts: tt.lasts})
			if g.Granted == 0 {
				t.Fatalf("answer = %+v, want rights", g)
			}
			o.boot += deltasync.DefaultLease + tt.free
			if other := o.claim(a, deltasync.Claim{Holder: 8, Want: 100}); other.Granted > 100-g.Granted {
				t.Errorf("another was granted %d, while %d of 100 may still count", other.Granted, g.Granted)
			}
			o.boot += tt.free/50 + time.Second
			if other := o.claim(a, deltasync.Claim{Holder: 8, Want: 100, Granted: 100 - g.Granted}); other.Granted != 100 {
				t.Errorf("another was granted %d when nothing counts any more, want all", other.Granted)
			}
		})
	}
}
