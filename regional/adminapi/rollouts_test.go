package adminapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsrules"
)

func TestJudge(t *testing.T) {
	made := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	both := natsrules.Condition{After: time.Hour, NewlyDenied: natsrules.Most{Stated: true, Percent: 2}, Denied: natsrules.Most{Stated: true, Percent: 5}, Requests: 500}
	newly, byHand := both, both
	newly.Denied, byHand.After = natsrules.Most{}, 0
	for name, c := range map[string]struct {
		of     natsrules.Condition
		s      sample
		after  time.Duration
		action string
		state  string
	}{
		"nothing yet":           {both, sample{}, 0, "", "0 % of 0 requests that were compared are newly denied, of at most 2 %; 0 % of 0 requests are denied, of at most 5 %; it is promoted at 2026-12-01T01:00:00Z if that holds"},
		"as many as may be":     {both, sample{compared: 500, newly: 10, decided: 1000, denied: 50}, time.Minute, "", "2 % of 500"},
		"one more newly":        {both, sample{compared: 500, newly: 11, decided: 500}, time.Minute, "revert", "2.2 % of 500 requests that were compared are newly denied, of at most 2 %"},
		"one more":              {both, sample{compared: 1000, decided: 1000, denied: 51}, time.Minute, "revert", "5.1 % of 1000 requests are denied, of at most 5 %"},
		"of few":                {both, sample{compared: 499, newly: 499, decided: 499, denied: 499}, time.Minute, "", "it is promoted at"},
		"at its end":            {both, sample{compared: 500, newly: 10, decided: 1000, denied: 50}, time.Hour, "promote", "2 % of 500"},
		"too few at its end":    {both, sample{compared: 499, newly: 499, decided: 1000}, 2 * time.Hour, "", "too few requests, so it waits: 499 requests that were compared, of at least 500"},
		"late":                  {both, sample{compared: 500, newly: 11, decided: 500}, 2 * time.Hour, "revert", "2.2 %"},
		"not heard":             {both, sample{compared: 500, decided: 500, lacks: []string{"us"}}, time.Hour, "", "not all edges tell what they decided by it: us"},
		"not heard, too many":   {both, sample{compared: 500, newly: 11, decided: 500, lacks: []string{"us"}}, time.Hour, "revert", ""},
		"by one bound":          {newly, sample{compared: 500, decided: 500, denied: 500}, time.Hour, "promote", ""},
		"a trifle above":        {newly, sample{compared: 1000000, newly: 20001}, time.Minute, "revert", "2.01 % of 1000000"},
		"it is promoted by you": {byHand, sample{compared: 500, decided: 500}, time.Hour, "", "it waits for who promotes it"},
		"reverted by itself":    {byHand, sample{compared: 500, newly: 11, decided: 500}, time.Hour, "revert", ""},
	} {
		got := judge(&natsrules.Version{Namespace: "shop", At: made, Until: c.of}, c.s, made.Add(c.after))
		if got.action != c.action || !strings.Contains(got.state, c.state) || got.short != (name == "too few at its end") {
			t.Errorf("%s: %+v, want %q, and to be told %q", name, got, c.action, c.state)
		}
	}
}

// world stands for regions whose edges tell.
type world struct {
	*regional.Aggregator
	regions map[string]regional.RegionDecisions
}

func (w *world) Decided(time.Time, string, string) regional.RegionDecisions { return w.regions["eu"] }

func (w *world) DecidedElsewhere(_ context.Context, _, _ string, regions ...string) (out []regional.RegionDecisions) {
	for _, region := range regions {
		out = append(out, w.regions[region])
	}
	return out
}

