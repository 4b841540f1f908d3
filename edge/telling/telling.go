// Package telling has an edge tell the aggregators of its region what it decided, rule by rule: for who
// watches the cluster, and for rules that are rolled out until a condition is met.
//
// Decisions are counted already, by the surfaces (httpapi.Metrics) and in the rules (limit.Rule.Trials); here they
// are read now and then, and no request is kept up.
package telling

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Config is who tells, and of what.
type Config struct {
	// Region, Pop and Name say who this edge is, as those of edge.Config.
	Region, Pop, Name string
	// Incarnation tells this life of the process from earlier ones, in milliseconds since 1970.
	Incarnation uint64
	// Rules are those in force, nil before the first.
	Rules func() *limit.Set
	// Decided gives what was decided so far, as httpapi.Metrics does.
	Decided func(each func(namespace, rule, result string, decisions uint64))
	// Seen is which keys a rule saw and denied of late, as edge.Node has it; nil: nobody says.
	Seen func(now time.Time, rule *limit.Rule) (keys, denied deltasync.Sketch)
	// Logger says what happens at the boundary; nil: nobody hears it.
	Logger *slog.Logger
}

// Teller reads what was decided, and tells it. Its methods are for one goroutine.
type Teller struct {
	cfg Config

	set      *limit.Set        // of which trials are counted
	versions map[string]uint64 // in force, by namespace
	decided  map[rule]deltasync.Decisions
	before   map[rule]deltasync.Decisions // that the namespace's version is in force
	trials   map[rule][2][2]uint64        // of sets before, since then
	young    map[rule][2][2]uint64        // of them, those of before what candidates count was as old as what rules do
	told     map[rule]deltasync.Told
	seq      uint64
	round    int // the next one tells all when it is 0
	anew     int // and so do so many: some version is another, and an aggregator may not know it at the first time
}

// rule is a rule's name in a namespace.
type rule struct{ namespace, name string }

// New makes a Teller. It starts nothing.
func New(cfg Config) *Teller {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Teller{
		cfg: cfg, versions: map[string]uint64{}, decided: map[rule]deltasync.Decisions{}, before: map[rule]deltasync.Decisions{},
		trials: map[rule][2][2]uint64{}, young: map[rule][2][2]uint64{}, told: map[rule]deltasync.Told{},
	}
}

// lookEvery is how often it is looked whether other rules are in force: what was tried by those before is theirs.
const lookEvery = 200 * time.Millisecond

// Run tells every deltasync.TellEvery seconds until ctx ends, and once more then. Have nothing decided any more
// by then, or it is not told.
func (t *Teller) Run(ctx context.Context, bus deltasync.Bus) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			t.publish(bus)
			return
		case now := <-look.C:
			t.look()
			if now.Sub(last) >= deltasync.TellEvery*time.Second && t.set != nil {
				last = now
				t.publish(bus)
			}
		}
	}
}

// publish tells; what was not sent is so with the next.
func (t *Teller) publish(bus deltasync.Bus) {
	messages, err := t.Tell(time.Now())
	for _, m := range messages {
		if err == nil {
			err = bus.Publish(deltasync.TellSubject(t.cfg.Region, t.cfg.Pop, t.cfg.Name), m)
		}
	}
	if err != nil {
		t.round = 0
		t.cfg.Logger.Debug("what was decided is not told", "err", err)
	}
}

// Tell is what is to be told now: of rules whose counts changed since the last time, and of all now and then.
func (t *Teller) Tell(now time.Time) (messages [][]byte, err error) {
	t.look()
	if t.set == nil {
		return nil, nil
	}
	t.count()
	all := t.round == 0 || t.anew > 0
	t.anew = max(0, t.anew-1)
	t.round = (t.round + 1) % deltasync.TellAll
	var rules []deltasync.Told
	for of, told := range t.all(now) {
		if all || !same(&told, t.told[of]) {
			rules = append(rules, told)
		}
		t.told[of] = told
	}
	slices.SortFunc(rules, func(a, b deltasync.Told) int {
		return slices.Compare([]string{a.Namespace, a.Rule}, []string{b.Namespace, b.Rule})
	})
	if messages, err = deltasync.Tells(deltasync.Tell{Incarnation: t.cfg.Incarnation, Seq: t.seq + 1, Whole: all}, rules); err != nil {
		return nil, fmt.Errorf("tell what was decided: %w", err)
	}
	t.seq += uint64(len(messages))
	return messages, nil
}

