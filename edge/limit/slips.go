package limit

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"
)

// slips warns of what a rule says in vain, or hardly means.
func (c *compiler) slips(path string, spec *RuleSpec, r *Rule) {
	c.unpayable(path+".cost", spec, r)
	c.narrow(path+".margin", spec, r)
	c.outwaited(path, spec, r)
	c.equalAddresses(path+".match.equals", &r.match)
	c.foregone(path+".match.when", r.match.when)
	c.countsInVain(path+".count_when", r)
	if r.Mode == Shadow && spec.Penalty != (Penalty{}) {
		c.warn(path+".penalty", "W208", "mode: enforce, when the trial is over", "a shadow rule punishes nobody")
	}
	c.longTerm(path+".penalty", r)
	c.untilReleased(path+".penalty", r)
	c.tooShort(path, r)
	if s := spec.OnLimit.Status; s >= 500 && s < 600 {
		c.warn(path+".on_limit.status", "W234", "429", "%d is how faults are told: by it clients and proxies take a limit for an outage, and some try again at once, or elsewhere", s)
	}
	c.cutFromNobody(path, spec, r)
	c.tiersApart(path, r)
	c.tiersTogether(path, spec, r)
	c.nothingLeft(path, spec, r)
	if e := r.Elastic; e != nil && e.Parent != nil && e.Parent.Mode == Shadow {
		c.warn(path+".margin.elastic.parent", "W209", "mode: enforce there", "%q is a shadow rule: its own requests are not held to the limit that it lends the rest of", e.Parent.Name)
	}
	for k := range spec.Rates { // min_gap's comes after those
		at, rate := indexed(path+".rates", k), r.Rates[k]
		c.sliced(at, &spec.Rates[k], rate)
		if rate.Queue && r.Mode == Shadow {
			c.warn(at+".queue", "W208", "mode: enforce, when the trial is over", "a shadow rule holds no request back: its queue only counts")
		}
		if unit := rate.pace(); rate.Queue && rate.MaxWait > 0 && rate.MaxWait < unit {
			c.warn(at+".max_wait", "W211", fmt.Sprintf("%v or more", unit), "one flows out in %v, which is longer: no request that finds another before it has time to wait", unit)
		}
		c.unusable(at, &spec.Rates[k], rate)
		if n := passesGaps(rate, spec.MinGap); n > 0 && n <= rate.Limit && len(r.variants) == 0 && spec.Cost.Default <= 1 && len(spec.Cost.ByRoute) == 0 && len(spec.Cost.FromHeader) == 0 {
			c.warn(at, "W210", "drop it, or a smaller gap", "%s never denies: with min_gap: %v at most %d come through in %v", rate.Name, spec.MinGap, n, rate.Window)
		}
		for i, other := range r.Rates[:len(spec.Rates)] {
			if rate.idleBeside(other) && (other.Limit < rate.Limit || i < k) {
				c.warn(at, "W210", "drop it", "%s never denies: %s counts the same, and admits no more", rate.Name, other.Name)
				break
			}
		}
	}
}

// nothingLeft warns of what a rule says beside a limit of 0, of which nothing is left to
// make a difference.
func (c *compiler) nothingLeft(path string, spec *RuleSpec, r *Rule) {
	zero := slices.IndexFunc(r.Rates[:len(spec.Rates)], func(rate *Rate) bool { return rate.Limit == 0 })
	if zero < 0 {
		return
	}
	for _, w := range []struct {
		name  string
		given bool
	}{
		{"near_limit", spec.NearLimitPercent != 0}, {"classes", spec.Classes.From != ""}, {"tier_from", spec.TierFrom != ""},
		{"min_gap", spec.MinGap != 0}, {"rates", len(spec.Rates) > 1},
	} {
		if w.given {
			c.warn(path+"."+w.name, "W226", "drop it, or a limit above 0", "%s admits nothing: beside it this makes no difference", r.Rates[zero].Name)
		}
	}
}

// unusable warns of what a bucket never gets to.
func (c *compiler) unusable(at string, spec *RateSpec, rate *Rate) {
	per := float64(rate.Drain.Per) / float64(max(1, rate.Drain.Refill)) // nanoseconds a unit
	if full := time.Duration(min(float64(spec.Capacity)*per, math.MaxInt64/2)); rate.Queue && spec.MaxWait > full+time.Duration(per) {
		c.warn(at+".max_wait", "W219", fmt.Sprintf("%v, or a larger capacity", full.Round(time.Millisecond)), "nobody waits so long: the queue of %d is full when what stands in it takes %v", spec.Capacity, full.Round(time.Millisecond))
	}
	if spec.Initial/100 > spec.Capacity {
		c.warn(at+".initial", "W220", "some times the capacity", "%d to start with is no limit at first: it is %d times the capacity", spec.Initial, spec.Initial/spec.Capacity)
	}
}

