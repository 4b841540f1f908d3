package regional_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// An aggregator with a log grants rights in strict limits, and shows what it did; one
// without answers no claim.
func TestRightsAreGranted(t *testing.T) {
	claims := deltasync.Claims{Region: "eu", Lanes: 1, From: "us", Pop: "p", Name: "e1", SentAt: 1, Claims: []deltasync.Claim{{
		Key: 7, Holder: 1, Limit: 100, Lasts: time.Second, Want: 40,
	}}}
	frame, err := claims.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	subject := deltasync.ClaimSubject("eu", 0, "us", "p", "e1")
	reg := prometheus.NewPedanticRegistry()
	with, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1, Rights: memstore.NewRights(time.Time{}, nil), Registerer: reg}, memstore.New(memstore.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	var g deltasync.Grants
	if err := g.UnmarshalBinary(with.HandleClaims(context.Background(), subject, frame)); err != nil {
		t.Fatal(err)
	}
	if len(g.Grants) != 1 || g.Grants[0].Granted < 40 || g.Grants[0].Granted > 100 || g.Lease != deltasync.DefaultLease || g.Echo != 1 {
		t.Errorf("grants %+v, want 40 to 100 rights for the default lease", g)
	}
	if err := g.UnmarshalBinary(with.HandleClaims(context.Background(), subject, frame[:5])); err != nil || g.Status != deltasync.StatusUnsupported || len(g.Grants) != 0 {
		t.Errorf("a cut frame is answered with %+v, %v, want %s", g, err, deltasync.StatusUnsupported)
	}
	if st := with.Stats(time.Now()); st.Refused["malformed"] != 1 {
		t.Errorf("refused %v, want 1 malformed", st.Refused)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`# HELP spillgate_rights_unanswered_total Claims by edges that were not answered, or not with rights, by reason: void (the holder's lease had ended), full (the key has as many holders as it may, or the edge or its PoP in it; void, too; or the aggregator knows as many keys as it may, and is asked for all), fenced (another aggregator has taken the lane since), failed (the log of rights did not answer), revoked (an operator has taken the edge's rights back).
# TYPE spillgate_rights_unanswered_total counter
spillgate_rights_unanswered_total{reason="failed"} 0
spillgate_rights_unanswered_total{reason="fenced"} 0
spillgate_rights_unanswered_total{reason="full"} 0
spillgate_rights_unanswered_total{reason="revoked"} 0
spillgate_rights_unanswered_total{reason="void"} 0
# HELP spillgate_rights_keys Keys of strict limits of which this aggregator knows who holds rights.
# TYPE spillgate_rights_keys gauge
spillgate_rights_keys 1
`), "spillgate_rights_unanswered_total", "spillgate_rights_keys"); err != nil {
		t.Error(err)
	}
	without, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Lanes: 1}, memstore.New(memstore.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	if reply := without.HandleClaims(context.Background(), subject, frame); reply != nil {
		t.Errorf("an aggregator without a log of rights answers %q", reply)
	}
}

// By the rules that an aggregator knows nobody keeps the rights of a strict limit for longer
// than that lasts, or a day.
func TestRulesBoundLeases(t *testing.T) {
	for name, strict := range map[string]bool{"with a strict limit": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			rates := []limit.RateSpec{{Name: "year", Limit: 100, Per: 366 * 24 * time.Hour}}
			if strict {
				rates = append(rates, limit.RateSpec{Name: "minute", Limit: 100, Per: time.Minute, Consistency: "strict"})
			}
			boot := 1000 * time.Hour
			r := truthful(t, ruleSet(t, apiRule("api", rates...)), regional.Config{
				Rights: memstore.NewRights(time.Time{}, nil), Boot: func() time.Duration { return boot }})
			claim := func(edge string, c deltasync.Claim) uint64 {
				t.Helper()
				c.Key, c.Holder, c.Limit, c.Lasts, c.Want = 7, deltasync.NodeID("eu", "p", edge), 100, 366*24*time.Hour, 100
				b, err := (&deltasync.Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "p", Name: edge, SentAt: int64(boot), Claims: []deltasync.Claim{c}}).AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				var g deltasync.Grants
				if err := g.UnmarshalBinary(r.HandleClaims(t.Context(), deltasync.ClaimSubject("eu", 0, "eu", "p", edge), b)); err != nil || len(g.Grants) != 1 {
					t.Fatalf("%+v, %v", g, err)
				}
				return g.Grants[0].Granted
			}
			if got := claim("hostile", deltasync.Claim{}); got != 100 {
				t.Fatalf("granted %d, want all", got)
			}
			boot += 25 * time.Hour
			want := uint64(0)
			if strict {
				want = 100
			}
			if got := claim("other", deltasync.Claim{}); got != want {
				t.Errorf("a day after an edge fell silent which says that its window is a year another is granted %d, want %d", got, want)
			}
		})
	}
}