func same(a *deltasync.Told, b deltasync.Told) bool {
	return a.Version == b.Version && a.Decided == b.Decided && a.Trials == b.Trials
}

// look takes note of other rules that are in force: of a namespace that has another version all is counted anew.
func (t *Teller) look() {
	set := t.cfg.Rules()
	if set == t.set {
		return
	}
	first := t.set == nil
	tried(t.set, t.trials)
	t.set = set
	versions, counted := map[string]uint64{}, false
	for _, name := range set.Names() {
		version := set.Namespace(name).Version
		versions[name] = version
		if was, known := t.versions[name]; known && was == version || first {
			continue
		}
		t.anew = 2
		if !counted { // by the rules before, all but what was decided since the last look
			t.count()
			counted = true
		}
		for of, d := range t.decided {
			if of.namespace == name {
				t.before[of] = d
			}
		}
		for of := range t.trials {
			if of.namespace == name {
				delete(t.trials, of)
				delete(t.young, of)
			}
		}
	}
	t.versions = versions
	for of := range t.told {
		if _, there := versions[of.namespace]; !there {
			delete(t.told, of)
		}
	}
}

// tried adds what the candidates of a set were compared with to sum.
func tried(set *limit.Set, sum map[rule][2][2]uint64) {
	for _, r := range set.Rules() {
		if r.Candidate == nil {
			continue
		}
		of := rule{r.Namespace, r.Name}
		n, more := sum[of], r.Trials()
		for i := range n {
			for j := range n[i] {
				n[i][j] += more[i][j]
			}
		}
		sum[of] = n
	}
}

// ages is when what the candidates of the set in force count is as old as what their rules do: a version has them
// begin from nothing, beside limits of which some may be used up. What they say before is not told.
func (t *Teller) ages() map[rule]time.Time {
	at := map[rule]time.Time{}
	for _, r := range t.set.Rules() {
		if r.Candidate == nil {
			continue
		}
		longest := time.Duration(0)
		for _, rate := range slices.Concat(r.Rates, r.Candidate.Rates) {
			longest = max(longest, rate.Lasts())
		}
		at[rule{r.Namespace, r.Name}] = time.UnixMicro(int64(t.versions[r.Namespace])).Add(longest)
	}
	return at
}

// less is n without those of before.
func less(n, before [2][2]uint64) [2][2]uint64 {
	for i := range n {
		for j := range n[i] {
			n[i][j] -= min(n[i][j], before[i][j])
		}
	}
	return n
}

// count reads what was decided.
func (t *Teller) count() {
	clear(t.decided)
	t.cfg.Decided(func(namespace, name, result string, n uint64) {
		of := rule{namespace, name}
		d := t.decided[of]
		switch result {
		case "allow":
			d.Allow += n
		case "soft":
			d.Soft += n
		case "elastic":
			d.Elastic += n
		case "deny":
			d.Deny += n
		case "cut_off":
			d.CutOff += n
		case "shadow_deny":
			d.ShadowDeny += n
		case "replay_deny":
			d.ReplayDeny += n
		case "none":
			d.None += n
		}
		t.decided[of] = d
	})
}

// all is all that there is to tell.
func (t *Teller) all(now time.Time) map[rule]deltasync.Told {
	out := map[rule]deltasync.Told{}
	for of, d := range t.decided {
		if version, there := t.versions[of.namespace]; there {
			before := t.before[of]
			d.Each(&before, func(n *uint64, before uint64) { *n -= min(*n, before) })
			out[of] = deltasync.Told{Namespace: of.namespace, Version: version, Rule: of.name, Decided: d}
		}
	}
	trials := map[rule][2][2]uint64{}
	for of, n := range t.trials {
		trials[of] = n
	}
	tried(t.set, trials)
	ages := t.ages()
	for of, n := range trials {
		if version, there := t.versions[of.namespace]; there {
			if now.Before(ages[of]) {
				t.young[of] = n
			}
			n = less(n, t.young[of])
			told := out[of]
			told.Namespace, told.Version, told.Rule, told.Trials = of.namespace, version, of.name, n
			out[of] = told
		}
	}
	if t.cfg.Seen == nil {
		return out
	}
	for _, r := range t.set.Rules() {
		of := rule{r.Namespace, r.Name}
		if told, is := out[of]; is {
			keys, denied := t.cfg.Seen(now, r)
			told.Keys, told.KeysDenied = keys.Bytes(), denied.Bytes()
			out[of] = told
		}
	}
	return out
}