// passesGaps is how many requests a gap lets through within a window of the rate; 0: any
// number.
func passesGaps(rate *Rate, gap time.Duration) uint64 {
	if gap <= 0 || rate.Bucket() || rate.Algorithm == Concurrency || rate.PerRequest {
		return 0
	}
	return uint64(rate.Window/gap) + 1
}

// longTerm warns of a penalty that other edges heed for a part of its time alone.
func (c *compiler) longTerm(path string, r *Rule) {
	term := time.Duration(0)
	for _, rate := range r.Rates {
		if rate.Scope != ScopeEdge {
			term = max(term, LongestTerm(rate.Window))
		}
	}
	if term > 0 && r.Penalty.For > term {
		c.warn(path, "W217", fmt.Sprintf("%v or less", term), "other edges heed it for %v, and then not for as long, unless half of the limit is used again", term)
	}
}

// untilReleased warns of a penalty until a reset beside slots: nobody knows beforehand when
// they are released.
func (c *compiler) untilReleased(path string, r *Rule) {
	i := slices.IndexFunc(r.Rates, func(rate *Rate) bool { return rate.Lease > 0 })
	if r.Penalty.UntilReset && i >= 0 {
		c.warn(path, "W264", "a time, such as 5s; or leave it out", "who finds no slot of %s is kept out until the leases end, for %v, though all are released sooner", r.Rates[i].Name, r.Rates[i].Lease)
	}
}

// hardly is how many of those who are denied a time must be for at the least, one of so
// many, as they come at any instant between two places.
const hardly = 10

// tooShort warns of a delay in which hardly any place comes free, and of a penalty that is
// over before one does.
func (c *compiler) tooShort(path string, r *Rule) {
	var quickest *Rate
	for _, v := range append([]*Rule{r}, r.variants...) {
		for _, rate := range v.Rates {
			switch {
			case rate.Limit == 0:
				return
			case quickest == nil || rate.pace() < quickest.pace():
				quickest = rate
			}
		}
	}
	if quickest == nil {
		return
	}
	pace := quickest.pace()
	if d := r.MaxDelay; d > 0 && d <= pace/hardly {
		c.warn(path+".max_delay", "W211", fmt.Sprintf("%v or more, or leave it out", pace), "in %s one comes free in %v, which is far longer: hardly any request has time to wait", quickest.Name, pace)
	}
	atOnce := r.Drop == DropProbabilistic || r.Elastic != nil || slices.ContainsFunc(r.Rates, func(rate *Rate) bool { return rate.Consistency == Strict })
	if p := r.Penalty.For; p > 0 && p <= pace/hardly && !atOnce {
		c.warn(path+".penalty", "W246", fmt.Sprintf("more than %v, or until_reset; or leave it out", pace), "in %s one comes free in %v, which is far longer: who is denied hardly ever waits for the penalty", quickest.Name, pace)
	}
}

// pace is the time in which one place comes free, where the limit is used up steadily; 0:
// at any time.
func (r *Rate) pace() time.Duration {
	switch {
	case r.Bucket():
		return time.Duration(product(1, uint64(r.Drain.Per)).overUp(r.Drain.Refill))
	case r.Algorithm == Concurrency:
		return 0
	case r.Algorithm == FixedWindow || r.Algorithm == FirstHit:
		return r.Window
	}
	return r.Window / time.Duration(max(1, r.Limit))
}

// equalAddresses warns of addresses in match.equals.
func (c *compiler) equalAddresses(path string, m *match) {
	for i := range m.equals {
		e := &m.equals[i]
		// A name of more sources than client_ip may hold what is no address.
		if !standsFor(e.slots, slotClientIP) {
			continue
		}
		for _, v := range e.values {
			if c.asText(Problem{Path: path + "." + e.name}, e.name, v, Whole, "match.cidr: %s") {
				break
			}
		}
	}
}

// asText warns of an address that is compared as text, as one may be written in
// several ways, and of a network, which none is. It says whether it did; hint has a place
// for what is to be written.
func (c *compiler) asText(at Problem, name, value string, as Compared, hint string) bool {
	if addr := NormalAddr(value); as == Whole && addr.IsValid() {
		c.doubt(at, "W213", fmt.Sprintf(hint, addr.String()), "%s is compared with %q as text, and misses the same address written otherwise, such as %s", name, value, otherwise(addr, value))
		return true
	}
	network, err := netip.ParsePrefix(value)
	if err != nil {
		return false
	}
	if unmapped, err := ParseNetwork(network.Masked().String()); err == nil {
		network = unmapped
	}
	c.doubt(at, "W213", fmt.Sprintf(hint, network.Masked().String()), "%s is compared with %q as text, and no address is written so: it misses all of the network", name, value)
	return true
}

