package main

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/sim/world"
)

// warmUp is how long a case's cluster has run when its first step begins: all
// parts know of each other.
const warmUp = 2 * time.Second

// playCase runs one case on a cluster of its own.
func playCase(test *configs.RuleTest, c *configs.TestCase) (*caseResult, error) {
	var regions []world.Region
	for _, r := range test.Regions {
		regions = append(regions, world.Region{Name: r.Name, Edges: r.Edges})
	}
	w, err := world.New(world.Config{
		Regions: regions, Rules: test.Rules, Start: c.Start.Add(-warmUp),
		EdgeDelay: test.EdgeDelay, RegionDelay: test.RegionDelay,
	})
	if err != nil {
		return nil, err
	}
	cuts := switchesOf(c.Cuts)
	outcomes := make([]outcome, len(c.Steps))
	due := make(requests, len(c.Steps))
	for i := range c.Steps {
		due[i] = request{at: c.Steps[i].At, step: i}
	}
	heap.Init(&due)
	for len(due) > 0 {
		r := &due[0]
		for len(cuts) > 0 && cuts[0].at <= r.at {
			w.Advance(c.Start.Add(cuts[0].at))
			w.Cut(cuts[0].region, cuts[0].cut)
			cuts = cuts[1:]
		}
		w.Advance(c.Start.Add(r.at))
		step := &c.Steps[r.step]
		d, err := perform(w, step, r.index == 0)
		if err != nil {
			return nil, err
		}
		outcomes[r.step].add(step, d, *r)
		if r.index++; r.index < step.Times {
			r.at += step.Every
			heap.Fix(&due, 0)
		} else {
			heap.Pop(&due)
		}
	}
	return resultOf(test, c, outcomes), nil
}

// perform makes one request of a step, or reports about one.
func perform(w *world.World, step *configs.TestStep, first bool) (limit.Decision, error) {
	if first {
		if err := setCapacity(w, step); err != nil || step.Act == configs.ActSet {
			return limit.Decision{}, err
		}
	}
	node := w.Node(step.Edge)
	req := node.Rules().Namespace(step.Namespace).NewRequest()
	defer req.Release()
	for name, value := range step.Attributes {
		req.Set(name, value)
	}
	req.Cost, req.Peek, req.Trusted = step.Cost, step.Peek, step.Trusted
	w.Touch()
	switch step.Act {
	case configs.ActReport:
		return node.Report(w.Now(), req), nil
	case configs.ActGiveBack:
		node.GiveBack(w.Now(), req)
		req.Peek = true // how things stand then
		return node.Check(w.Now(), req), nil
	}
	d := node.Check(w.Now(), req)
	if d.Allowed && !step.Peek && len(step.Response) > 0 {
		for name, value := range step.Response {
			req.Set("response."+name, value)
		}
		node.Answered(w.Now(), req)
	}
	return d, nil
}

// setCapacity sets a step's signals at its edge, or at all where it names none.
func setCapacity(w *world.World, step *configs.TestStep) error {
	edges := w.Edges()
	if step.Edge != "" {
		edges = []string{step.Edge}
	}
	for name, used := range step.Capacity {
		for _, e := range edges {
			if err := w.Node(e).SetCapacity(w.Now(), name, used, edge.MaxCapacityTTL); err != nil {
				return fmt.Errorf("line %d: %w", step.Line, err)
			}
		}
	}
	return nil
}

// request is the next one of a step.
type request struct {
	at    time.Duration
	step  int
	index int // from 0
}

// requests is a heap: the earliest first, of two at one instant that of the
// earlier step.
type requests []request

func (r requests) Len() int { return len(r) }
func (r requests) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(r[i].at, r[j].at), cmp.Compare(r[i].step, r[j].step)) < 0
}
func (r requests) Swap(i, j int) { r[i], r[j] = r[j], r[i] }

// Push implements heap.Interface.
func (r *requests) Push(x any) { *r = append(*r, x.(request)) }

// Pop implements heap.Interface.
func (r *requests) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// cutSwitch cuts a region off, or joins it to the others again.
type cutSwitch struct {
	at     time.Duration
	region string
	cut    bool
}

