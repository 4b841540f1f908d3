package limit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

func (c *compiler) rate(path string, rule *RuleSpec, spec *RateSpec) *Rate {
	r := &Rate{Name: cmp.Or(spec.Name, WindowName(spec.Per)), Limit: spec.Limit, Window: spec.Per, limits: &limits{}}
	if spec.Name != "" && !nameForm.MatchString(spec.Name) {
		c.problem(path+".name", "E141", `such as "minute"`+nameLetters, "%.80q is not a name", spec.Name)
	}
	calendar := spec.Period != "" || !slices.Contains(plainAligns, spec.Align)
	fallback := word{"defaults.algorithm", c.doc.Defaults.Algorithm}
	if calendar || spec.Align == firstHit {
		fallback = word{"", FixedWindow.String()}
	}
	r.Algorithm = enum(c, algorithmNames, word{path + ".algorithm", spec.Algorithm}, fallback, word{"", "sub_windows"})
	if r.Algorithm == FixedWindow && spec.Align == firstHit && cmp.Or(spec.Consistency, rule.Consistency, c.doc.Defaults.Consistency) == "strict" {
		c.problem(path+".align", "E158", "align: epoch", "a window from the first hit cannot be strict: edges agree on where it begins only afterwards")
	} else {
		c.consistency(word{path + ".consistency", spec.Consistency})
		r.Consistency = consistencyNames[cmp.Or(spec.Consistency, rule.Consistency, c.doc.Defaults.Consistency, Adaptive.String())] // what is no word of it is told where it stands
	}
	r.Scope = enum(c, scopeNames, word{path + ".scope", spec.Scope}, word{"defaults.scope", c.doc.Defaults.Scope}, word{"", "global"})
	if r.Algorithm != 0 { // else what belongs to it is not known
		c.foreign(path, spec, r.Algorithm)
	}
	switch r.Algorithm {
	case TokenBucket, LeakyBucket:
		c.bucket(path, rule, spec, r)
	case Concurrency:
		c.concurrency(path, rule, spec, r)
	case 0:
		if spec.Per != 0 || calendar {
			c.window(path, rule, spec, r, calendar)
		}
	default:
		c.window(path, rule, spec, r, calendar)
	}
	c.dials(path, spec, r)
	c.onPartition(path, rule, spec, r)
	c.strictWait(path, spec, r)
	r.Policy = rule.Name + "." + r.Name
	r.Generation, r.Base, r.Space = generation(rule, c.doc.Namespace, r, c.doc.Keys), r.Limit, spaceOf(c.doc.Namespace)
	flat := *r
	flat.Width = 0
	r.Lineage = generation(rule, c.doc.Namespace, &flat, c.doc.Keys)
	return r
}

// spaceOf is the hash of a namespace's name that Rate.Space is (FNV-1a, folded).
func spaceOf(namespace string) uint8 {
	h := uint32(2166136261)
	for i := range len(namespace) {
		h = (h ^ uint32(namespace[i])) * 16777619
	}
	return uint8(h>>24 ^ h>>16 ^ h>>8 ^ h)
}

// foreignWords are the words of rates that not every algorithm has.
var foreignWords = []struct {
	name  string
	given func(*RateSpec) bool
	of    []Algorithm
}{
	{"limit", func(s *RateSpec) bool { return s.Limit != 0 }, append(windows, Concurrency)},
	{"per", func(s *RateSpec) bool { return s.Per != 0 || s.Period != "" }, windows},
	{"align", func(s *RateSpec) bool { return s.Align != "" }, []Algorithm{FixedWindow}},
	{"slices", func(s *RateSpec) bool { return s.Slices != 0 }, []Algorithm{SubWindows}},
	{"oldest", func(s *RateSpec) bool { return s.Oldest != "" }, []Algorithm{SubWindows}},
	{"round", func(s *RateSpec) bool { return s.Round != "" }, windows},
	{"capacity", func(s *RateSpec) bool { return s.Capacity != 0 }, []Algorithm{TokenBucket, LeakyBucket}},
	{"refill", func(s *RateSpec) bool { return s.Refill != Flow{} }, []Algorithm{TokenBucket}},
	{"initial", func(s *RateSpec) bool { return s.Initial != 0 }, []Algorithm{TokenBucket}},
	{"outflow", func(s *RateSpec) bool { return s.Outflow != Flow{} }, []Algorithm{LeakyBucket}},
	{"queue", func(s *RateSpec) bool { return s.Queue }, []Algorithm{LeakyBucket}},
	{"lease", func(s *RateSpec) bool { return s.Lease != 0 }, []Algorithm{Concurrency}},
	{"count_denied", func(s *RateSpec) bool { return s.CountDenied }, []Algorithm{SlidingLog}},
	{"max_wait", func(s *RateSpec) bool { return s.MaxWait != 0 }, []Algorithm{LeakyBucket}},
}

