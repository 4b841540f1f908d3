package adminapi

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// RegionTells is how far a region's edges say what they decided.
type RegionTells struct {
	Region   string  `json:"region"`
	Heard    bool    `json:"heard"`    // false: none of its aggregators answered, and it is not in the sums
	Complete bool    `json:"complete"` // all of its edges that tell were heard in full
	Edges    int     `json:"edges"`    // that told within the last minute
	Partial  int     `json:"partial"`  // of them, those that are yet to tell all
	Listened float64 `json:"listened_seconds"`
	LeftOut  int     `json:"left_out"` // rules for which there was no room in the answer
}

// RuleTells is what was decided by a rule, in all regions that were heard.
type RuleTells struct {
	Namespace string `json:"namespace"`
	Rule      string `json:"rule"` // "": requests to which none applied
	Edges     int    `json:"edges"`
	// PerSecond are requests, Denied is the part of them that was denied, and OnlyCandidate and OnlyLive
	// of those that were compared with a candidate, the parts that one of the two denies and the other
	// does not: each of the last minute.
	PerSecond     float64 `json:"per_second"`
	Denied        float64 `json:"denied"`
	Compared      float64 `json:"compared_per_second"`
	OnlyCandidate float64 `json:"only_candidate_denies"`
	OnlyLive      float64 `json:"only_live_denies"`
	// Keys and KeysDenied are how many different keys were seen and denied in about the last minute, by an
	// estimate that is an eighth off.
	Keys       uint64 `json:"keys"`
	KeysDenied uint64 `json:"keys_denied"`
	regional.Counted
	Minute  regional.Counted                  `json:"minute"`
	Regions map[string]regional.RuleDecisions `json:"regions"` // by name
}

// Tells is what GET /admin/v1/decisions and GET /admin/v1/rules/{name}/decisions answer.
type Tells struct {
	Region  string        `json:"region"` // that answers
	Regions []RegionTells `json:"regions"`
	Rules   []RuleTells   `json:"rules"`
}

// decisions is GET /admin/v1/decisions?namespace= and GET /admin/v1/rules/{name}/decisions?namespace=:
// what edges of all regions say that they decided.
func (cfg *Config) decisions(w http.ResponseWriter, r *http.Request) *Problem {
	name, namespace := r.PathValue("name"), r.URL.Query().Get("namespace")
	if c := callerOf(r); !c.touches(namespace) {
		return outOfScope(c, namespace)
	}
	own := cfg.Subject.Decided(time.Now(), namespace, name)
	out := tellsOf(append([]regional.RegionDecisions{own}, cfg.Subject.DecidedElsewhere(r.Context(), namespace, name)...))
	if name != "" && len(out.Rules) == 0 {
		in := ""
		if namespace != "" {
			in = fmt.Sprintf(" in namespace %.40q", namespace)
		}
		return problem(http.StatusNotFound, "edges tell every ten seconds what they have decided; see the rules", fmt.Sprintf("no edge has told of a rule %.40q%s", name, in))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// tellsOf sums over regions, of which the first answers.
func tellsOf(regions []regional.RegionDecisions) Tells {
	out := Tells{Region: regions[0].Region, Rules: []RuleTells{}}
	type ruleName struct{ namespace, rule string }
	at := map[ruleName]int{}
	var keys [][2]deltasync.Sketch // by rule
	for _, told := range regions {
		out.Regions = append(out.Regions, RegionTells{told.Region, told.Heard, told.Complete(), told.Edges, told.Partial, told.Listened, told.LeftOut})
		for _, r := range told.Rules {
			i, known := at[ruleName{r.Namespace, r.Rule}]
			if !known {
				i = len(out.Rules)
				at[ruleName{r.Namespace, r.Rule}] = i
				keys = append(keys, [2]deltasync.Sketch{})
				out.Rules = append(out.Rules, RuleTells{Namespace: r.Namespace, Rule: r.Rule, Regions: map[string]regional.RuleDecisions{}})
			}
			sum := &out.Rules[i]
			sum.Regions[told.Region] = r
			for k, of := range [][]byte{r.KeysOf, r.KeysDeniedOf} {
				more := deltasync.SketchOf(of)
				keys[i][k].Merge(&more)
			}
			sum.Edges += r.Edges
			sum.Add(&r.Counted)
			sum.Minute.Add(&r.Minute)
			if r.Seconds > 0 {
				sum.PerSecond += float64(r.Minute.Decided.All()) / r.Seconds
				sum.Compared += float64(compared(&r.Minute)) / r.Seconds
			}
		}
	}
	for i := range out.Rules {
		r := &out.Rules[i]
		all := compared(&r.Minute)
		r.Keys, r.KeysDenied = uint64(keys[i][0].Estimate()+0.5), uint64(keys[i][1].Estimate()+0.5)
		r.Denied = part(r.Minute.Decided.Denied(), r.Minute.Decided.All())
		r.OnlyCandidate, r.OnlyLive = part(r.Minute.Trials[0][1], all), part(r.Minute.Trials[1][0], all)
	}
	slices.SortFunc(out.Rules, func(a, b RuleTells) int {
		return slices.Compare([]string{a.Namespace, a.Rule}, []string{b.Namespace, b.Rule})
	})
	return out
}

// compared is how many requests the limits of a rule and those of its candidate were both asked about.
func compared(c *regional.Counted) uint64 {
	return c.Trials[0][0] + c.Trials[0][1] + c.Trials[1][0] + c.Trials[1][1]
}

// part is the part that n is of all, 0 of none.
func part(n, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return float64(n) / float64(all)
}
