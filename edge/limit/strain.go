package limit

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// mostHeld is the part of a limit above which it is not held at all, steadyHeld and
	// surgeHeld those above which whoever wrote it should know.
	mostHeld   = 0.75
	steadyHeld = 0.2
	surgeHeld  = 1.0
	// tiny is a cost that is nothing to speak of, whatever the limit.
	tiny = 3
)

// strain says whether a forecast is bad enough to be refused, or to warn of.
func (f Forecast) strain(r *Rate) (refuse, warn bool) {
	exceeds := func(cost, part float64) bool { return cost > max(tiny, part*float64(r.Ceiling)) }
	return exceeds(f.Steady, mostHeld), exceeds(f.Steady, steadyHeld) || exceeds(f.Surge, surgeHeld)
}

// Strain is what a topology makes of a rate, at a path: nil where it is held well
// enough. refuse says that it is not held at all.
func (r *Rate) Strain(path string, t Topology) (p *Problem, refuse bool) {
	if r.Consistency == Strict {
		return r.scarce(path, t), false
	}
	f := r.Forecast(t)
	refuse, warn := f.strain(r)
	if !refuse && !warn {
		return nil, false
	}
	code, verdict := "W230", "is exceeded by much"
	if refuse {
		code, verdict = "E230", "cannot be held"
	}
	return &Problem{Path: path, Code: code, Hint: r.relief(t), Detail: fmt.Sprintf(
		"%s over %d edges %s: at twice the limit about %s more may be admitted in a window, and %s if %v times the limit comes at once",
		r.words(), r.sharers(t), verdict, r.part(f.Steady), r.part(f.Surge), r.surge())}, refuse
}

// words are the rate in short: "100 per 1s, loose".
func (r *Rate) words() string {
	return fmt.Sprintf("%d per %v, %v", r.Limit, short(r.Window), r.Consistency)
}

// short is a window as rules write it.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// part is a cost as a part of the limit.
func (r *Rate) part(cost float64) string {
	return fmt.Sprintf("%.0f %% (%.0f)", math.Ceil(100*cost/float64(r.Ceiling)), math.Ceil(cost))
}

// relief is what would mend it, as far as it does, the least change first.
func (r *Rate) relief(t Topology) string {
	var ways []string
	try := func(word string, change func(*Rate)) {
		other := *r
		change(&other)
		f := other.Forecast(t)
		if refuse, warn := f.strain(&other); !refuse && !warn {
			ways = append(ways, fmt.Sprintf("%s (%.0f %%)", word, math.Ceil(100*f.Steady/float64(other.Ceiling))))
		}
	}
	if r.Consistency == Loose {
		try("consistency: adaptive", func(o *Rate) { o.Consistency = Adaptive })
	}
	for _, times := range []uint64{5, 10, 60} {
		if before := len(ways); r.stretches() && times*r.written().Ceiling <= maxLimit && time.Duration(times)*r.Window <= MaxWindow {
			try(r.longer(times), func(o *Rate) {
				o.Limit, o.Ceiling, o.Window = times*o.Limit, times*o.Ceiling, time.Duration(times)*o.Window
			})
			if len(ways) > before {
				break
			}
		}
	}
	if r.Scope == ScopeGlobal && t.Regions > 1 {
		try("scope: region, a limit for each", func(o *Rate) { o.Scope = ScopeRegion })
	}
	switch {
	case len(ways) > 0:
		return strings.Join(ways, ", or ")
	case r.Algorithm == Concurrency: // a longer lease is no larger limit
		return "consistency: strict, scope: edge and a part of the slots for each, or fewer edges"
	case r.Bucket():
		return "scope: edge and a part of the limit for each, a larger capacity, or fewer edges"
	}
	return "scope: edge and a part of the limit for each, a longer window, or fewer edges"
}

// written is the rate as the rule has it, whoever asks.
func (r *Rate) written() *Rate {
	if r.ruled != nil {
		return r.ruled
	}
	return r
}

// stretches says that so many times the limit in a window as much longer is the same
// pace: of slots that are held and of days it is not.
func (r *Rate) stretches() bool { return r.Algorithm != Concurrency && r.Period == NoPeriod }

// longer is the rate as its rule would have it, so many times as large and as long.
func (r *Rate) longer(times uint64) string {
	of := r.written()
	if r.Bucket() {
		return fmt.Sprintf("capacity: %d", times*(of.Limit-of.Drain.Floor))
	}
	return fmt.Sprintf("%d per %v", times*of.Limit, short(time.Duration(times)*of.Window))
}

// Strains are what a topology makes of the rates of a rule at a path, those that are not
// held at all apart: as the rule says them, and as tenants have them, each limit once.
func (r *Rule) Strains(path string, t Topology) (refused, strained []Problem) {
	usual, most := r.costs()
	tell := func(at, whose string, rate *Rate) {
		t.Cost = usual
		p, refuse := rate.Strain(at, t)
		if p == nil && rate.CostOf(most) > rate.CostOf(usual) {
			t.Cost = most
			if p, refuse = rate.Strain(at, t); refuse { // few may be so heavy
				p.Code, refuse = "W230", false
			}
		}
		if p != nil && rate.CostOf(t.Cost) > 1 {
			whose += fmt.Sprintf("where requests cost %d, ", t.Cost)
		}
		switch {
		case p == nil:
		case refuse:
			p.Detail = whose + p.Detail
			refused = append(refused, *p)
		default:
			p.Detail = whose + p.Detail
			strained = append(strained, *p)
		}
	}
	for i, rate := range r.Rates {
		at, told := indexed(path+".rates", i), []uint64{rate.Limit}
		tell(at, "", rate)
		for _, v := range r.variants {
			if of := v.Rates[i]; !slices.Contains(told, of.Limit) {
				told = append(told, of.Limit)
				tell(at, v.tenants+" ", of)
			}
		}
	}
	return refused, strained
}
