package regional

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What is kept of what edges say that they decided. One who means ill can have his PoP fill three quarters of it.
const (
	mostTellers  = 4096   // edges
	mostToldOf   = 100000 // rules, each once for each edge
	mostDecided  = 4096   // rules
	partOfPop    = 0.75
	tellsLast    = time.Minute                           // for so long an edge that is silent counts as telling
	tellsForgot  = time.Hour                             // after so long what it told last is forgotten, but that it was counted
	mostCounted  = 8192                                  // lives of edges of which that is known
	tellerAnew   = 3 * deltasync.TellEvery * time.Second // for so long silent it may have a clock that was set back
	decidedEvery = 10 * time.Second                      // marks for the last minute
	decidedMarks = 7
)

// ruleName is a rule of a namespace.
type ruleName struct{ namespace, rule string }

// Counted is what was decided by a rule, and what its candidate was compared with: admitted (0) or denied (1)
// by the limits of the rule, and of the candidate.
type Counted struct {
	Decided deltasync.Decisions `json:"decided"`
	Trials  [2][2]uint64        `json:"trials"`
}

// Add adds what another counted.
func (c *Counted) Add(other *Counted) {
	c.each(other, func(n *uint64, more uint64) { *n += more })
}

func (c *Counted) each(other *Counted, do func(n *uint64, other uint64)) {
	c.Decided.Each(&other.Decided, do)
	for i := range c.Trials {
		for j := range c.Trials[i] {
			do(&c.Trials[i][j], other.Trials[i][j])
		}
	}
}

// less is c without what another counted; fell: it counted more, somewhere.
func (c Counted) less(other *Counted) (rest Counted, fell bool) {
	c.each(other, func(n *uint64, less uint64) {
		fell = fell || *n < less
		*n -= min(*n, less)
	})
	return c, fell
}

// decided is what the region's edges say that they decided. All aggregators of the region hear them.
type decided struct {
	mutes *deltasync.Mutes

	mu      sync.Mutex // guards what follows
	bus     deltasync.Bus
	since   time.Time                    // it is listened; zero: it is not
	known   map[string]map[string]uint64 // versions of the rules in force, by namespace and name; nil: no rules are known
	edges   map[[2]string]*teller        // by PoP and name
	pops    map[string]int               // edges of each
	entries int                          // rules of all edges
	sums    map[ruleName]*decidedSum
	made    map[string]int          // sums that a PoP was the first to tell of
	counted map[counted]bool        // lives of edges that were forgotten
	marked  [decidedMarks]time.Time // the newest at hand
	hand    int
	refused map[string]uint64
}

// counted names a life of an edge.
type counted struct {
	pop, name   string
	incarnation uint64
}

// teller is an edge, as it told last.
type teller struct {
	incarnation, seq uint64
	heard            time.Time
	whole            bool // it told all that there was
	forgotten        bool // and comes back: what it tells first was counted, or nobody knows
	rules            map[ruleName]toldLast
}

type toldLast struct {
	version uint64
	Counted
	at           time.Time
	keys, denied deltasync.Sketch
}

// decidedSum is of all edges of the region, since they started.
type decidedSum struct {
	pop     string // who told of it first
	heard   time.Time
	total   Counted
	version uint64  // the newest
	since   Counted // that version is in force
	marks   [decidedMarks]Counted
}

func newDecided() *decided {
	return &decided{
		mutes: deltasync.NewMutes(), edges: map[[2]string]*teller{}, pops: map[string]int{}, sums: map[ruleName]*decidedSum{},
		made: map[string]int{}, counted: map[counted]bool{}, refused: map[string]uint64{},
	}
}