var windows = []Algorithm{FixedWindow, SlidingWindow, SubWindows, SlidingLog}

// foreign refuses the words of other algorithms.
func (c *compiler) foreign(path string, spec *RateSpec, a Algorithm) {
	for _, w := range foreignWords {
		if !w.given(spec) || slices.Contains(w.of, a) {
			continue
		}
		owners := make([]string, len(w.of))
		for i, o := range w.of {
			owners[i] = o.String()
		}
		c.problem(path+"."+w.name, "E147", "leave it out, or change the algorithm", "%s belongs to %s, not to %s", w.name, strings.Join(owners, ", "), a)
	}
}

// bucket reads a token or leaky bucket.
func (c *compiler) bucket(path string, rule *RuleSpec, spec *RateSpec, r *Rate) {
	const example = "such as: {algorithm: %s, capacity: 10, %s: 5/s}"
	flow, flowWord := spec.Refill, "refill"
	if r.Algorithm == LeakyBucket {
		flow, flowWord = spec.Outflow, "outflow"
	}
	r.Name = cmp.Or(spec.Name, r.Algorithm.String())
	r.Drain, r.Slices, r.Round = Drain{Refill: 1, Per: time.Second}, 1, RoundNone
	r.Window, r.Width, r.Span = time.Second, time.Second, 1
	capacity, given := spec.Capacity, true
	if capacity == 0 {
		given = false
		c.problem(path+".capacity", "E153", fmt.Sprintf(example, r.Algorithm, flowWord), "a %s needs a capacity", r.Algorithm)
	}
	if flow == (Flow{}) {
		given = false
		c.problem(path+"."+flowWord, "E153", fmt.Sprintf(example, r.Algorithm, flowWord), "a %s needs %s: how fast", r.Algorithm, flowWord)
	} else if flow.Units == 0 || flow.Units > MaxUnits || flow.Per <= 0 || flow.Per > MaxWindow {
		given = false
		c.problem(path+"."+flowWord, "E154", "1 to 10^13 units in at most 366d, such as 5/s", "%d in %v is out of range", flow.Units, flow.Per)
	}
	floor := uint64(0)
	if spec.Initial != 0 && spec.Initial < capacity {
		c.problem(path+".initial", "E155", "the capacity is what it starts with; initial is more, once", "initial, %d, is less than the capacity, %d", spec.Initial, capacity)
	} else if spec.Initial != 0 {
		floor = spec.Initial - capacity
	}
	if spec.MaxWait != 0 && !spec.Queue {
		c.problem(path+".max_wait", "E156", "queue: true", "only a queue makes requests wait")
	} else if spec.MaxWait < 0 || spec.MaxWait > MaxWindow {
		c.problem(path+".max_wait", "E156", "such as 2s", "a wait of %v is out of range", spec.MaxWait)
	}
	if capacity > MaxUnits || crdt.SatAdd(withMargin(capacity, rule.Margin.widest()), floor) > MaxUnits {
		given = false
		c.problem(path+".capacity", "E143", "count in a larger unit, such as kilobytes", "%d, with its margin and initial, is above 10^13", capacity)
	}
	if !given {
		return
	}
	drains := func(units uint64) uint64 { return product(units, uint64(flow.Per)).overUp(flow.Units) }
	brim := withMargin(capacity, rule.Margin.widest())
	r.Slices, r.Width = powerSlices(time.Duration(min(drains(capacity), uint64(MaxWindow))))
	if drains(brim) > uint64(MaxWindow) || r.Width > MaxWindow/time.Duration(r.Slices) {
		c.problem(path+".capacity", "E157", "a smaller capacity or margin, or a faster "+flowWord, "a full bucket of %d would take over 366 days to drain, longer than anything is remembered", brim)
		return
	}
	r.Window, r.Span, r.Hold = time.Duration(r.Slices)*r.Width, r.Slices, r.Width+time.Second
	r.Drain = Drain{Refill: flow.Units, Per: flow.Per, Floor: floor, Width: r.Width}
	r.Limit, r.Queue, r.MaxWait = capacity+floor, spec.Queue, spec.MaxWait
	if floor > 0 {
		r.Memory = initialMemory
	}
	r.divide(func(p *parts) { p.margin = percentOf(rule.Margin.SoftPercent) })
}

