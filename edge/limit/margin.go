package limit

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// MarginSpec is how far over the limit a rule admits.
type MarginSpec struct {
	SoftPercent float64 // 10: admits up to 110 % and marks what is above 100 %
	Elastic     ElasticSpec
}

// ElasticSpec is how far over the limit a rule admits while there is room
// elsewhere: by a signal, or by what another rule of the namespace leaves
// unused. One of them is named.
type ElasticSpec struct {
	UpToPercent float64 // 50: up to 150 %; 0: no elastic margin
	While       string  // "capacity.api < 70%"
	Parent      string  // the name of a rule
}

// Elastic is a compiled elastic margin: when it is open, the rule's rates admit
// up to the ceilings of their Open.
type Elastic struct {
	Signal string  // the name of a capacity; "": it is the Parent that counts
	Below  float64 // open while less than this part of the capacity is in use
	Parent *Rule   // open as far as the limits of this rule have room
	// Lent are rates that count what was borrowed of the Parent, beside those of the rule, in
	// the order of these, and deny nothing: what a parent lent, and no more, it is given back.
	// What was borrowed of a rate that Forgets is forgotten after what it found there, which
	// was not, and until then the rule has so much more room of its own. A bucket forgets, as
	// it drains, what was borrowed last. Nil beside gaps, and beside buckets with turns, as
	// nobody knows which of their requests borrowed.
	Lent []*Rate
	// Bound says that the rule's key tells the parent's, so that what its counters were lent is of
	// one counter of each of the parent's rates.
	Bound bool
}

// signalForm is the name of a capacity.
var signalForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// ValidSignal says what is wrong with the name of a capacity, as rules read one.
func ValidSignal(name string) error {
	if !signalForm.MatchString(name) {
		return fmt.Errorf(`%.64q is no name of a capacity (letters, digits, "_", "." and "-", at most 63, such as "api")`, name)
	}
	return nil
}

// CapacityBody is how much of a capacity is in use, as it is stored.
func CapacityBody(used float64) []byte {
	return fmt.Appendf(nil, `{"used":%s}`, strconv.FormatFloat(used, 'g', -1, 64))
}

// ReadCapacityBody is CapacityBody the other way.
func ReadCapacityBody(body []byte) (used float64, err error) {
	var b struct {
		Used *float64 `json:"used"`
	}
	if err := json.Unmarshal(body, &b); err != nil || b.Used == nil || *b.Used < 0 {
		return 0, errors.New("capacity: it has no part in use")
	}
	return *b.Used, nil
}

var whileForm = regexp.MustCompile(`^capacity\.([A-Za-z0-9][A-Za-z0-9_.-]{0,62})[ ]*<[ ]*([0-9]{1,3}(?:\.[0-9]{1,6})?)%$`)

// maxMargin is the largest margin, in percent.
const maxMargin = 1000

func isMargin(percent float64) bool { return percent >= 0 && percent <= maxMargin } // nor NaN

// widest is the larger of the margins, those that make no sense left out.
func (m *MarginSpec) widest() float64 {
	widest := 0.0
	for _, p := range []float64{m.SoftPercent, m.Elastic.UpToPercent} {
		if isMargin(p) {
			widest = max(widest, p)
		}
	}
	return widest
}

// margins checks a rule's margins, and gives its rates those that may open.
func (c *compiler) margins(path string, spec *MarginSpec, r *Rule) {
	if !isMargin(spec.SoftPercent) {
		c.problem(path+".soft", "E134", "0% to 1000%", "%v%% is out of range", spec.SoftPercent)
	}
	e, path := &spec.Elastic, path+".elastic"
	if *e == (ElasticSpec{}) {
		return
	}
	switch {
	case !isMargin(e.UpToPercent) || e.UpToPercent == 0:
		c.problem(path+".up_to", "E201", "above 0% to 1000%, such as 50%", "%v%% is out of range", e.UpToPercent)
	case e.UpToPercent <= spec.SoftPercent:
		c.problem(path+".up_to", "E201", fmt.Sprintf("more than %v%%", spec.SoftPercent), "up to %v%% opens nothing beyond the soft margin", e.UpToPercent)
	}
	r.Elastic = &Elastic{}
	switch {
	case e.While == "" && e.Parent == "":
		c.problem(path, "E202", `while: capacity.api < 70%, or parent: RULE`, "an elastic margin needs a signal or a parent that says when there is room")
	case e.While != "" && e.Parent != "":
		c.problem(path+".parent", "E203", "drop one", "an elastic margin opens by a signal or by a parent, not by both")
	case e.While != "":
		c.signal(path+".while", e.While, r.Elastic)
	}
	for _, rate := range r.Rates {
		if !rate.PerRequest && isMargin(e.UpToPercent) {
			rate.Open = rate.upTo(e.UpToPercent)
			rate.apportion() // both count in the same counters, up to the same level
		}
	}
}

