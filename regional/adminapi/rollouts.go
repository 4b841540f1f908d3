package adminapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// What is rolled out with a condition is looked at by all aggregators that know of it, and ended by whoever does
// so first: a version is written over the one that was seen. Those of the regions where it is in force
// go first, each a little later than others, so that mostly one tries.
const (
	lookEvery   = 2 * time.Second
	actsWithin  = 2 * time.Second
	othersAfter = 10 * time.Second
	// Who cannot write leaves it alone for so long, and each time for twice as long.
	leastPause = time.Minute
	mostPause  = 15 * time.Minute
)

// rollouts is what an aggregator knows of rollouts that end by themselves.
type rollouts struct {
	mu sync.Mutex // guards of
	of map[string]*rollout
}

// rollout is of one version of a namespace.
type rollout struct {
	stamp    uint64
	compared []string
	state    string
	short    bool // it is told that there were too few requests
	action   string
	due      time.Time // when it is done
	pause    time.Duration
}

// sample is what was decided in the regions of a rollout since it is in force there.
type sample struct {
	compared, newly, decided, denied uint64
	lacks                            []string // regions of which not all was heard, or where it is not in force at all edges
}

// sampleOf reads what regions tell of a version.
func sampleOf(v *natsrules.Version, compares []string, regions []regional.RegionDecisions) (s sample) {
	for _, told := range regions {
		whole, there := told.Complete() && told.LeftOut == 0 && told.Edges > 0 && told.Silent == 0, false
		for i := range told.Rules {
			r := &told.Rules[i]
			if r.Namespace != v.Namespace || r.Version != v.Stamp() {
				continue
			}
			there, whole = true, whole && r.Behind == 0
			s.decided += r.Since.Decided.All()
			s.denied += r.Since.Decided.Denied()
			if slices.Contains(compares, r.Rule) {
				s.compared += compared(&r.Since)
				s.newly += r.Since.Trials[1][0]
			}
		}
		if !whole || !there {
			s.lacks = append(s.lacks, told.Region)
		}
	}
	return s
}

// judged is what a condition says of a sample: what is to be done, if anything, and how it stands.
type judged struct {
	action string // promote, revert or none
	state  string
	short  bool // its time is over, and there were too few requests
}

// judge says what is to become of a version.
func judge(v *natsrules.Version, s sample, now time.Time) judged {
	c, of := &v.Until, []string{}
	few := ""
	for _, b := range []struct {
		most       natsrules.Most
		n, all     uint64
		what, them string
	}{
		{c.NewlyDenied, s.newly, s.compared, "newly denied", "requests that were compared"},
		{c.Denied, s.denied, s.decided, "denied", "requests"},
	} {
		if !b.most.Stated {
			continue
		}
		text := fmt.Sprintf("%v %% of %d %s are %s, of at most %v %%", percentUp(b.n, b.all), b.all, b.them, b.what, b.most.Percent)
		switch {
		case b.all < c.Requests:
			few = fmt.Sprintf("%d %s, of at least %d", b.all, b.them, c.Requests)
		case b.most.Exceeded(b.n, b.all):
			return judged{action: "revert", state: text}
		}
		of = append(of, text)
	}
	state, end := strings.Join(of, "; "), v.At.Add(c.After)
	switch {
	case c.After == 0:
		return judged{state: state + "; it waits for who promotes it"}
	case now.Before(end):
		return judged{state: state + "; it is promoted at " + end.UTC().Format(time.RFC3339) + " if that holds"}
	case len(s.lacks) > 0:
		return judged{state: state + "; it waits for regions of which not all edges tell what they decided by it: " + strings.Join(s.lacks, ", ")}
	case few != "":
		return judged{state: "its time is over, and there were too few requests, so it waits: " + few, short: true}
	}
	return judged{action: "promote", state: state}
}

// percentUp is a part in percent, to the hundredth, rounded up: what is above a bound is so in print.
func percentUp(n, all uint64) float64 {
	return math.Ceil(part(n, all)*1e4) / 100
}

// RunRollouts ends by their conditions the versions that are rolled out, until ctx ends. newest are those that are
// known now, one a namespace.
func (b *Rulebook) RunRollouts(ctx context.Context, newest func() []natsrules.Version) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-look.C:
			b.lookAt(ctx, now, newest())
		}
	}
}

