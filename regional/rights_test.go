package regional_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
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

// A region that its peer does not name grants no rights of what both may take for theirs, and does so
// a lease and a window after it is named.
func TestWhoIsNotNamedGrantsNoRights(t *testing.T) {
	ap := &misfit{}
	a, err := regional.New(regional.Config{
		Region: "ap", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second, Rights: memstore.NewRights(time.Time{}, nil),
		Boot: func() time.Duration { return time.Hour + ap.now.Sub(start) },
	}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	ap.region = &region{Aggregator: a, t: t, name: "ap", now: start}
	granted := func() (rights uint64, drawn int) { // of keys that ap is the home of
		for key := range deltasync.Key(20) {
			frame, err := (&deltasync.Claims{Region: "ap", Lanes: 1, From: "ap", Pop: "p", Name: "e1", SentAt: int64(ap.now.Sub(start)) + 1, Claims: []deltasync.Claim{
				{Key: key + 1, Holder: 1, Limit: 100, Lasts: time.Minute, Want: 40}}}).AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			var g deltasync.Grants
			if err := g.UnmarshalBinary(ap.HandleClaims(t.Context(), deltasync.ClaimSubject("ap", 0, "ap", "p", "e1"), frame)); err != nil || len(g.Grants) != 1 {
				t.Fatalf("%+v, %v", g, err)
			}
			if g.Grants[0].Home == "" {
				drawn, rights = drawn+1, rights+g.Grants[0].Granted
			}
		}
		return rights, drawn
	}
	pass(10*time.Minute, ap, newMisfit(t, "us", 1))
	if rights, drawn := granted(); rights != 0 || drawn == 0 {
		t.Errorf("%d rights of %d keys are granted by who is not named, want none", rights, drawn)
	}
	us := newMisfit(t, "us", 1, "ap") // it is started anew
	pass(time.Minute, ap, us)
	if rights, _ := granted(); rights != 0 {
		t.Errorf("%d rights are granted a minute after it was named, want none", rights)
	}
	pass(20*time.Second, ap, us)
	if rights, drawn := granted(); rights < uint64(drawn)*40 {
		t.Errorf("%d rights of %d keys are granted a lease and a window after it was named, want 40 each", rights, drawn)
	}
}