// initialMemory is how long a bucket that started with more than its capacity
// is remembered, so that nobody comes by another start by resting.
const initialMemory = 24 * time.Hour

// powerSlices cuts the time in which a bucket drains into DefaultSlices to
// twice as many slices, if MinWidth allows. Their width is MinWidth times a
// power of two, so that most changes of a capacity or a refill leave it alone,
// and with it what is counted.
func powerSlices(full time.Duration) (n int, width time.Duration) {
	width = MinWidth
	for 2*width <= full/DefaultSlices {
		width *= 2
	}
	return int((full + width - 1) / width), width
}

// concurrency reads a limit on slots that are held at a time.
func (c *compiler) concurrency(path string, rule *RuleSpec, spec *RateSpec, r *Rate) {
	const example = "such as: {algorithm: concurrency, limit: 20, lease: 30s}"
	r.Name = cmp.Or(spec.Name, r.Algorithm.String())
	r.Lease, r.Window = spec.Lease, spec.Lease
	switch {
	case spec.Lease == 0:
		c.problem(path+".lease", "E153", example, "concurrency needs a lease: how long a slot is held at the most")
		r.Window = time.Second
	case !c.windowed(path+".lease", "lease", spec.Lease, MaxWindow):
		r.Window = time.Second
	}
	c.limits(path, rule, spec, r)
	r.Slices, r.Width = Narrow(r.Window, DefaultSlices)
	r.Oldest, r.Round = OldestFull, RoundNone
	r.Span, r.Hold = r.Slices, r.Width+time.Second
}

// limits reads the limit, and its ceiling, of what is no bucket.
func (c *compiler) limits(path string, rule *RuleSpec, spec *RateSpec, r *Rate) {
	if spec.Limit > maxLimit {
		c.problem(path+".limit", "E143", "count in a larger unit, such as kilobytes", "%d is above 2^53", spec.Limit)
	} else if most := withMargin(spec.Limit, rule.Margin.widest()); most > maxLimit {
		c.problem(path+".limit", "E143", "a smaller limit, or margin", "%d with its margin is above 2^53", spec.Limit)
	}
	if spec.Limit == 0 && rule.Margin.widest() > 0 {
		c.problem(path+".limit", "E144", "drop the margin, or raise the limit", "a margin on a limit of 0 admits nothing")
	}
	r.divide(func(p *parts) { p.margin = percentOf(rule.Margin.SoftPercent) })
	if most := withMargin(spec.Limit, rule.Margin.widest()); r.Algorithm == SlidingLog && most > MaxLog {
		c.problem(path+".limit", "E159", "algorithm: sub_windows", "a log of %d hits a key, its margin included; at most %d are remembered", most, MaxLog)
	}
}

// windowed says whether a time can be a window, and reports it if not.
func (c *compiler) windowed(path, what string, d, longest time.Duration) bool {
	if d >= MinWindow && d <= longest && d%time.Millisecond == 0 {
		return true
	}
	c.problem(path, "E145", fmt.Sprintf("whole milliseconds, 25ms to %s", WindowName(longest)), "a %s of %s is out of range", what, WindowName(d))
	return false
}