// setRules has it take nothing else than of these rules, nor of versions that are not known yet.
func (d *decided) setRules(set *limit.Set) {
	known := map[string]map[string]uint64{}
	for _, name := range set.Names() {
		known[name] = map[string]uint64{"": set.Namespace(name).Version, others: set.Namespace(name).Version}
	}
	for _, r := range set.Rules() {
		if rules := known[r.Namespace]; rules != nil && r.Live == nil {
			rules[r.Name] = rules[""]
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = known
}

// Reasons for which what an edge told is not taken.
var (
	errToldMuted  = errors.New("muted")
	errToldOlder  = errors.New("older")
	errToldRoom   = errors.New("room")
	errToldBad    = errors.New("malformed")
	errToldSender = errors.New("sender")
	toldReasons   = []error{errToldMuted, errToldOlder, errToldRoom, errToldBad, errToldSender}
)

// HearTell takes in what an edge says that it decided. The error says why it did not; it is nil
// for what came before.
func (a *Aggregator) HearTell(now time.Time, subject string, payload []byte) error {
	d := a.decided
	err := d.hear(now, a.cfg.Region, subject, payload)
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, reason := range toldReasons {
			if errors.Is(err, reason) {
				d.refused[reason.Error()]++
				break
			}
		}
	}
	return err
}

func (d *decided) hear(now time.Time, region, subject string, payload []byte) error {
	from, err := deltasync.ParseTellSubject(subject)
	if err != nil || from.Region != region {
		return fmt.Errorf("%w: %.200q", errToldSender, subject)
	}
	t := now.UnixNano()
	if why := d.mutes.Muted(t, from); why != nil {
		return fmt.Errorf("%w: %w", errToldMuted, why)
	}
	tell, err := deltasync.ReadTell(payload)
	if err != nil {
		return fmt.Errorf("%w: %w", errToldBad, d.mutes.Refuse(t, from, err))
	}
	d.mutes.Good(t, from)
	d.mu.Lock()
	defer d.mu.Unlock()
	e, err := d.teller(now, from, tell)
	if err != nil {
		return err
	}
	if tell.Seq <= e.seq {
		return nil
	}
	e.seq, e.heard = tell.Seq, now
	full, ahead := false, false
	for i := range tell.Rules {
		told := &tell.Rules[i]
		ahead = ahead || d.ahead(told)
		full = !d.take(now, from.Pop, e, told) || full
	}
	e.forgotten = e.forgotten && !tell.Whole
	e.whole = (e.whole || tell.Whole) && !full && !ahead
	if !full {
		return nil
	}
	return fmt.Errorf("%w: of edge %s/%s there is none for all rules", errToldRoom, from.Pop, from.Name)
}

// teller is the edge that tells; d.mu is held.
func (d *decided) teller(now time.Time, from deltasync.Sender, tell *deltasync.Tell) (*teller, error) {
	name := [2]string{from.Pop, from.Name}
	e := d.edges[name]
	switch {
	case e == nil:
		if len(d.edges) >= mostTellers {
			d.forget(now, tellsLast)
		}
		if len(d.edges) >= mostTellers || d.pops[from.Pop] >= partOfPop*mostTellers {
			return nil, fmt.Errorf("%w: there are %d edges, %d of them of PoP %s", errToldRoom, len(d.edges), d.pops[from.Pop], from.Pop)
		}
		e = &teller{rules: map[ruleName]toldLast{}, forgotten: d.counted[counted{from.Pop, from.Name, tell.Incarnation}]}
		d.edges[name] = e
		d.pops[from.Pop]++
	case tell.Incarnation == e.incarnation:
		return e, nil
	case tell.Incarnation < e.incarnation && now.Sub(e.heard) < tellerAnew:
		return nil, fmt.Errorf("%w: edge %s/%s tells of life %d, after %d", errToldOlder, from.Pop, from.Name, tell.Incarnation, e.incarnation)
	default:
		d.entries -= len(e.rules)
		*e = teller{rules: map[ruleName]toldLast{}}
	}
	e.incarnation = tell.Incarnation
	return e, nil
}

// ahead says that an edge has newer rules than are known here: it tells of them again. d.mu is held.
func (d *decided) ahead(told *deltasync.Told) bool {
	rules := d.known[told.Namespace]
	return rules != nil && told.Version > rules[""]
}

// take adds what is new of a rule to its sum; false: there is no room. d.mu is held.
func (d *decided) take(now time.Time, pop string, e *teller, told *deltasync.Told) bool {
	if d.known != nil {
		if _, known := d.known[told.Namespace][told.Rule]; !known || d.ahead(told) {
			return true // not yet, or not any more
		}
	}
	name := ruleName{told.Namespace, told.Rule}
	last, known := e.rules[name]
	if !known && (d.entries >= mostToldOf || float64(len(e.rules)) >= partOfPop*mostDecided) {
		return false
	}
	sum := d.sums[name]
	if sum == nil {
		if len(d.sums) >= mostDecided {
			d.makeRoom(now)
		}
		if len(d.sums) >= mostDecided || float64(d.made[pop]) >= partOfPop*mostDecided {
			return false
		}
		sum = &decidedSum{pop: pop}
		d.sums[name] = sum
		d.made[pop]++
	}
	if !known {
		d.entries++
	}
	whole := Counted{told.Decided, told.Trials}
	more, fell := whole.less(&last.Counted)
	if fell || last.version != told.Version {
		more = whole // it has begun anew
	}
	e.rules[name] = toldLast{told.Version, whole, now, deltasync.SketchOf(told.Keys), deltasync.SketchOf(told.KeysDenied)}
	sum.heard = now
	if e.forgotten {
		return true
	}
	if told.Version > sum.version {
		sum.version, sum.since = told.Version, Counted{}
	}
	if told.Version == sum.version {
		sum.since.Add(&more)
	}
	sum.total.Add(&more)
	if !known { // nobody knows when that was
		for i := range sum.marks {
			sum.marks[i].Add(&more)
		}
	}
	return true
}

// turn has time pass; it is to be called each second.
func (d *decided) turn(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.marked[d.hand]) < decidedEvery {
		return
	}
	d.hand = (d.hand + 1) % decidedMarks
	d.marked[d.hand] = now
	for _, sum := range d.sums {
		sum.marks[d.hand] = sum.total
	}
	d.forget(now, tellsForgot)
}

