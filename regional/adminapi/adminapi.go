// Package adminapi is the aggregator's admin listener: health, readiness,
// metrics, profiles, what audits found of late, what limits admitted in truth, and
// the rules, where they are kept in NATS: read, checked, changed, and who changed them.
//
// Without a file of tokens it asks nobody who they are: then it belongs on a loopback
// address, behind httpapi.Local, and changes nothing.
package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/pprof"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
)

// Subject is what the listener tells about: an aggregator.
type Subject interface {
	Stats(now time.Time) regional.Stats
	Drift(now time.Time) []regional.Drift
	Regions(now time.Time) []regional.RegionState
	HasRules() bool
	Truth(namespace, rule string) []regional.RateTruth
	UnknownRates(now time.Time) int
	Passed(now time.Time, namespace, rule, rate string) (regional.Passed, bool)
	Decided(now time.Time, namespace, rule string) regional.RegionDecisions
	DecidedElsewhere(ctx context.Context, namespace, rule string, regions ...string) []regional.RegionDecisions
}

var _ Subject = (*regional.Aggregator)(nil)

// Config is what the listener serves.
type Config struct {
	Subject   Subject
	Connected func() bool // whether the bus has its server
	Metrics   prometheus.Gatherer
	Access    *Access   // nil: nobody is asked
	Rules     *Rulebook // nil: rules are not kept in NATS
	Keys      *Keybook  // nil: nothing is told of single keys
}

// New is the handler of the admin listener. Health is told to everybody.
func New(cfg Config) *http.ServeMux {
	mux := http.NewServeMux()
	if cfg.Rules != nil {
		cfg.Rules.subject = cfg.Subject
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		status, text := ready(cfg.Subject.Stats(time.Now()), cfg.Connected(), r.URL.Query().Has("verbose"))
		plain(w, status, text)
	})
	mux.HandleFunc("GET /metrics", cfg.Access.only(configs.RoleViewer, promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{}).ServeHTTP))
	for _, r := range cfg.routes() {
		mux.HandleFunc(r.pattern, cfg.Access.only(r.need, func(w http.ResponseWriter, req *http.Request) {
			p := r.heeds(req)
			if p == nil {
				p = r.serve(w, req)
			}
			if p != nil {
				writeProblem(w, p)
			}
		}))
	}
	for path, h := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
		need := configs.RoleAdmin
		if cfg.Access == nil { // nobody is asked, and it changes nothing
			need = configs.RoleViewer
		}
		mux.HandleFunc("/debug/pprof/"+path, cfg.Access.only(need, h))
	}
	return mux
}

// routes are the API's.
func (cfg *Config) routes() []route {
	routes := []route{
		{"GET /admin/v1/drift", configs.RoleViewer, nil, func(w http.ResponseWriter, _ *http.Request) *Problem {
			writeJSON(w, http.StatusOK, map[string]any{"regions": cfg.Subject.Drift(time.Now())})
			return nil
		}},
		{"GET /admin/v1/regions", configs.RoleViewer, nil, cfg.regions},
		{"GET /admin/v1/rules/{name}/truth", configs.RoleViewer, []string{"namespace"}, cfg.ruleTruth},
		{"GET /admin/v1/rules/{name}/decisions", configs.RoleViewer, []string{"namespace"}, cfg.decisions},
		{"GET /admin/v1/decisions", configs.RoleViewer, []string{"namespace"}, cfg.decisions},
		{"GET /admin/v1/openapi.json", configs.RoleViewer, nil, openAPI},
	}
	for _, r := range cfg.Rules.routes() {
		if cfg.Rules == nil {
			r.serve = func(http.ResponseWriter, *http.Request) *Problem {
				return problem(http.StatusNotFound, "rules.source: kv", "this aggregator's rules are not kept in NATS")
			}
		}
		routes = append(routes, r)
	}
	for _, r := range slices.Concat(cfg.Keys.routes(), cfg.Keys.tenantRoutes()) {
		if cfg.Keys == nil {
			r.serve = func(http.ResponseWriter, *http.Request) *Problem {
				return problem(http.StatusNotFound, "", "this listener tells nothing of single keys")
			}
		}
		routes = append(routes, r)
	}
	return routes
}

// ready is 503 while no edge can reach the aggregator, or it does not know yet
// which lanes are its own. A store that is away
// does not unready it: it serves from memory, which verbose tells.
func ready(st regional.Stats, connected, verbose bool) (status int, text string) {
	status = http.StatusOK
	if !connected {
		status = http.StatusServiceUnavailable
		text += "[-] nats: not connected\n"
	} else if verbose {
		text += "[+] nats: ok\n"
	}
	if st.Listening {
		status = http.StatusServiceUnavailable
		text += "[-] lanes: waiting to hear whose they are\n"
	} else if verbose {
		text += fmt.Sprintf("[ ] lanes: %d of %d are its own, %d aggregators live, %d taken over from silent ones\n", st.Owned, st.Lanes, st.Members, st.Takeovers)
	}
	if verbose {
		if st.StoreDown {
			text += fmt.Sprintf("[!] store: away, serving from memory, %d keys to be written\n", st.Unstored)
		} else {
			text += "[+] store: ok\n"
		}
		if st.HomesAway() {
			text += fmt.Sprintf("[!] homes: %d regions do not answer, of keys that have both homes there others' counts are late\n", st.Silent)
		}
		for _, peer := range st.Unheard {
			text += "[!] region " + peer + ": does not answer, or never has: is it away, or misspelt?\n"
		}
		for _, m := range st.Misfits {
			text += "[!] region " + m.Region + ": " + m.String() + "\n"
		}
		if st.Namesake {
			text += "[!] name: another aggregator of the region has the same: give each a --name of its own\n"
		}
		if st.OtherSecrets > 0 {
			text += fmt.Sprintf("[!] secret: %d edges have another than the others, and count keys of their own\n", st.OtherSecrets)
		}
		if st.EdgeNamesakes > 0 {
			text += fmt.Sprintf("[!] names: %d edges share theirs with another of their PoP, and its share: give each a --name of its own\n", st.EdgeNamesakes)
		}
		text += fmt.Sprintf("[ ] %d edges and %d regions heard of lately, %d keys\n", st.LiveEdges, st.LiveRegions, st.Keys)
	}
	if status == http.StatusOK {
		text += "ready\n"
	}
	return status, text
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // a caller that is gone cannot be told so
}
