package rlqs

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
)

// TestFaultsOfTheStream: whatever becomes of streams, no window has more admitted than the
// limit and what was outstanding when it began, and once they hold, the limit is used again.
func TestFaultsOfTheStream(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings dataplane.Settings
		fault    func(w *world, i int) // at each second
	}{
		{"none", dataplane.Settings{}, func(*world, int) {}},
		{"resets", dataplane.Settings{}, func(w *world, i int) { w.pops[i%3].reset() }},
		{"all are reset at once, again and again", dataplane.Settings{}, func(w *world, i int) {
			for _, p := range w.pops {
				p.reset()
			}
		}},
		{"half-open", dataplane.Settings{ExpiredFor: time.Hour, Fallback: denyAll}, func(w *world, i int) {
			p := w.pops[i/7%3]
			p.frozen = i%7 < 5
			if i%7 == 5 { // somebody has noticed
				p.reset()
			}
		}},
		{"half-open, with the last assignment used on", dataplane.Settings{ExpiredFor: time.Hour, Reuse: true}, func(w *world, i int) {
			p := w.pops[i/20%3]
			p.frozen = i%20 < 15
			if i%20 == 15 {
				p.reset()
			}
		}},
		{"reports come twice", dataplane.Settings{}, func(w *world, i int) {
			for _, p := range w.pops {
				p.up = append(p.up, p.up...)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, perUser(fixed(1000, 10*time.Second)))
			c.settings.NoAssignment = denyAll
			for _, host := range []string{"a", "b", "c"} {
				w.join(host, 100, c.settings)
			}
			second := 0
			each := func() {
				if at := int(w.now.Sub(start) / time.Second); at != second && at <= 60 {
					second = at
					c.fault(w, at)
				}
			}
			for i := range 6 {
				before, outstanding := w.admitted(), w.outstanding()
				w.run(10*time.Second, each)
				got := uint64(w.admitted() - before)
				t.Logf("window %d: %d admitted, %d outstanding before", i, got, outstanding)
				if got > 1000+outstanding {
					t.Errorf("window %d: %d admitted, of 1000 and %d outstanding", i, got, outstanding)
				}
			}
			for _, p := range w.pops {
				p.frozen = false
				if p.ended != nil {
					t.Errorf("the stream of %s ended: %v", p.host, p.ended)
				}
			}
			w.run(10*time.Second, nil)
			before := w.admitted()
			w.run(10*time.Second, nil)
			if got := w.admitted() - before; got < 900 {
				t.Errorf("%d of 1000 are admitted after the faults", got)
			}
		})
	}
}

// TestSlowLines: a grant is given back only when a data plane can spend no more of it. With
// lines of up to 0.4 s, and requests that come all at once just when an assignment is on its
// way, nothing is admitted that is not charged.
func TestSlowLines(t *testing.T) {
	for seed := range uint64(6) {
		w := newWorld(t, Config{}, perUser(fixed(1_000_000, time.Hour)))
		rng := rand.New(rand.NewPCG(seed, 2))
		p := w.join("a", 50, dataplane.Settings{NoAssignment: denyAll, Interval: 300 * time.Millisecond})
		p.delay = time.Duration(100+rng.IntN(300)) * time.Millisecond
		w.run(60*time.Second, func() {
			if p.rps = 20; rng.IntN(50) == 0 {
				p.rps = 20_000 // more than it holds
			}
			if used, admitted := w.used(), uint64(w.admitted()); used < admitted {
				t.Fatalf("seed %d: at %v %d were admitted, and %d are charged", seed, w.now.Sub(start), admitted, used)
			}
		})
	}
}