// switchesOf orders the ends of cuts by time. Of cuts of one region that
// overlap or touch it makes one.
func switchesOf(cuts []configs.TestCut) (switches []cutSwitch) {
	end := map[string]int{} // of a region's last cut, in switches
	for _, c := range cuts {
		if i, ok := end[c.Region]; ok && c.From <= switches[i].at {
			switches[i].at = max(switches[i].at, c.To)
			continue
		}
		end[c.Region] = len(switches) + 1
		switches = append(switches, cutSwitch{c.From, c.Region, true}, cutSwitch{c.To, c.Region, false})
	}
	slices.SortStableFunc(switches, func(a, b cutSwitch) int { return cmp.Compare(a.at, b.at) })
	return switches
}

// outcome is what became of a step's requests.
type outcome struct {
	got        verdicts
	unexpected *decision // the first that the step did not expect
	last       decision
}

// verdicts counts requests by what became of them.
type verdicts struct {
	Allow int `json:"allow"`
	Deny  int `json:"deny"`
}

func (o *outcome) add(step *configs.TestStep, d limit.Decision, r request) {
	switch {
	case step.Act != configs.ActAsk:
	case d.Allowed:
		o.got.Allow++
	default:
		o.got.Deny++
	}
	o.last = decision{Decision: d, index: r.index + 1, at: r.at}
	if o.unexpected == nil && (o.got.Allow > step.Allow || o.got.Deny > step.Deny) {
		first := o.last
		o.unexpected = &first
	}
}

// difference is one thing that came out otherwise than expected.
type difference struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// differences compares the outcome with what the step expects, and gives the
// decision that shows why.
func (o *outcome) differences(step *configs.TestStep) (found []difference, why *decision) {
	note := func(what, want, got string) {
		if want != got {
			found = append(found, difference{what, want, got})
		}
	}
	note("allow", strconv.Itoa(step.Allow), strconv.Itoa(o.got.Allow))
	note("deny", strconv.Itoa(step.Deny), strconv.Itoa(o.got.Deny))
	want, d := &step.Last, &o.last
	for _, word := range []struct {
		what string
		want *string
		got  string
	}{{"rule", want.Rule, d.rule()}, {"policy", want.Policy, d.policy()}, {"zone", want.Zone, d.Zone.String()}} {
		if word.want != nil {
			note(word.what, *word.want, word.got)
		}
	}
	if want.Remaining != nil {
		note("remaining", strconv.FormatUint(*want.Remaining, 10), strconv.FormatUint(d.Remaining, 10))
	}
	if want.RetryAfter != nil {
		note("retry_after", want.RetryAfter.String(), roundLike(*want.RetryAfter, d.RetryAfter).String())
	}
	if want.Delay != nil {
		note("delay", want.Delay.String(), roundLike(time.Millisecond, d.Delay).String())
	}
	if want.NearLimit != nil {
		note("near_limit", strconv.FormatBool(*want.NearLimit), strconv.FormatBool(d.Near))
	}
	if why = o.unexpected; why == nil {
		why = d
	}
	return found, why
}

// roundLike rounds d up as coarsely as want is given: to whole seconds, as the
// Retry-After header has it, or to milliseconds.
func roundLike(want, d time.Duration) time.Duration {
	unit := time.Second
	if want%time.Second != 0 {
		unit = time.Millisecond
	}
	if rest := d % unit; rest > 0 {
		d += unit - rest
	}
	return d
}

// decision is one verdict with its place in the step.
type decision struct {
	limit.Decision
	index int // from 1
	at    time.Duration
}

func (d *decision) rule() string {
	if d.Rule == nil {
		return configs.NoRule
	}
	return d.Rule.Name
}

func (d *decision) policy() string {
	if d.Rate == nil {
		return configs.NoRule
	}
	return d.Rate.Policy
}

func (d *decision) verdict() string {
	if d.Allowed {
		return "allowed"
	}
	return "denied"
}

// basis says what the edge decided from.
func (d *decision) basis() string {
	heard := "no answer about it yet"
	if d.Basis.Age >= 0 {
		heard = fmt.Sprintf("last answer %v before, %s", d.Basis.Age.Round(time.Millisecond), count(d.Basis.Regions, "region"))
	}
	return fmt.Sprintf("%d counted here, %d by others; %s", d.Basis.Local, d.Basis.Merged, heard)
}