// signal reads "capacity.api < 70%".
func (c *compiler) signal(path, text string, e *Elastic) {
	const hint = "such as capacity.api < 70%"
	m := whileForm.FindStringSubmatch(text)
	if m == nil {
		c.problem(path, "E204", hint, "%.80q is not a capacity with a bound on it", text)
		return
	}
	percent, err := strconv.ParseFloat(m[2], 64)
	if err != nil || percent <= 0 || percent > 100 {
		c.problem(path, "E204", hint, "%s%% is not a part of a capacity", m[2])
		return
	}
	e.Signal, e.Below = m[1], percent/100
}

// parents finds the rules that elastic margins name. from is the Index of the
// document's first rule; first are the places of the names in the document.
func (c *compiler) parents(doc *Document, from int, first map[string]int) {
	rules := c.set.rules[from:]
	for i := range doc.Rules {
		name := doc.Rules[i].Margin.Elastic.Parent
		if name == "" || rules[i].Elastic == nil || doc.Rules[i].Margin.Elastic.While != "" {
			continue
		}
		path := fmt.Sprintf("rules[%d].margin.elastic.parent", i)
		switch k, ok := first[name]; {
		case !ok:
			c.problem(path, "E205", "the name of another rule of this namespace", "there is no rule %q", name)
		case k == i:
			c.problem(path, "E206", "another rule, whose limit this one may borrow from", "%q is this rule itself", name)
		case len(rules[k].Rates) == 0:
			c.problem(path, "E205", "a rule with rates", "%q has no limit to borrow from", name)
		case doc.Rules[k].CountWhen != "":
			c.problem(path, "E205", "a rule without count_when", "%q counts certain responses only: what is lent would not be charged to it, and it would lend without end", name)
		case doc.Rules[i].CountWhen != "" && slices.ContainsFunc(rules[k].Rates, func(r *Rate) bool { return r.Consistency == Strict }):
			c.problem(path, "E224", "a parent that is not strict", "what this rule borrows is charged after the response, and %q is strict: its limit would be over by then", name)
		case doc.Rules[i].CountWhen != "" && slices.ContainsFunc(rules[k].Rates, func(r *Rate) bool { return r.Lease > 0 }):
			c.problem(path, "E219", "a parent without concurrency limits", "what this rule borrows is charged after the response, and %q has slots: one would be taken when the request is over, and nobody gives it back", name)
		default:
			rules[i].Elastic.Parent, rules[i].Elastic.Bound = rules[k], rules[i].tellsKey(rules[k])
			rules[i].Elastic.Lent = lentBeside(rules[i], rules[k])
		}
	}
	known := make([]bool, len(rules)) // to lead to no circle, or to one that was told
	for i := range rules {
		seen := map[int]bool{}
		for k := i; !known[k]; {
			if seen[k] {
				c.problem(fmt.Sprintf("rules[%d].margin.elastic.parent", k), "E206", "let one of them have no parent", "%q borrows from itself, by way of its parent %q", rules[k].Name, rules[k].Elastic.Parent.Name)
				break
			}
			seen[k] = true
			if rules[k].Elastic == nil || rules[k].Elastic.Parent == nil {
				break
			}
			k = rules[k].Elastic.Parent.Index - from
		}
		for k := range seen {
			known[k] = true
		}
	}
}

// lentBeside are the rates of what was borrowed beside others; see Elastic.
func lentBeside(rule, parent *Rule) []*Rate {
	lent := make([]*Rate, len(rule.Rates))
	for i, r := range rule.Rates {
		if r.Open == nil || r.PerRequest || r.HasTurns(rule) {
			continue
		}
		lent[i] = r.lent(max(1, r.Open.Ceiling-r.Limit), parent)
	}
	return lent
}