// TestComesBackAndTellsWhatItUsed: what a data plane used under an earlier stream is not
// charged twice when it tells so on another one.
func TestComesBackAndTellsWhatItUsed(t *testing.T) {
	w := newWorld(t, Config{}, perUser(fixed(100_000, time.Hour)))
	p := w.join("a", 100, dataplane.Settings{NoAssignment: denyAll})
	w.run(10*time.Second, nil)
	p.reset()
	w.run(10*time.Second, nil)
	if got := testutil.ToFloat64(w.book.metrics.beyond); got > 1 {
		t.Errorf("%v requests were charged beyond what was granted", got)
	}
	// From another host it is: nobody knows whose they are.
	p.reset()
	p.host = "b"
	w.run(time.Second, nil)
	if got := testutil.ToFloat64(w.book.metrics.beyond); got < 2 {
		t.Errorf("%v requests of another host were charged beyond what was granted", got)
	}
}

// TestNeverSent: what waits for a stream that ends is given back at once.
func TestNeverSent(t *testing.T) {
	w := newWorld(t, Config{}, perUser(fixed(1000, time.Hour)))
	st, _ := w.book.open("a")
	if err := w.book.report(w.now, st, usage("local", user, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if got := w.used(); got == 0 {
		t.Fatal("nothing is charged for an assignment")
	}
	w.book.close(w.now, st)
	if got := w.used(); got != 0 {
		t.Errorf("%d are charged for an assignment that was never sent", got)
	}
}

// What waits for a data plane that does not read, while its reports come, is not settled as if
// it had been had: what it admits once it reads is charged.
func TestStuckReader(t *testing.T) {
	for _, stuck := range []time.Duration{2 * time.Second, 7 * time.Second, 10 * time.Second} {
		w := newWorld(t, Config{}, perUser(fixed(100_000, time.Hour)))
		p := w.join("a", 100, dataplane.Settings{NoAssignment: denyAll, ExpiredFor: time.Hour, Fallback: denyAll})
		w.run(12300*time.Millisecond, nil)
		p.stuck = true
		w.run(stuck, nil)
		p.stuck, p.rps = false, 1000
		w.run(20*time.Second, func() {
			if used, admitted := w.used(), uint64(w.admitted()); used < admitted {
				t.Fatalf("not read for %v: at %v %d were admitted, and %d are charged", stuck, w.now.Sub(start), admitted, used)
			}
		})
	}
}

// TestSilentDataPlanesGetNoMore: who does not answer an assignment is not charged another.
func TestSilentDataPlanesGetNoMore(t *testing.T) {
	w := newWorld(t, Config{}, perUser(fixed(1000, time.Hour)))
	st, _ := w.book.open("a")
	if err := w.book.report(w.now, st, usage("local", user, 0, 0)); err != nil {
		t.Fatal(err)
	}
	w.book.take(w.now, st)
	used := w.used()
	w.run(40*time.Second, func() { w.book.take(w.now, st) })
	if got := w.used(); got != used {
		t.Errorf("%d are charged to who never answers, %d at first", got, used)
	}
	w.run(silentAfter-30*time.Second, nil)
	if n := len(st.subs); n != 0 {
		t.Errorf("it has %d subscriptions after %v", n, silentAfter+10*time.Second)
	}
}

// TestBusyEdges: what an edge does not come to read for long, as it has other things to do,
// is no sign that buckets were not used.
func TestBusyEdges(t *testing.T) {
	w := newWorld(t, Config{MaxStreamBuckets: 1}, perUser(fixed(100, time.Minute)))
	p := w.join("a", 50, dataplane.Settings{ExpiredFor: time.Hour, Fallback: denyAll})
	w.run(5*time.Second, nil)
	name := nameOf(edge.LocalNamespace, &quotav3.BucketId{Bucket: user})
	had := p.st.subs[name]
	p.delay = 2 * restAfter // all that is sent later waits behind this
	p.Allow(w.now, map[string]string{"user": "invented"})
	w.run(step, nil)
	p.delay = 20 * time.Millisecond
	w.run(30*time.Second, nil)
	if p.admitted > 100 || had == nil || p.st.subs[name] != had {
		t.Errorf("%d were admitted of 100, and who asks all along kept its place: %v", p.admitted, p.st.subs[name] == had)
	}
}

// TestIdleBucketsAreAbandoned: one without requests is dropped where places are scarce, and
// subscribed to again with the next request.
func TestIdleBucketsAreAbandoned(t *testing.T) {
	w := newWorld(t, Config{MaxStreamBuckets: 3}, perUser(fixed(1000, 10*time.Second)))
	p := w.join("a", 10, dataplane.Settings{NoAssignment: denyAll, ExpiredFor: time.Hour, Reuse: true})
	w.run(5*time.Second, nil)
	p.rps = 0
	w.run(idleAfter+defaultTTL/2+time.Second, nil)
	if p.Buckets() != 0 || p.Abandoned() != 1 || len(w.book.buckets) != 0 || w.book.subs != 0 {
		t.Errorf("after a minute without requests the data plane tracks %d buckets, the edge %d", p.Buckets(), len(w.book.buckets))
	}
	if got := testutil.ToFloat64(w.book.metrics.assignments[kindAbandon]); got != 1 {
		t.Errorf("%v buckets were abandoned, want 1", got)
	}
	p.rps = 10
	before := p.admitted
	w.run(5*time.Second, nil)
	if got := p.admitted - before; got < 45 {
		t.Errorf("%d of 50 are admitted when requests come again", got)
	}
}

// TestExpiry: a data plane that is cut off goes on with its assignment until that expires,
// then does as it is set up: and never admits by what it reuses more than was charged.
func TestExpiry(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings dataplane.Settings
		most     int // admitted in a minute without a server; -1: all that are asked
	}{
		{"abandoned, and all allowed", dataplane.Settings{}, -1},
		{"abandoned, and all denied", dataplane.Settings{NoAssignment: denyAll}, 40},
		{"a fallback", dataplane.Settings{ExpiredFor: time.Hour, Fallback: denyAll}, 40},
		{"the last one", dataplane.Settings{ExpiredFor: time.Hour, Reuse: true}, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, perUser(fixed(1000, time.Minute)))
			p := w.join("a", 10, c.settings)
			w.run(10*time.Second, nil)
			p.frozen = true
			before, held := p.admitted, int(p.Held(w.now, user))
			w.run(time.Minute, nil)
			got := p.admitted - before
			switch {
			case c.most < 0 && got < 540:
				t.Errorf("%d of 600 are admitted, want nearly all", got)
			case c.most >= 0 && got > held:
				t.Errorf("%d are admitted by an assignment of which %d were left", got, held)
			case c.most >= 0 && got == 0:
				t.Error("none are admitted by an assignment that had not expired")
			}
		})
	}
}