// forget forgets edges that were silent for so long, but that they were counted; d.mu is held.
func (d *decided) forget(now time.Time, silent time.Duration) {
	for name, e := range d.edges {
		if now.Sub(e.heard) < silent {
			continue
		}
		if len(d.counted) >= mostCounted {
			for c := range d.counted { // any
				delete(d.counted, c)
				break
			}
		}
		d.counted[counted{name[0], name[1], e.incarnation}] = true
		d.entries -= len(e.rules)
		delete(d.edges, name)
		if d.pops[name[0]]--; d.pops[name[0]] == 0 {
			delete(d.pops, name[0])
		}
	}
}

// makeRoom forgets rules of which nobody has told for long; d.mu is held.
func (d *decided) makeRoom(now time.Time) {
	for name, sum := range d.sums {
		if now.Sub(sum.heard) < tellsForgot {
			continue
		}
		delete(d.sums, name)
		if d.made[sum.pop]--; d.made[sum.pop] == 0 {
			delete(d.made, sum.pop)
		}
	}
}

// tellers is how many edges told of late, and how many refusals there were, by reason.
func (d *decided) tellers(now time.Time) (edges int, refused map[string]uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.edges {
		if now.Sub(e.heard) < tellsLast {
			edges++
		}
	}
	return edges, maps.Clone(d.refused)
}

// RuleDecisions is what was decided by a rule in a region.
type RuleDecisions struct {
	Namespace string `json:"namespace"`
	Rule      string `json:"rule"`         // "": requests to which none applied
	Edges     int    `json:"edges"`        // that told of it within the last minute
	Behind    int    `json:"edges_behind"` // of them, those that have it by an older version
	Counted          // since the edges that told have started
	// Since is what was counted since a version of the rules is in force at each: the newest of which some edge
	// told. It was made so many microseconds after 1970; 0: they are kept in files.
	Version uint64  `json:"version"`
	Since   Counted `json:"since_version"`
	// Minute is what was counted in the last minute, or in as many seconds of it as somebody listened.
	Minute  Counted `json:"minute"`
	Seconds float64 `json:"minute_seconds"`
	// Keys and KeysDenied are how many keys were seen and denied in about the last minute, by estimate, and of what
	// (deltasync.Sketch): so those of regions are added.
	Keys         uint64 `json:"keys"`
	KeysDenied   uint64 `json:"keys_denied"`
	KeysOf       []byte `json:"keys_sketch,omitempty"`
	KeysDeniedOf []byte `json:"keys_denied_sketch,omitempty"`
}