// window reads what counts in a window of time.
func (c *compiler) window(path string, rule *RuleSpec, spec *RateSpec, r *Rate, calendar bool) {
	c.limits(path, rule, spec, r)
	longest := MaxWindow
	if r.Algorithm == FixedWindow && spec.Align == firstHit && !calendar {
		r.Algorithm, longest = FirstHit, MaxWindow/2 // the window before is kept too
	}
	if calendar {
		c.calendar(path, spec, r)
	} else if !c.windowed(path+".per", "window", spec.Per, longest) {
		r.Window = time.Second
	}
	r.Slices, r.Width = 1, r.Window
	rounding := "none"
	switch r.Algorithm {
	case SubWindows:
		n := cmp.Or(spec.Slices, DefaultSlices)
		if n < 1 || n > MaxSlices {
			c.problem(path+".slices", "E146", fmt.Sprintf("1 to %d", MaxSlices), "%d slices", n)
			n = DefaultSlices
		}
		r.Slices, r.Width = Narrow(r.Window, n)
		r.Oldest = enum(c, oldestNames, word{path + ".oldest", spec.Oldest}, word{"", "linear"})
	case SlidingLog, FirstHit:
		r.Slices, r.Width = Narrow(r.Window, DefaultSlices)
		r.CountDenied = spec.CountDenied
	case SlidingWindow:
		rounding = "down"
	}
	r.Round = enum(c, roundingNames, word{path + ".round", spec.Round}, word{"", rounding})
	r.Span, r.Hold = r.Slices, r.Width+time.Second
	switch {
	case r.Algorithm == FirstHit:
		r.Span = 2 * r.Slices
	case r.Period != NoPeriod:
		r.Hold = r.Period.longest() + time.Second
		r.Width, r.Span = periodGrain, int((r.Period.longest()+periodGrain-1)/periodGrain)
	}
	if r.Period != NoPeriod && r.Algorithm != FixedWindow && r.Algorithm != 0 {
		c.problem(path+".per", "E147", "fixed_window", "periods of the calendar belong to fixed_window, not to %s", r.Algorithm)
	}
}

// firstHit is the value of align for windows that begin with a hit.
const firstHit = "first_hit"

// plainAligns are the values of align that name no calendar.
var plainAligns = []string{"", "epoch", firstHit}

// calendar reads the period and zone of a rate that follows the calendar.
func (c *compiler) calendar(path string, spec *RateSpec, r *Rate) {
	period := spec.Period
	for _, p := range []Period{Day, Week} {
		if period == "" && spec.Per == p.nominal() {
			period = p.String()
		}
	}
	if period == "" {
		c.problem(path+".per", "E145", "day, week, month or year; or align: epoch", "%s is no period of the calendar, which align: %s asks for", WindowName(spec.Per), spec.Align)
		period = Day.String()
	}
	r.Period = enum(c, periodNames, word{path + ".per", period})
	r.Window = r.Period.nominal()
	r.Name = cmp.Or(spec.Name, period)
	zone := cmp.Or(spec.Align, "utc")
	if slices.Contains(plainAligns, spec.Align) && spec.Align != "" {
		c.problem(path+".align", "E148", `utc, or a zone such as "Europe/Paris"`, "a %s has no align %q", period, spec.Align)
		zone = "utc"
	}
	if zone == "utc" {
		zone = "UTC"
	}
	const hint = `utc, or a zone such as "Europe/Paris"`
	var err error
	if r.Zone, err = time.LoadLocation(zone); err == nil && !ofMachine(zone) {
		return
	}
	r.Zone = time.UTC
	if ofMachine(zone) {
		c.problem(path+".align", "E149", hint, "%q is no time zone, but a file of the machine's, and each may have another", spec.Align)
	} else {
		c.problem(path+".align", "E149", hint, "%q is no time zone", spec.Align)
	}
}

// ofMachine says that a zone is what a machine is set to, or has in a form of its own
// (right/ counts leap seconds): each edge may have another by the name.
func ofMachine(zone string) bool {
	return zone == "Local" || zone == "localtime" || zone == "posixrules" || strings.HasPrefix(zone, "posix/") || strings.HasPrefix(zone, "right/")
}