// lookAt looks once.
func (b *Rulebook) lookAt(ctx context.Context, now time.Time, newest []natsrules.Version) {
	there := map[string]bool{}
	for i := range newest {
		if v := &newest[i]; v.Regions != "" && v.Until.Stated() {
			there[v.Namespace] = true
			b.lookAtOne(ctx, now, v)
		}
	}
	b.rollouts.mu.Lock()
	defer b.rollouts.mu.Unlock()
	for namespace := range b.rollouts.of {
		if !there[namespace] {
			delete(b.rollouts.of, namespace)
		}
	}
}

func (b *Rulebook) lookAtOne(ctx context.Context, now time.Time, v *natsrules.Version) {
	r := b.rollout(v)
	regions, told := strings.Split(v.Regions, ","), []regional.RegionDecisions(nil)
	own := b.subject.Decided(now, v.Namespace, "")
	here := slices.Contains(regions, own.Region)
	if here {
		told = append(told, own)
	}
	if others := slices.DeleteFunc(slices.Clone(regions), func(region string) bool { return region == own.Region }); len(others) > 0 {
		told = append(told, b.subject.DecidedElsewhere(ctx, v.Namespace, "", others...)...)
	}
	j := judge(v, sampleOf(v, r.compared, told), now)
	b.rollouts.mu.Lock()
	r.state = j.state
	b.rollouts.mu.Unlock()
	if j.short && !r.short {
		b.log.Warn("a rollout is neither promoted nor reverted: its time is over, and there were too few requests; it waits for more, or for rules promote, or revert", "namespace", v.Namespace, "version", v.Number, "state", j.state)
	}
	r.short = j.short
	switch {
	case j.action == "":
		r.action = ""
		return
	case r.action != j.action:
		r.action, r.due = j.action, now.Add(rand.N(actsWithin))
		if !here {
			r.due = r.due.Add(othersAfter)
		}
	}
	if now.Before(r.due) {
		return
	}
	p := b.endByCondition(ctx, v, j)
	switch {
	case p == nil:
		return
	case p.Status == http.StatusPreconditionFailed: // somebody was first, of whom we are yet to hear
		r.due = now.Add(actsWithin)
		return
	}
	r.pause = min(max(leastPause, 2*r.pause), mostPause)
	r.due = now.Add(r.pause)
	b.log.Error("a rollout is not ended, as its condition says", "namespace", v.Namespace, "version", v.Number, "action", j.action, "state", j.state, "err", p, "again_in", r.pause)
}

// rollout is what is known of that of a version.
func (b *Rulebook) rollout(v *natsrules.Version) *rollout {
	b.rollouts.mu.Lock()
	r := b.rollouts.of[v.Namespace]
	b.rollouts.mu.Unlock()
	if r != nil && r.stamp == v.Stamp() {
		return r
	}
	r = &rollout{stamp: v.Stamp()}
	if compared, err := b.format.Compare(configs.Text{Name: v.Namespace, Namespace: v.Namespace, Text: v.Text, Before: v.Elsewhere}); err == nil {
		r.compared = compared.Rules
	}
	b.rollouts.mu.Lock()
	defer b.rollouts.mu.Unlock()
	if b.rollouts.of == nil {
		b.rollouts.of = map[string]*rollout{}
	}
	b.rollouts.of[v.Namespace] = r
	return r
}

// stands is how the condition of a version stands; "": nobody knows here.
func (b *Rulebook) stands(v *natsrules.Version) string {
	b.rollouts.mu.Lock()
	defer b.rollouts.mu.Unlock()
	if r := b.rollouts.of[v.Namespace]; r != nil && r.stamp == v.Stamp() {
		return r.state
	}
	return ""
}

// endByCondition has a rollout end.
func (b *Rulebook) endByCondition(ctx context.Context, v *natsrules.Version, j judged) *Problem {
	who := "condition"
	if v.Author != "" {
		who += " of " + v.Author
	}
	end := promoted
	if j.action == "revert" {
		end = reverted
	}
	_, p := b.make(ctx, &change{
		by: &caller{name: cut(who, natsrules.MaxAuthor), role: "condition"}, action: j.action, namespace: v.Namespace, over: condition{match: etag(v)}, message: cut(end(v).Message+": "+j.state, maxMessage), quiet: true,
		next: func(_ context.Context, _ *natsrules.Store, was *natsrules.Version) (natsrules.Version, error) {
			if was.Regions == "" {
				return natsrules.Version{}, errors.New("nothing is rolled out")
			}
			return end(was), nil
		},
	})
	return p
}

// cut is a text of at most so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