// otherwise is an address in another form than the one written.
func otherwise(addr netip.Addr, written string) string {
	switch other := "::ffff:" + addr.String(); {
	case addr.Is4() && other != written:
		return other
	case addr.Is6() && addr.StringExpanded() != written:
		return addr.StringExpanded()
	}
	return addr.String()
}

// foregone warns of a condition that is the same of all requests.
func (c *compiler) foregone(path string, condition Condition) {
	switch holds, known := settled(condition); {
	case !known:
	case holds:
		c.warn(path, "W214", "leave it out, or what makes it so", "this holds of every request: the rule applies to all of them")
	default:
		c.warn(path, "W214", "drop the rule, or what makes it so", "this holds of no request: the rule applies to none of them")
	}
}

func settled(condition Condition) (holds, known bool) {
	if told, ok := condition.(Foregone); ok {
		return told.Foregone()
	}
	return false, false
}

// countsInVain warns of a count_when that is the same of all responses.
func (c *compiler) countsInVain(path string, r *Rule) {
	const code = "W214"
	holds, known := settled(r.countWhen)
	switch {
	case known && holds:
		c.warn(path, code, "say which it is to charge; without count_when requests are charged when they come", "this holds of every response that has a status: it charges all of them, when they are answered")
	case known && !slices.ContainsFunc(c.warnings, func(w Problem) bool { return w.Path == path && w.Code == "W223" }): // why was told
		c.warn(path, code, `such as response.status in [401, 403], or drop the rule`, "this holds of no response of HTTP: it charges none but what somebody reports with such a status, and the rule limits nobody else")
	case !known && r.countWhen != nil && !r.asksResponse:
		c.warn(path, "W222", "write it into match.when", "nothing of the response is asked: requests could be charged at once, and until they are nothing is in the way of the next")
	}
}

// idleBeside says that other admits no more: both count alike, or other admits in a longer
// window what this one admits in a shorter.
func (r *Rate) idleBeside(other *Rate) bool {
	return r.within(other) || r != other && !r.Bucket() && r.Algorithm == other.Algorithm && r.Scope == other.Scope && r.Window == other.Window && r.Slices == other.Slices &&
		r.Period == other.Period && r.Zone.String() == other.Zone.String() && r.Oldest == other.Oldest && r.Round == other.Round &&
		r.CountDenied == other.CountDenied && other.Limit <= r.Limit
}

// within says that all that other admits in a window of its own is no more than this rate
// does in a shorter one. Two windows of other that do not slide may meet in one of ours.
func (r *Rate) within(other *Rate) bool {
	if r == other || r.Bucket() || r.Algorithm == Concurrency || r.Period != NoPeriod || r.CountDenied || r.Consistency != other.Consistency || r.Scope != other.Scope || r.Window >= other.Window {
		return false
	}
	switch other.Algorithm {
	case SubWindows, SlidingLog:
		return !other.CountDenied && other.Limit <= r.Limit
	case FixedWindow, FirstHit:
		return other.Limit <= r.Limit/2
	}
	return false
}

// narrow warns of margins that come to less than one of a limit.
func (c *compiler) narrow(path string, spec *RuleSpec, r *Rule) {
	soft, upTo := spec.Margin.SoftPercent, spec.Margin.Elastic.UpToPercent
	told := [2]bool{soft == 0, upTo == 0}
	for i, v := range append([]*Rule{r}, r.variants...) {
		for _, rate := range v.Rates {
			capacity, whose := rate.Limit-rate.Drain.Floor, c.whose(i)
			if rate.PerRequest || capacity == 0 {
				continue
			}
			hint := fmt.Sprintf("%v%% or more, a larger limit, or none", math.Ceil(1e4/float64(capacity))/100)
			if !told[0] && withMargin(capacity, soft) == capacity {
				told[0] = true
				c.warn(path+".soft", "W207", hint, "%v%% of %d is less than one: of %s%s no more is admitted", soft, capacity, rate.Name, whose)
			}
			if !told[1] && withMargin(capacity, upTo) == withMargin(capacity, soft) {
				told[1] = true
				if soft > 0 {
					hint = "a wider margin, a larger limit, or none"
				}
				c.warn(path+".elastic.up_to", "W207", hint, "%v%% of %d opens nothing beyond what is admitted of %s%s anyway", upTo, capacity, rate.Name, whose)
			}
		}
	}
}

// whose tells of which tenants the i-th of a rule and its variants is.
func (c *compiler) whose(i int) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprintf(", multiplied by %v,", c.multipliers[i-1])
}

