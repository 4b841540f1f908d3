package configs

import (
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

const (
	// SlipCode is that of Slips' warnings.
	SlipCode = "W266"
	// EffectCode is that of Effects.
	EffectCode = "W270"
)

// fallen is how many times smaller a limit may become before it is told of: a zero too few is ten times.
const fallen = 10

// Slips are what of a document looks like a slip of who changes it, beside the document that it takes the
// place of: limits that are a tenth of what they were or less, rules that shut everybody out who was let in,
// and rules that are gone. They are warnings; neither need be wrong.
func (f Format) Slips(was, next Text) (warnings []Mistake) {
	before, wrong := f.parse(was)
	docs, also := f.parse(next)
	if len(wrong)+len(also) > 0 || len(before) != 1 || len(docs) != 1 { // which is told elsewhere
		return nil
	}
	r, doc := docs[0].reader, &docs[0].doc
	warn := func(path, hint, format string, args ...any) {
		warnings = append(warnings, r.mistakeOf(limit.Problem{Path: path, Code: SlipCode, Hint: hint, Detail: fmt.Sprintf(format, args...)}))
	}
	there := map[string]int{}
	for i := range doc.Rules {
		there[doc.Rules[i].Name] = i
	}
	for k := range before[0].doc.Rules {
		old := &before[0].doc.Rules[k]
		i, stays := there[old.Name]
		if !stays {
			warn("rules", "leave it, with mode: shadow, if in doubt", "rule %q is gone: its requests meet the next that they match, or none", old.Name)
			continue
		}
		now, path := &doc.Rules[i], fmt.Sprintf("rules[%d]", i)
		if now.Deny && !old.Deny {
			warn(path+".deny", "leave it out", "rule %q denies all that it matches, and did not", now.Name)
			continue
		}
		if now.Allow && !old.Allow {
			warn(path+".allow", "leave it out", "rule %q limits nothing, and did", now.Name)
			continue
		}
		if len(old.Key) > 0 && !slices.Equal(old.Key, now.Key) {
			at := path + ".key"
			if len(now.Key) == 0 {
				at = path
			}
			warn(at, "as it was, if it was not meant so", "rule %q counts by %q, and did by %q: it begins to count anew, and others share a limit", now.Name, now.Key, old.Key)
		}
		for j := range now.Rates {
			rate := &now.Rates[j]
			last := sameRate(old, now, rate)
			if last == nil {
				continue
			}
			if amount(rate)*fallen > amount(last) {
				if now, was := pace(rate), pace(last); now*fallen <= was {
					warn(fmt.Sprintf("%s.rates[%d]", path, j), "is the window, or the refill, what was meant? candidate: tries it out", "rule %q admits %.3g a second in the long run, and it was %.3g", old.Name, now, was)
				}
				continue
			}
			at := fmt.Sprintf("%s.rates[%d].limit", path, j)
			if rate.Capacity > 0 {
				at = fmt.Sprintf("%s.rates[%d].capacity", path, j)
			}
			if amount(rate) == 0 {
				warn(at, fmt.Sprintf("%d, as it was; candidate: tries it out", amount(last)), "a limit of 0, and it was %d: rule %q denies all that it matches", amount(last), now.Name)
				continue
			}
			warn(at, "is there a zero too few? candidate: tries it out", "%d of rule %q is a tenth of what it was, %d, or less", amount(rate), now.Name, amount(last))
		}
	}
	return warnings
}

// Effect is what a limit of a document does, or would have done, as somebody has measured.
type Effect struct{ Rule, Rate, Detail string }

// Effects are warnings of effects, where the limits stand in the document.
func (f Format) Effects(t Text, effects []Effect) (warnings []Mistake) {
	docs, wrong := f.parse(t)
	if len(wrong) > 0 || len(docs) != 1 {
		return nil
	}
	for _, e := range effects {
		i := slices.IndexFunc(docs[0].doc.Rules, func(r limit.RuleSpec) bool { return r.Name == e.Rule })
		if i < 0 {
			continue
		}
		path, rates := fmt.Sprintf("rules[%d]", i), docs[0].doc.Rules[i].Rates
		if j := slices.IndexFunc(rates, func(r limit.RateSpec) bool { return r.Name == e.Rate }); j >= 0 {
			path = fmt.Sprintf("%s.rates[%d]", path, j)
		} else if len(rates) == 1 {
			path += ".rates[0]"
		}
		warnings = append(warnings, docs[0].reader.mistakeOf(limit.Problem{Path: path, Code: EffectCode, Hint: "candidate: tries it out on requests as they come, and denies nothing", Detail: e.Detail}))
	}
	return warnings
}

// amount is how much a rate admits at once.
func amount(r *limit.RateSpec) uint64 { return max(r.Limit, r.Capacity) }

// pace is how much a rate admits in a second in the long run; 0: that is not known.
func pace(r *limit.RateSpec) float64 {
	for _, flow := range []limit.Flow{r.Refill, r.Outflow} {
		if flow.Per > 0 {
			return float64(flow.Units) / flow.Per.Seconds()
		}
	}
	window := r.Per
	if length, known := map[string]time.Duration{"day": 24 * time.Hour, "week": 7 * 24 * time.Hour, "month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour}[r.Period]; known {
		window = length
	}
	if window == 0 {
		return 0
	}
	return float64(r.Limit) / window.Seconds()
}

// sameRate is what a rate was: that of its name, or, of those that have none, of its window, or the only one.
func sameRate(old, now *limit.RuleSpec, rate *limit.RateSpec) *limit.RateSpec {
	for i := range old.Rates {
		last := &old.Rates[i]
		named := last.Name != "" && last.Name == rate.Name
		if window := last.Name == rate.Name && last.Per == rate.Per && last.Period == rate.Period; named || window || len(old.Rates) == 1 && len(now.Rates) == 1 {
			return last
		}
	}
	return nil
}