// keeper is a region that grants rights by a log that outlives its aggregators.
type keeper struct {
	*misfit
	name   string
	rights *memstore.Rights
	lanes  int
	lane   int           // that keys are of; -1: of any
	key    deltasync.Key // that was asked for last
}

func newKeeper(t *testing.T, name string) *keeper {
	k := &keeper{name: name, lanes: 1, lane: -1, misfit: &misfit{region: &region{t: t, now: start}}}
	k.rights = memstore.NewRights(time.Time{}, func() time.Time { return k.now })
	return k
}

// begin starts its aggregator, as the only one.
func (k *keeper) begin(peers ...string) {
	k.t.Helper()
	now := k.now
	m := &misfit{}
	a, err := regional.New(regional.Config{
		Region: k.name, Name: "a1", Peers: peers, Lanes: k.lanes, Incarnation: 1, StoreTimeout: time.Second, Rights: k.rights,
		Boot: func() time.Duration { return time.Hour + m.now.Sub(start) }, Logger: slog.New(slog.NewTextHandler(&m.log, nil)),
	}, newStore(&start))
	if err != nil {
		k.t.Fatal(err)
	}
	m.region = &region{Aggregator: a, t: k.t, name: k.name, now: now}
	k.misfit = m
	k.keep()
}

// keep has it take its lane, and see whether it has it.
func (k *keeper) keep() {
	k.t.Helper()
	k.Tick(k.now)
	if err := k.KeepRights(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// together has two of them run for a while.
func together(d time.Duration, a, b *keeper) {
	pass(d, a.misfit, b.misfit)
	a.keep()
	b.keep()
}

// granted asks for 40 rights in each of 20 keys that nobody asked for before, which are drawn to a region
// where us and ap are all there are: of how many it has them. Of the others it has none.
func (k *keeper) granted(home string) (keys int) {
	k.t.Helper()
	both, err := escrow.New(escrow.Config{Region: "us", Peers: []string{"ap"}, Lanes: 1, Log: k.rights})
	if err != nil {
		k.t.Fatal(err)
	}
	const step = 1<<32 + 1 // over all lanes
	for range 20 {
		for k.key += step; both.Home(k.key) != home || k.lane >= 0 && k.key.Lane(k.lanes) != k.lane; k.key += step {
		}
		lane := k.key.Lane(k.lanes)
		frame, err := (&deltasync.Claims{Region: k.name, Lane: lane, Lanes: k.lanes, From: k.name, Pop: "p", Name: "e1", SentAt: int64(k.key), Claims: []deltasync.Claim{
			{Key: k.key, Holder: 1, Limit: 100, Lasts: time.Minute, Want: 40}}}).AppendBinary(nil)
		if err != nil {
			k.t.Fatal(err)
		}
		var g deltasync.Grants
		if err := g.UnmarshalBinary(k.HandleClaims(k.t.Context(), deltasync.ClaimSubject(k.name, lane, k.name, "p", "e1"), frame)); err != nil || len(g.Grants) > 1 {
			k.t.Fatalf("%+v, %v", g, err)
		}
		if len(g.Grants) == 0 {
			continue // it is not even told what it has
		}
		switch rights := g.Grants[0].Granted; {
		case rights >= 40:
			keys++
		case rights > 0:
			k.t.Errorf("%d rights are granted, want 40, or none", rights)
		}
	}
	return keys
}

// grants checks of how many of them it has rights.
func (k *keeper) grants(home string, want int, when string) {
	k.t.Helper()
	if got := k.granted(home); got != want {
		k.t.Errorf("%s has rights of %d of 20 keys that are drawn to %s %s, want %d", k.name, got, home, when, want)
	}
}

// A region that its peer does not name grants no rights of what both may take for theirs, and does so
// a lease and a window after it is named.
func TestWhoIsNotNamedGrantsNoRights(t *testing.T) {
	ap := newKeeper(t, "ap")
	ap.begin("us")
	pass(10*time.Minute, ap.misfit, newMisfit(t, "us", 1))
	ap.grants("ap", 0, "as it is not named")
	us := newMisfit(t, "us", 1, "ap") // it is started anew
	pass(time.Minute, ap.misfit, us)
	ap.grants("ap", 0, "a minute after it was named")
	pass(20*time.Second, ap.misfit, us)
	ap.grants("ap", 20, "a lease and a window after it was named")
}

// A region that is taken away for an hour, and named again, has its log of before. Whoever granted in
// its place tells it so, also where the aggregators of both are started anew meanwhile, and where it
// is started before it is named: a key's rights are granted by both never at once.
func TestRegionsThatComeAndGo(t *testing.T) {
	us, ap := newKeeper(t, "us"), newKeeper(t, "ap")
	both := func(d time.Duration) { together(d, us, ap) }
	us.begin("ap")
	ap.begin("us")
	both(10 * time.Minute)
	us.grants("us", 20, "from the beginning")
	ap.grants("ap", 20, "from the beginning")
	us.grants("ap", 0, "whose they are")

	us.begin() // ap is gone
	us.grants("us", 20, "alone")
	us.grants("ap", 0, "when it was taken away")
	if n := strings.Count(us.log.String(), "region=ap"); n != 1 {
		t.Errorf("the log of us says %d times that ap was taken away, want once:\n%s", n, us.log.String())
	}
	us.now = us.now.Add(70 * time.Second)
	us.begin()
	us.grants("ap", 0, "within a lease and a window after it was taken away")
	us.now = us.now.Add(20 * time.Second)
	us.grants("ap", 20, "a lease and a window after ap heard that it was taken away")

	us.now = us.now.Add(time.Hour)
	ap.now = us.now
	ap.begin("us") // before it is named, with its log of before
	ap.grants("ap", 0, "before it heard us")
	both(20 * time.Second)
	ap.grants("ap", 0, "as it is not named")
	us.begin("ap")
	us.grants("ap", 0, "whose they are again")
	for range 5 { // both are started anew each quarter of a minute
		ap.begin("us")
		ap.grants("ap", 0, "before it heard us again")
		both(14 * time.Second)
		ap.grants("ap", 0, "within a lease and a window after it was named")
		us.begin("ap")
	}
	both(20 * time.Second)
	us.grants("us", 20, "all the time")
	ap.grants("ap", 20, "a lease and a window after it was named")
	if n := strings.Count(ap.log.String(), "did not name this one"); n != 1 {
		t.Errorf("the log of ap says %d times why it granted none, want once:\n%s", n, ap.log.String())
	}
}

// A lane in which nothing is counted for long hears it, too, that the region is not named any more: what
// its holders have is not renewed, and is over when it is granted elsewhere.
func TestIdleLanesHearThatTheyAreNotNamed(t *testing.T) {
	us, ap := newKeeper(t, "us"), newKeeper(t, "ap")
	us.lanes, ap.lanes, ap.lane = 2, 2, 1
	us.begin("ap")
	ap.begin("us")
	up := deltasync.Up{Kind: deltasync.KindEdge, Region: "ap", Pop: "p", Name: "e1", Node: deltasync.NodeID("ap", "p", "e1"), Incarnation: 1, Lane: 1, Lanes: 2, Seq: 1, SentAt: ap.now.UnixNano(),
		Sections: []deltasync.Section{{Shape: minute, Deltas: []deltasync.Delta{{Key: 1<<32 + 1, Cells: []crdt.Cell{charge(ap.now, 1)}}}}}}
	once, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if down := decode(t, ap.Handle(t.Context(), ap.now, deltasync.EdgeSubject("ap", 1, "p", "e1"), once)); down.Status != deltasync.StatusOK {
		t.Fatalf("what lane 1 counts once is answered %s", down.Status)
	}
	pass(30*time.Minute, us.misfit, ap.misfit)
	ap.grants("ap", 20, "from the beginning")
	renewed := func() bool {
		frame, err := (&deltasync.Claims{Region: "ap", Lane: 1, Lanes: 2, From: "ap", Pop: "p", Name: "e1", SentAt: int64(ap.key) + 1, Claims: []deltasync.Claim{
			{Key: ap.key, Holder: 1, Limit: 100, Lasts: time.Minute, Granted: 40, Want: 40}}}).AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		var g deltasync.Grants
		if err := g.UnmarshalBinary(ap.HandleClaims(t.Context(), deltasync.ClaimSubject("ap", 1, "ap", "p", "e1"), frame)); err != nil {
			t.Fatal(err)
		}
		return len(g.Grants) > 0
	}
	if !renewed() {
		t.Fatal("what is held is not renewed while the region is named")
	}
	us.begin()
	pass(8*time.Second, us.misfit, ap.misfit)
	if renewed() {
		t.Error("what is held is renewed 8 s after the region was not named any more")
	}
	ap.rights.Wipe() // which what is to be noted there must not keep from being seen
	pass(2*time.Second, us.misfit, ap.misfit)
	for range 2 {
		if err := ap.KeepRights(t.Context()); err != nil {
			t.Errorf("the log that was lost is not taken anew: %v", err)
		}
	}
}

// Where a region's aggregators are started anew one after the other, those with the peers of before go
// on granting in the lanes that they have: all are asked, also those where nothing is counted.
func TestRegionsThatComeLaneByLane(t *testing.T) {
	us, ap := newKeeper(t, "us"), newKeeper(t, "ap")
	us.lanes, ap.lanes = 2, 2
	us.begin("ap")
	ap.begin("us")
	pass(10*time.Minute, us.misfit, ap.misfit)
	us.begin()
	us.now = us.now.Add(time.Hour)
	us.begin("ap")
	us.now = us.now.Add(100 * time.Second)
	for _, regions := range [][]string{{"us"}, {"ap", "us"}} { // lane 1 is another's, whose peers are mended by now
		if _, err := us.rights.Take(t.Context(), 1, 9, regions); err != nil {
			t.Fatal(err)
		}
	}
	us.begin("ap")
	ap.now = us.now
	ap.begin("us")
	pass(250*time.Millisecond, us.misfit, ap.misfit)
	ap.lane = 1
	ap.grants("ap", 0, "of lane 1, of which it heard nothing yet")
	pass(40*time.Second, us.misfit, ap.misfit)
	ap.grants("ap", 0, "of lane 1, within a lease and a window after that was told of it")
	pass(40*time.Second, us.misfit, ap.misfit)
	ap.grants("ap", 20, "of lane 1, a lease and a window after that was told of it")
}

// A region that is started before another names it, and does not hear of that one again, grants nothing of
// what that one grants: be it for hours, and by aggregators that are started anew.
func TestRegionThatIsNotNamedWaitsForASilentOne(t *testing.T) {
	us, ap := newKeeper(t, "us"), newKeeper(t, "ap")
	both := func(d time.Duration) { together(d, us, ap) }
	alone := func(d time.Duration) {
		for end := ap.now.Add(d); ap.now.Before(end); ap.keep() {
			ap.now = ap.now.Add(250 * time.Millisecond)
			for _, o := range ap.Exports(ap.now) {
				ap.Lost(ap.now, o)
			}
		}
		us.now = ap.now
	}
	us.begin("ap")
	ap.begin("us")
	both(10 * time.Minute)
	us.begin() // ap is taken away
	us.now = us.now.Add(time.Hour)
	ap.now = us.now
	ap.begin("us")
	both(time.Minute)
	us.grants("ap", 20, "that was taken away")
	for range 2 {
		ap.grants("ap", 0, "as it is not named")
		alone(10 * time.Minute)
		ap.grants("ap", 0, "as it was not named when it heard last of us, which is cut off")
		ap.begin("us")
		alone(10 * time.Second)
	}
	us.begin("ap") // that it is named now
	both(time.Minute)
	ap.grants("ap", 0, "a minute after it was named")
	both(20 * time.Second)
	ap.grants("ap", 20, "a lease and a window after it was named")
}

// Who did not name this region, and is taken away, granted its keys until then, be it that nothing was heard
// of it for long: none of them are granted here until that is over, by whichever aggregator.
func TestDenierThatIsTakenAwayHadGranted(t *testing.T) {
	us, ap := newKeeper(t, "us"), newKeeper(t, "ap")
	us.begin()
	us.now = us.now.Add(time.Hour)
	ap.now = us.now
	ap.begin("us")
	pass(20*time.Second, us.misfit, ap.misfit)
	us.keep()
	ap.keep()
	us.grants("ap", 20, "of which it does not know")
	ap.now = ap.now.Add(10 * time.Minute) // they are cut off from each other
	us.now = ap.now
	us.grants("ap", 20, "of which it does not know")
	ap.begin() // us is taken away
	for range 4 {
		ap.grants("ap", 0, "within a lease and a window after us was taken away")
		ap.now = ap.now.Add(20 * time.Second)
		ap.keep()
		ap.begin()
	}
	ap.now = ap.now.Add(10 * time.Second)
	ap.grants("ap", 20, "after that")
}

// A region that did not name this one, was taken away, and is had back when all that it granted is over,
// says by itself whether it does so again: its keys are granted on meanwhile. Had back before that, what
// it granted is waited for.
func TestDenierThatIsHadBack(t *testing.T) {
	for _, away := range []time.Duration{30 * time.Second, 100 * 24 * time.Hour} {
		us, ap := newKeeper(t, "us"), newKeeper(t, "ap")
		us.begin()
		us.now = us.now.Add(time.Hour)
		ap.now = us.now
		ap.begin("us")
		together(20*time.Second, us, ap)
		ap.begin() // us is taken away
		ap.now = ap.now.Add(away)
		ap.keep()
		ap.begin("us") // and named again, and not there yet
		ap.now = ap.now.Add(10 * time.Second)
		if away < time.Hour {
			ap.grants("ap", 0, "as what us had granted counts still")
			ap.now = ap.now.Add(80 * time.Second)
		}
		ap.grants("ap", 20, "of its own")
	}
}

// A region whose aggregators died while its edges went on was taken from the peers, and another granted
// what was drawn to it. Had back it renews none of what its log says that these edges have.
func TestWhatALogSaysIsNotRenewedAfterOthersGranted(t *testing.T) {
	us, ap := newKeeper(t, "us"), newKeeper(t, "ap")
	us.begin("ap")
	ap.begin("us")
	together(10*time.Minute, us, ap)
	ap.grants("ap", 20, "from the beginning")
	key, sent := ap.key, int64(1)<<60
	claim := func(k *keeper, holder, granted uint64) (out uint64) {
		t.Helper()
		sent++
		frame, err := (&deltasync.Claims{Region: k.name, Lanes: 1, From: k.name, Pop: "p", Name: "e1", SentAt: sent, Claims: []deltasync.Claim{
			{Key: key, Holder: holder, Limit: 100, Lasts: time.Minute, Granted: granted, Want: 100}}}).AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		var g deltasync.Grants
		if err := g.UnmarshalBinary(k.HandleClaims(t.Context(), deltasync.ClaimSubject(k.name, 0, k.name, "p", "e1"), frame)); err != nil {
			t.Fatal(err)
		}
		for _, g := range g.Grants {
			out = g.Granted
		}
		return out
	}
	held := claim(ap, 1, 40)
	if held != 100 {
		t.Fatalf("ap's edge has %d, want all", held)
	}
	us.begin() // and ap's aggregators are gone
	us.now = us.now.Add(10 * time.Minute)
	us.keep()
	if got := claim(us, 7, 0); got != 100 {
		t.Fatalf("us grants %d of what was drawn to ap, want all", got)
	}
	us.begin("ap")
	us.now = us.now.Add(5 * time.Second)
	ap.now = us.now
	ap.begin("us")
	for range 12 {
		if got := claim(ap, 1, held); got != 0 {
			t.Fatalf("ap renews %d of what us granted", got)
		}
		together(5*time.Second, us, ap)
	}
}

// An aggregator that is started anew renews what its log has, as nobody else granted it.
func TestWhatALogSaysIsRenewed(t *testing.T) {
	us, ap := newKeeper(t, "us"), newKeeper(t, "ap")
	us.begin("ap")
	ap.begin("us")
	together(10*time.Minute, us, ap)
	ap.grants("ap", 20, "from the beginning")
	ap.begin("us")
	together(time.Second, us, ap)
	ap.grants("ap", 20, "by the next aggregator")
}
