// Package adminapi is the aggregator's admin listener: health, readiness,
// metrics, profiles, what audits found of late, and what limits admitted in truth.
// It asks nobody who they are, so it belongs on a loopback address,
// behind httpapi.Local.
package adminapi

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
}

var _ Subject = (*regional.Aggregator)(nil)

// New is the handler of the admin listener. connected says whether the bus has
// its server.
func New(subject Subject, connected func() bool, metrics prometheus.Gatherer) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		plain(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		status, text := ready(subject.Stats(time.Now()), connected(), r.URL.Query().Has("verbose"))
		plain(w, status, text)
	})
	mux.HandleFunc("GET /admin/v1/drift", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"regions": subject.Drift(time.Now())})
	})
	mux.HandleFunc("GET /admin/v1/regions", regions(subject))
	mux.HandleFunc("GET /admin/v1/rules/{name}/truth", ruleTruth(subject))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
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