// says has a region say of rule all since a version.
func (w *world) says(region string, version, admitted, newly uint64) {
	w.regions[region] = regional.RegionDecisions{Region: region, Heard: true, Edges: 1, Listened: 60, Rules: []regional.RuleDecisions{{
		Namespace: "shop", Rule: "all", Version: version,
		Since: regional.Counted{Decided: deltasync.Decisions{Allow: admitted, Deny: newly}, Trials: [2][2]uint64{{admitted, 0}, {newly, 0}}},
	}, { // which is not compared
		Namespace: "shop", Rule: "login", Version: version, Since: regional.Counted{Trials: [2][2]uint64{{0, 0}, {1000, 0}}},
	}}}
}

// rolls is a desk at which something is rolled out in eu and us.
type rolls struct {
	*desk
	*world
	now time.Time
}

func newRolls(t testing.TB) *rolls {
	d := newDesk(t, configs.FormatSpillgate)
	r := &rolls{desk: d, world: &world{d.agg, map[string]regional.RegionDecisions{"eu": {Region: "eu", Heard: true}, "us": {Region: "us"}}}, now: time.Now()}
	d.book.subject = r.world
	d.want(201, "", "ed", "PUT", shop, limited(100), "If-None-Match", "*")
	return r
}

func (r *rolls) newest() natsrules.Version {
	r.t.Helper()
	store, _, err := r.book.open(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	v, err := store.Get(context.Background(), "shop")
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// out rolls it out, until.
func (r *rolls) out(limit int, words string) natsrules.Version {
	r.t.Helper()
	r.want(200, "", "ada", "PUT", shop+"?regions=eu,us&"+words, limited(limit), "If-Match", "*")
	return r.newest()
}

// looks has it looked at for as long.
func (r *rolls) looks(v natsrules.Version, span time.Duration) {
	for end := r.now.Add(span); r.now.Before(end); r.now = r.now.Add(lookEvery) {
		r.book.lookAt(context.Background(), r.now, []natsrules.Version{v})
	}
}

func TestRolloutEndsByItself(t *testing.T) {
	t.Parallel()
	r := newRolls(t)
	v := r.out(50, "promote_after=30m&max_newly_denied=2%25")
	r.says("eu", v.Stamp(), 400, 8)
	r.says("us", v.Stamp()-1, 400, 400) // of what was in force before
	r.looks(v, time.Minute)
	r.want(200, `"state":"1.97 % of 408 requests that were compared are newly denied`, "vi", "GET", "/admin/v1/namespaces", "")
	r.says("us", v.Stamp(), 400, 30)
	r.looks(v, actsWithin+lookEvery)
	w := r.want(200, `"message":"reverted in eu,us: 4.54 % of 838 requests that were compared are newly denied, of at most 2 %"`, "vi", "GET", shop, "", "Accept", "application/json")
	if now := r.newest(); now.Text != limited(100) || now.Regions != "" || now.Author != "condition of ada" || strings.Contains(w.Body.String(), "until") {
		t.Errorf("it is %+v", now)
	}
	r.want(200, `"who":"condition of ada","role":"condition","action":"revert","namespace":"shop","version":3,`, "ada", "GET", "/admin/v1/audit", "")

	v = r.out(50, "promote_after=30m&max_newly_denied=2%25&max_denied=50%25")
	r.now = time.Now()
	r.says("eu", v.Stamp(), 400, 8)
	r.says("us", v.Stamp(), 50, 0)
	r.looks(v, 31*time.Minute)
	r.want(200, "its time is over, and there were too few requests", "vi", "GET", "/admin/v1/namespaces", "")
	r.says("us", v.Stamp(), 500, 0)
	us := r.regions["us"]
	us.Partial = 1
	r.regions["us"] = us
	r.looks(v, time.Minute)
	r.want(200, "it waits for regions of which not all edges tell what they decided by it: us", "vi", "GET", "/admin/v1/namespaces", "")
	r.says("us", v.Stamp(), 500, 0)
	r.looks(v, actsWithin+lookEvery)
	if now := r.newest(); now.Text != limited(50) || now.Regions != "" || !strings.HasPrefix(now.Message, "promoted from eu,us: 0.89 % of 908 requests") {
		t.Errorf("it is %+v", now)
	}
}

// Who is no part of the rollout is the last to end it, and what somebody has ended stays so.
func TestRolloutIsEndedOnce(t *testing.T) {
	t.Parallel()
	r := newRolls(t)
	v := r.out(50, "max_newly_denied=2%25")
	r.regions["eu"] = regional.RegionDecisions{Region: "jp", Heard: true, Listened: 60}
	r.says("us", v.Stamp(), 400, 400)
	r.looks(v, othersAfter-lookEvery)
	if now := r.newest(); now != v {
		t.Fatalf("another region ended it at once: %+v", now)
	}
	r.want(200, "", "ed", "POST", shop+"/promote", "", "If-Match", "*")
	r.looks(v, time.Minute)
	if now := r.newest(); now.Text != limited(50) || now.Author != "ed" {
		t.Errorf("it is %+v", now)
	}
	if w := r.want(200, "", "ada", "GET", "/admin/v1/audit", ""); strings.Contains(w.Body.String(), "condition of") {
		t.Errorf("what was ended by another is noted: %s", w.Body)
	}
	r.looks(r.newest(), lookEvery)
	if n := len(r.book.rollouts.of); n != 0 {
		t.Errorf("%d rollouts are known", n)
	}
}

// An aggregator that may not write tells it, and leaves it alone for a while.
func TestRolloutThatCannotBeEnded(t *testing.T) {
	t.Parallel()
	r := newRolls(t)
	v := r.out(50, "max_newly_denied=2%25")
	r.says("us", v.Stamp(), 400, 400)
	tries := 0
	r.book.open = func(context.Context) (*natsrules.Store, *natsaudit.Log, error) {
		tries++
		return nil, nil, errors.New("permissions violation")
	}
	var log bytes.Buffer
	r.book.log = slog.New(slog.NewTextHandler(&log, nil))
	r.looks(v, time.Hour)
	if want := 7; tries != want || strings.Count(log.String(), "permissions violation") != want { // after 0, 1, 3, 7, 15, 30, 45 minutes
		t.Errorf("in an hour it tried %d times, want %d:\n%s", tries, want, &log)
	}
}

// A version is not promoted for a region where nobody tells, or somebody does no more, nor where edges go by the one
// before.
func TestNotPromotedUnseen(t *testing.T) {
	t.Parallel()
	for name, us := range map[string]func(version uint64) regional.RegionDecisions{
		"nobody tells": func(uint64) regional.RegionDecisions { return regional.RegionDecisions{} },
		"one is silent": func(version uint64) regional.RegionDecisions {
			return regional.RegionDecisions{Edges: 3, Silent: 1, Rules: []regional.RuleDecisions{{Namespace: "shop", Rule: "all", Edges: 3, Version: version}}}
		},
		"all have the one before": func(version uint64) regional.RegionDecisions {
			return regional.RegionDecisions{Edges: 10, Rules: []regional.RuleDecisions{{Namespace: "shop", Rule: "all", Edges: 10, Version: version - 1}}}
		},
		"one has": func(version uint64) regional.RegionDecisions {
			return regional.RegionDecisions{Edges: 10, Rules: []regional.RuleDecisions{{Namespace: "shop", Rule: "all", Edges: 10, Behind: 1, Version: version}}}
		},
	} {
		r := newRolls(t)
		v := r.out(50, "promote_after=30m&max_newly_denied=2%25")
		r.says("eu", v.Stamp(), 1000, 0)
		told := us(v.Stamp())
		told.Region, told.Heard, told.Listened = "us", true, 6000
		r.regions["us"] = told
		r.looks(v, 31*time.Minute)
		if now := r.newest(); now.Number != v.Number || !strings.Contains(r.book.stands(&v), "not all edges tell what they decided by it: us") {
			t.Errorf("%s: version %d %q, and %q", name, now.Number, now.Message, r.book.stands(&v))
		}
	}
}