// TestNoRoom: a bucket without room is denied for as long as an assignment lives, told so
// once, and again before that expires; and is assigned tokens as soon as there is room.
func TestNoRoom(t *testing.T) {
	w := newWorld(t, Config{}, perUser(fixed(10, 20*time.Second)))
	p := w.join("a", 50, dataplane.Settings{NoAssignment: denyAll})
	w.run(5*time.Second, nil)
	if s := p.Strategy(w.now, user); s.GetBlanketRule() != denyAll.GetBlanketRule() || s.GetTokenBucket() != nil {
		t.Errorf("after the limit is used up: %v, want all denied", s)
	}
	told := testutil.ToFloat64(w.book.metrics.assignments[kindDeny])
	w.run(14*time.Second, func() {
		if p.Strategy(w.now, user) == nil {
			t.Fatalf("the denial has expired at %v", w.now.Sub(start))
		}
	})
	if n := testutil.ToFloat64(w.book.metrics.assignments[kindDeny]) - told; n < 4 || n > 8 {
		t.Errorf("it was told %v times in 14 s, want each 2.5 s", n)
	}
	before := p.admitted
	w.run(3*time.Second, nil)
	if got := p.admitted - before; got != 10 {
		t.Errorf("%d are admitted once the window is over, want 10", got)
	}
}

