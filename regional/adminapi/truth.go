package adminapi

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spillgate/spillgate/regional"
)

// regions is GET /admin/v1/regions: how each region is heard, this one last.
func (cfg *Config) regions(w http.ResponseWriter, _ *http.Request) *Problem {
	writeJSON(w, http.StatusOK, map[string]any{"regions": cfg.Subject.Regions(time.Now())})
	return nil
}

// truth is what GET /admin/v1/rules/{name}/truth answers.
type truth struct {
	Region       string               `json:"region"`
	Rule         string               `json:"rule"`
	Rates        []regional.RateTruth `json:"rates"`
	UnknownRates int                  `json:"unknown_rates"` // of any rule: edges count by rules that are not known here
}

// ruleTruth is GET /admin/v1/rules/{name}/truth?namespace=: what was true of the rule's
// rates, in all namespaces or in one.
func (cfg *Config) ruleTruth(w http.ResponseWriter, r *http.Request) *Problem {
	name, namespace := r.PathValue("name"), r.URL.Query().Get("namespace")
	if c := callerOf(r); !c.touches(namespace) {
		return outOfScope(c, namespace)
	}
	if !cfg.Subject.HasRules() {
		return problem(http.StatusNotFound, "set rules.path to those of the edges", "this aggregator knows no rules")
	}
	now := time.Now()
	all := cfg.Subject.Regions(now)
	out := truth{Region: all[len(all)-1].Region, Rule: name, Rates: cfg.Subject.Truth(namespace, name), UnknownRates: cfg.Subject.UnknownRates(now)}
	if len(out.Rates) == 0 {
		in := ""
		if namespace != "" {
			in = fmt.Sprintf(" in namespace %.40q", namespace)
		}
		return problem(http.StatusNotFound, "see the rules; beyond 256 rates all are told as rule other", fmt.Sprintf("there is no rule %.40q%s, or it has no rates", name, in))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
