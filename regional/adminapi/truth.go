package adminapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spillgate/spillgate/regional"
)

// regions is GET /admin/v1/regions: how each region is heard, this one last.
func regions(subject Subject) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"regions": subject.Regions(time.Now())})
	}
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
func ruleTruth(subject Subject) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, namespace := r.PathValue("name"), r.URL.Query().Get("namespace")
		if !subject.HasRules() {
			writeProblem(w, http.StatusNotFound, "this aggregator knows no rules (set rules.path to those of the edges)")
			return
		}
		now := time.Now()
		all := subject.Regions(now)
		out := truth{Region: all[len(all)-1].Region, Rule: name, Rates: subject.Truth(namespace, name), UnknownRates: subject.UnknownRates(now)}
		if len(out.Rates) == 0 {
			in := ""
			if namespace != "" {
				in = fmt.Sprintf(" in namespace %.40q", namespace)
			}
			writeProblem(w, http.StatusNotFound, fmt.Sprintf("there is no rule %.40q%s, or it has no rates (see the rules at rules.path; beyond 256 rates all are told as rule other)", name, in))
			return
		}
		writeJSON(w, http.StatusOK, out)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a caller that is gone cannot be told so
}

// writeProblem answers with an RFC 9457 problem.
func writeProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail})
}