// TestRulesDecide: what data planes are assigned where it is not a number of tokens.
func TestRulesDecide(t *testing.T) {
	banned := limit.RuleSpec{Name: "banned", Match: limit.MatchSpec{Has: []string{"user"}}, Deny: true}
	trial := perUser(fixed(10, time.Minute))
	trial.Mode = "shadow"
	slots := perUser(limit.RateSpec{Algorithm: "concurrency", Limit: 5, Lease: 30 * time.Second})
	costly := perUser(fixed(100, time.Hour))
	costly.Cost.Default = 5
	capped := perUser(fixed(1000, time.Hour))
	capped.Cost.Max = 3
	for _, c := range []struct {
		name string
		rule limit.RuleSpec
		want kind
		most uint64 // tokens; at the least half of it
	}{
		{"a limit", perUser(fixed(100, time.Hour)), kindTokens, 25},
		{"a list", banned, kindDeny, 0},
		{"a limit of none", perUser(fixed(0, time.Hour)), kindDeny, 0},
		{"a trial", trial, kindAllow, 0},
		{"no rule", limit.RuleSpec{Name: "other", Key: []string{"client_ip"}, Rates: []limit.RateSpec{fixed(1, time.Hour)}}, kindAllow, 0},
		{"slots", slots, kindTokens, 1},
		{"costs", costly, kindTokens, 5},
		{"costs with a maximum", capped, kindTokens, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, c.rule)
			st, _ := w.book.open("a")
			if err := w.book.report(w.now, st, usage("local", user, 0, 0)); err != nil {
				t.Fatal(err)
			}
			actions := w.book.take(w.now, st)
			if len(actions) != 1 || actions[0].kind != c.want || actions[0].tokens > c.most || actions[0].tokens < (c.most+1)/2 {
				t.Errorf("actions = %+v, want %s of up to %d tokens", actions, kindNames[c.want], c.most)
			}
		})
	}
}

// A trial beside a limit, however dear it has requests be, or one by one, leaves what is assigned as it is.
func TestTrialsChangeNoAssignment(t *testing.T) {
	tokens := func(rules ...limit.RuleSpec) (got []uint64) {
		t.Helper()
		w := newWorld(t, Config{}, rules...)
		st, _ := w.book.open("a")
		for range 3 {
			if err := w.book.report(w.now, st, usage("local", user, 5, 0)); err != nil {
				t.Fatal(err)
			}
			for _, a := range w.book.take(w.now, st) {
				got = append(got, a.tokens)
			}
			w.run(time.Second, nil)
		}
		return got
	}
	dear := perUser(fixed(100000, time.Hour))
	dear.Name, dear.Group, dear.Mode, dear.Cost.Default = "dear", "dear", "shadow", 50
	slots := perUser(limit.RateSpec{Algorithm: "concurrency", Limit: 50, Lease: 30 * time.Second})
	slots.Name, slots.Group, slots.Mode = "slots", "slots", "shadow"
	tried := perUser(fixed(1000, time.Minute))
	tried.Candidate = &limit.CandidateSpec{Rates: slots.Rates}
	want := tokens(perUser(fixed(1000, time.Minute)))
	if len(want) == 0 || want[0] < 10 {
		t.Fatalf("assigned are %d", want)
	}
	for name, rules := range map[string][]limit.RuleSpec{"dear": {perUser(fixed(1000, time.Minute)), dear}, "slots": {perUser(fixed(1000, time.Minute)), slots}, "a candidate": {tried}} {
		if got := tokens(rules...); !slices.Equal(got, want) {
			t.Errorf("%s: assigned are %d, want %d", name, got, want)
		}
	}
}

// usage is a message with a report of one bucket.
func usage(domain string, id map[string]string, allowed, denied uint64) *quotav3.RateLimitQuotaUsageReports {
	return &quotav3.RateLimitQuotaUsageReports{Domain: domain, BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		{BucketId: &quotav3.BucketId{Bucket: id}, NumRequestsAllowed: allowed, NumRequestsDenied: denied},
	}}
}