// outwaited warns of what lies above the level that a queue's max_wait lets it come to.
func (c *compiler) outwaited(path string, spec *RuleSpec, r *Rule) {
	for _, rate := range r.Rates {
		if !rate.Queue || rate.Ceiling >= rate.Limit {
			continue
		}
		for _, w := range []struct {
			name  string
			given bool
		}{
			{"margin", spec.Margin.widest() > 0}, {"near_limit", rate.Near > rate.Ceiling}, {"drop", r.Drop == DropProbabilistic},
		} {
			if w.given {
				c.warn(path+"."+w.name, "W262", "a longer max_wait, or a smaller capacity", "it makes no difference to %s: who comes when %d of its %d stand there would wait longer than max_wait, and is denied", rate.Name, rate.Ceiling, rate.Limit)
			}
		}
	}
}

// unpayable warns of costs that are more than the rule admits at all, whoever
// asks. They are no mistake for certain: callers may name another.
func (c *compiler) unpayable(path string, spec *RuleSpec, r *Rule) {
	if alone := !slices.ContainsFunc(r.Rates, func(rate *Rate) bool { return !rate.CountsRequests() }); alone && spec.Cost.given() && len(r.Rates) > 0 {
		c.warn(path, "W221", "leave it out", "all rates of the rule count requests: each is one, whatever it costs")
		return
	}
	for k, rate := range r.Rates {
		if rate.PerRequest || rate.Limit == 0 {
			continue
		}
		most := uint64(0)
		for _, v := range append([]*Rule{r}, r.variants...) {
			widest := v.Rates[k]
			if widest.Open != nil {
				widest = widest.Open
			}
			most = max(most, widest.Ceiling)
		}
		const hint = "a smaller cost, or a larger limit; deny: true keeps a route shut"
		if spec.Cost.Default > most {
			c.warn(path+".default", "W206", hint, "%d is more than %s ever admits, %d: all requests are denied that name no other cost", spec.Cost.Default, rate.Name, most)
			return
		}
		for _, route := range slices.Sorted(maps.Keys(spec.Cost.ByRoute)) {
			if cost := spec.Cost.ByRoute[route]; cost > most {
				c.warn(path+".by_route."+route, "W206", hint, "%d is more than %s ever admits, %d: all requests of this route are denied", cost, rate.Name, most)
				return
			}
		}
	}
}

// coarse is how many of the narrowest slices a window has at the least, unless it is warned of.
const coarse = 3

// tiersApart warns of a multiplied limit that is far from what its multiplier says, as it
// is a whole number.
func (c *compiler) tiersApart(path string, r *Rule) {
	for i, v := range r.variants {
		for k, rate := range v.Rates {
			of := r.Rates[k]
			if of.PerRequest || of.Bucket() || of.Limit == 0 {
				continue
			}
			m := c.multipliers[i]
			if exact := m * float64(of.Limit); math.Abs(float64(rate.Limit)-exact) > exact/10 {
				c.warn(path+".tier_from", "W224", "a larger limit in a longer window, or another multiplier",
					"%v times %d, of %s, is %v, and limits are whole: %d is what such tenants have", m, of.Limit, of.Name, math.Round(exact*1000)/1000, rate.Limit)
				return
			}
		}
	}
}

// sliced warns of windows that are cut into fewer slices than was asked for, or
// into far fewer than others.
func (c *compiler) sliced(path string, spec *RateSpec, rate *Rate) {
	if spec.Slices > rate.Slices && rate.Algorithm == SubWindows {
		c.warn(path+".slices", "W202", fmt.Sprintf("slices: %d, or a longer window", rate.Slices),
			"%s cannot be cut into %d slices of whole milliseconds, %v at the least; %d are used", rate.Name, spec.Slices, MinWidth, rate.Slices)
		return
	}
	switch rate.Algorithm {
	case SubWindows, SlidingLog, FirstHit, Concurrency:
	default:
		return
	}
	word := "per"
	if rate.Lease > 0 {
		word = "lease"
	}
	if rate.Window < coarse*MinWidth && spec.Slices == 0 && rate.Algorithm != FirstHit && rate.Scope != ScopeEdge {
		c.warn(path+"."+word, "W225", "100ms or more", "%s is cut into %d slices of %v, as narrower ones cannot be told apart between machines: what others count comes and goes in as many steps", WindowName(rate.Window), rate.Slices, rate.Width)
		return
	}
	usual := min(DefaultSlices, int(rate.Window/MinWidth))
	if spec.Slices != 0 || 2*rate.Slices >= usual {
		return
	}
	step := time.Duration(usual) * time.Millisecond
	c.warn(path+"."+word, "W202", "such as "+WindowName(rate.Window/step*step),
		"%s cannot be cut into %d slices of whole milliseconds, but into %d: what others count is as coarse", WindowName(rate.Window), usual, rate.Slices)
}
