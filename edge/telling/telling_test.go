package telling

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// counted stands for a surface's metrics.
type counted map[[3]string]uint64

func (c counted) each(each func(namespace, rule, result string, decisions uint64)) {
	for of, n := range c {
		each(of[0], of[1], of[2], n)
	}
}

// setOf is a namespace with a rule that has a candidate, and another namespace.
func setOf(t testing.TB, version uint64) *limit.Set {
	t.Helper()
	rates := []limit.RateSpec{{Limit: 5, Per: time.Minute}}
	set, err := limit.Compile(
		limit.Document{Namespace: "shop", Version: version, Rules: []limit.RuleSpec{{Name: "a", Rates: rates, Candidate: &limit.CandidateSpec{Rates: []limit.RateSpec{{Limit: 6, Per: time.Minute}}}}}},
		limit.Document{Namespace: "bank", Rules: []limit.RuleSpec{{Name: "b", Rates: rates}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// heard is what is told now.
func heard(t testing.TB, teller *Teller) (whole bool, rules map[rule]deltasync.Told) {
	t.Helper()
	messages, err := teller.Tell(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	rules = map[rule]deltasync.Told{}
	for _, m := range messages {
		told, err := deltasync.ReadTell(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range told.Rules {
			rules[rule{r.Namespace, r.Rule}] = r
		}
		whole = told.Whole
	}
	return whole, rules
}

// What is told is what was decided since the version of the namespace is in force, whatever other sets of
// rules come meanwhile.
func TestTellsSinceTheVersion(t *testing.T) {
	set, metrics := (*limit.Set)(nil), counted{}
	teller := New(Config{Incarnation: 1, Rules: func() *limit.Set { return set }, Decided: metrics.each})
	if _, rules := heard(t, teller); len(rules) > 0 {
		t.Errorf("without rules %v are told", rules)
	}
	tried := func(live, candidate bool) { set.Rules()[0].Tried(live, candidate) }
	is := func(want map[rule]deltasync.Told) {
		t.Helper()
		if _, got := heard(t, teller); !reflect.DeepEqual(got, want) {
			t.Errorf("told is %+v\nwant    %+v", got, want)
		}
	}
	a, b, none := rule{"shop", "a"}, rule{"bank", "b"}, rule{"shop", ""}
	set = setOf(t, 7)
	metrics[[3]string{"shop", "a", "allow"}], metrics[[3]string{"shop", "a", "deny"}] = 3, 1
	metrics[[3]string{"shop", "", "none"}], metrics[[3]string{"bank", "b", "soft"}] = 2, 9
	tried(true, false)
	is(map[rule]deltasync.Told{
		a:    {Namespace: "shop", Version: 7, Rule: "a", Decided: deltasync.Decisions{Allow: 3, Deny: 1}, Trials: [2][2]uint64{{0, 0}, {1, 0}}},
		none: {Namespace: "shop", Version: 7, Decided: deltasync.Decisions{None: 2}},
		b:    {Namespace: "bank", Rule: "b", Decided: deltasync.Decisions{Soft: 9}},
	})
	is(map[rule]deltasync.Told{}) // nothing changed

	set = setOf(t, 7) // another namespace changed, say
	tried(false, false)
	is(map[rule]deltasync.Told{
		a: {Namespace: "shop", Version: 7, Rule: "a", Decided: deltasync.Decisions{Allow: 3, Deny: 1}, Trials: [2][2]uint64{{1, 0}, {1, 0}}},
	})

	metrics[[3]string{"shop", "a", "allow"}] = 4
	set = setOf(t, 8)
	teller.look() // as Run does
	metrics[[3]string{"shop", "a", "allow"}] = 6
	tried(true, true)
	is(map[rule]deltasync.Told{
		a:    {Namespace: "shop", Version: 8, Rule: "a", Decided: deltasync.Decisions{Allow: 2}, Trials: [2][2]uint64{{0, 0}, {0, 1}}},
		none: {Namespace: "shop", Version: 8},
		b:    {Namespace: "bank", Rule: "b", Decided: deltasync.Decisions{Soft: 9}},
	})
	if whole, rules := heard(t, teller); !whole || len(rules) != 3 { // as an aggregator may have heard of the version since
		t.Errorf("at the second time after a change %v are told, whole: %t; want all", rules, whole)
	}
	heard(t, teller)
	if whole, rules := heard(t, teller); !whole || len(rules) != 3 {
		t.Errorf("at the seventh time %v are told, whole: %t; want all", rules, whole)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, metrics := setOf(t, 7), counted{{"shop", "a", "allow"}: 1}
		bus := membus.New()
		var got []deltasync.Tell
		if _, err := bus.Subscribe(deltasync.TellSubjects("eu"), func(subject string, m []byte) {
			from, err := deltasync.ParseTellSubject(subject)
			told, terr := deltasync.ReadTell(m)
			if err != nil || terr != nil || from.Pop != "ams" || from.Name != "e1" {
				t.Errorf("%s: %v, %v", subject, err, terr)
				return
			}
			got = append(got, *told)
		}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		teller := New(Config{Region: "eu", Pop: "ams", Name: "e1", Incarnation: 1, Rules: func() *limit.Set { return set }, Decided: metrics.each})
		go func() { teller.Run(ctx, bus); close(done) }()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if len(got) != 3 || !got[0].Whole || got[1].Whole || len(got[1].Rules) != 0 {
			t.Fatalf("in 25 s are told %+v", got)
		}
		stop()
		<-done
		synctest.Wait()
		if len(got) != 4 {
			t.Errorf("as it stops %d are told, want one more", len(got)-3)
		}
		_ = bus.Close()
	})
}

// Which keys were seen and denied is told with what was decided.
func TestTellsOfKeys(t *testing.T) {
	set, metrics := setOf(t, 7), counted{{"shop", "a", "allow"}: 1, {"shop", "", "none"}: 1}
	teller := New(Config{Incarnation: 1, Rules: func() *limit.Set { return set }, Decided: metrics.each, Seen: func(_ time.Time, r *limit.Rule) (keys, denied deltasync.Sketch) {
		if r.Name == "a" {
			keys.Add(7)
			keys.Add(8)
			denied.Add(7)
		}
		return keys, denied
	}})
	_, rules := heard(t, teller)
	a := rules[rule{"shop", "a"}]
	keys, denied := deltasync.SketchOf(a.Keys), deltasync.SketchOf(a.KeysDenied)
	if k, d := keys.Estimate(), denied.Estimate(); k < 1.9 || k > 2.1 || d < 0.9 || d > 1.1 || rules[rule{"shop", ""}].Keys != nil {
		t.Errorf("told are %v keys, %v of them denied, want 2 and 1: %+v", k, d, rules)
	}
}