// tellsKey says that whoever has a key of the rule has one of another's, and always the same.
func (r *Rule) tellsKey(other *Rule) bool {
	return !slices.ContainsFunc(other.key, func(of keyPart) bool {
		return !slices.ContainsFunc(r.key, func(p keyPart) bool {
			return p.ip == of.ip && p.v4 == of.v4 && p.v6 == of.v6 && slices.Equal(p.slots, of.slots)
		})
	})
}

// Forgets says that what the rate counts leaves it by and by: what a fixed window counts it
// counts to its end, and slots are held until they are released.
func (r *Rate) Forgets() bool {
	switch r.Algorithm {
	case SlidingWindow, SubWindows, SlidingLog:
		return true
	}
	return r.Bucket()
}

// leastLent is how long at the least it is known what a bucket was lent. What it drains of
// that is taken off sooner: by each node that sees it. What several have taken off at once is
// taken off too much, of the slices that it was lent in, and those shall be over by then:
// nothing drains of what was lent until what was there before has.
const leastLent = time.Hour

// lent is a rate that counts in the same windows what a parent lent, of which the room is that of
// the margin. Beside a window that slides all hear at once of what is
// lent, or came back, as of the rate that is at its limit: by what one has heard of both there is
// room of its own beside the loans.
func (r *Rate) lent(margin uint64, parent *Rule) *Rate {
	lent := &Rate{
		Name: r.Name, Policy: r.Policy, Limit: margin, Window: r.Window, Width: r.Width, Slices: r.Slices, Span: r.Span, Hold: r.Hold,
		Period: r.Period, Zone: r.Zone, Lease: r.Lease,
		Algorithm: r.Algorithm, Oldest: r.Oldest, Round: RoundDown, Scope: r.Scope, Consistency: Loose, OnPartition: PartitionOpen, Space: r.Space, Lent: true,
	}
	if r.Forgets() && !r.Bucket() {
		lent.Eager = 1
	}
	switch {
	case r.Algorithm == FirstHit: // it has no hit of its own to begin with
		lent.Algorithm, lent.Oldest, lent.Span = SubWindows, OldestFull, lent.Slices
	case r.Bucket():
		per := min(max(leastLent, 2*r.Window.Round(time.Minute)), MaxWindow)
		lent.Algorithm, lent.Oldest, lent.Window = SubWindows, OldestFull, per
		n := 20 // twice as many as long as a slice is longer than a full bucket takes to drain
		for n < 640 && per/time.Duration(n) > r.Window {
			n *= 2
		}
		lent.Slices, lent.Width = Narrow(per, n)
		lent.Span, lent.Hold = lent.Slices, lent.Width+time.Second
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "lent %d %v %v", r.Lineage, lent.Window, lent.Width) // a hash never fails
	for _, lender := range parent.Rates {
		_, _ = fmt.Fprintf(h, " %d", lender.Lineage)
	}
	lent.Generation, lent.Lineage, lent.Base = h.Sum64(), h.Sum64(), lent.Limit
	lent.apportion()
	return lent
}

// upTo is the rate with a margin that wide.
func (r *Rate) upTo(percent float64) *Rate {
	open := *r
	open.Open = nil
	open.divide(func(p *parts) { p.margin = percentOf(percent) })
	return &open
}

// withMargin is a limit with a margin.
func withMargin(limit uint64, percent float64) uint64 { return percentOf(percent).on(limit) }

// Drop says what becomes of requests in a margin.
type Drop uint8

const (
	DropHard          Drop = iota + 1 // nothing, up to the ceiling; beyond it all are denied
	DropProbabilistic                 // they are dropped at random, the more the nearer the ceiling, of several rates by each: see DropShare
)

var dropNames = map[string]Drop{"hard": DropHard, "probabilistic": DropProbabilistic}

func (d Drop) String() string { return nameOf(dropNames, d) }

// DropShare is the part of requests to be dropped at a level, where a rule
// drops at random: none up to the limit, all at the ceiling, and in between in
// proportion, so that clients feel the limit before they run into the ceiling.
func (r *Rate) DropShare(l Level) float64 {
	used := r.Rounded(l)
	switch {
	case used >= r.Ceiling:
		return 1
	case used <= r.Limit:
		return 0
	}
	return math.Min(1, float64(used-r.Limit)/float64(r.Ceiling-r.Limit))
}