// RegionDecisions is what the edges of a region say that they decided.
type RegionDecisions struct {
	Region   string          `json:"region"`
	Heard    bool            `json:"heard"`            // false: no aggregator of the region answered
	Edges    int             `json:"edges"`            // that told within the last minute
	Partial  int             `json:"partial"`          // of them, those that are yet to tell all
	Silent   int             `json:"silent"`           // others, that told within the last hour
	Listened float64         `json:"listened_seconds"` // that long the aggregator that answers has listened
	Rules    []RuleDecisions `json:"rules"`            // in order
	LeftOut  int             `json:"left_out"`         // rules for which there is no room
}

// Complete says that all edges of the region were heard, as far as anybody knows.
func (r *RegionDecisions) Complete() bool {
	return r.Heard && r.Partial == 0 && r.Listened >= (deltasync.TellEvery*3/2*time.Second).Seconds()
}

// mostRulesTold is how many rules are told of at a time.
const mostRulesTold = 1000

// Decided is what the region's edges say that they decided, by one rule or by all (""), in a
// namespace or in all.
func (a *Aggregator) Decided(now time.Time, namespace, rule string) RegionDecisions {
	d := a.decided
	d.mu.Lock()
	defer d.mu.Unlock()
	out := RegionDecisions{Region: a.cfg.Region, Heard: true, Rules: []RuleDecisions{}}
	if !d.since.IsZero() {
		out.Listened = now.Sub(d.since).Seconds()
	}
	edges, behind, keys := map[ruleName]int{}, map[ruleName]int{}, map[ruleName]*[2]deltasync.Sketch{}
	for _, e := range d.edges {
		if now.Sub(e.heard) >= tellsLast {
			out.Silent++
			continue
		}
		out.Edges++
		if !e.whole {
			out.Partial++
		}
		for name, last := range e.rules {
			edges[name]++
			if sum := d.sums[name]; sum != nil && last.version < sum.version {
				behind[name]++
			}
			if now.Sub(last.at) >= tellsLast || namespace != "" && name.namespace != namespace || rule != "" && name.rule != rule {
				continue
			}
			if keys[name] == nil {
				keys[name] = new([2]deltasync.Sketch)
			}
			keys[name][0].Merge(&last.keys)
			keys[name][1].Merge(&last.denied)
		}
	}
	oldest := d.hand
	for i := range decidedMarks {
		if at := (d.hand + 1 + i) % decidedMarks; !d.marked[at].IsZero() {
			oldest = at
			break
		}
	}
	for name, sum := range d.sums {
		if namespace != "" && name.namespace != namespace || rule != "" && name.rule != rule {
			continue
		}
		r := RuleDecisions{Namespace: name.namespace, Rule: name.rule, Edges: edges[name], Behind: behind[name], Counted: sum.total, Version: sum.version, Since: sum.since}
		if at := d.marked[oldest]; !at.IsZero() {
			r.Minute, _ = sum.total.less(&sum.marks[oldest])
			r.Seconds = max(now.Sub(at).Seconds(), 1)
		}
		if k := keys[name]; k != nil {
			r.Keys, r.KeysDenied = uint64(k[0].Estimate()+0.5), uint64(k[1].Estimate()+0.5)
			r.KeysOf, r.KeysDeniedOf = k[0].Bytes(), k[1].Bytes()
		}
		out.Rules = append(out.Rules, r)
	}
	if more := len(out.Rules) - mostRulesTold; more > 0 { // of those of which least is decided
		slices.SortFunc(out.Rules, func(a, b RuleDecisions) int { return cmp.Compare(b.Decided.All(), a.Decided.All()) })
		out.Rules, out.LeftOut = out.Rules[:mostRulesTold], more
	}
	slices.SortFunc(out.Rules, func(a, b RuleDecisions) int {
		return slices.Compare([]string{a.Namespace, a.Rule}, []string{b.Namespace, b.Rule})
	})
	return out
}
