package proxy

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// result is what became of a request, as the metrics name it.
type result uint8

const (
	resultAnswered result = iota
	resultSwitched
	resultLimited
	resultCutOff
	resultReplayLimited
	resultRefused
	resultUnreachable
	resultTimeout
	resultBroken
	resultLeft
	resultPanic
	results
)

var resultNames = [results]string{"answered", "switched", "limited", "cut_off", "replay_limited", "refused", "unreachable", "timeout", "broken", "left", "panic"}

// classes are the upstream's statuses by their first digit.
var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "5xx", "other"}

// Metrics counts what the proxy does.
type Metrics struct {
	requests  [results]prometheus.Counter
	responses [len(classes)]prometheus.Counter
	duration  prometheus.Histogram
	underWay  prometheus.Gauge
	switched  prometheus.Gauge
	used      prometheus.Gauge
	unread    prometheus.Counter
	again     prometheus.Counter
}

// NewMetrics registers the metrics with reg; nil leaves them unexported. Registering
// twice with one registry panics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_proxy_requests_total",
		Help: "Requests to the reverse proxy by what became of them: answered (by the upstream), switched (to another protocol, as websocket), limited (denied by a rule: 429, 403, or its own status), cut_off (denied as the edge hears of nobody else, by a rule with on_partition: closed: 503), replay_limited (denied once more, as they wait for room), refused (malformed, slow or too large: 400, 408, 413, 501; or deferred, and not begun), unreachable (502), timeout (504: the upstream did not begin its answer), broken (the upstream broke off its answer), left (the client did, be it before its turn), panic (a bug: 500).",
	}, []string{"result"})
	responses := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_proxy_upstream_responses_total",
		Help: "Answers of the upstream by the class of their status.",
	}, []string{"class"})
	m := &Metrics{
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "spillgate_proxy_upstream_duration_seconds",
			Help:    "Time from when the upstream had a request (its body, too) to the beginning of its answer. Faults are not in it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		underWay: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillgate_proxy_requests_under_way",
			Help: "Requests that the reverse proxy is at, those that wait for their turn and switched connections among them.",
		}),
		switched: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillgate_proxy_switched_connections",
			Help: "Connections that switched protocols, as websockets, and are open.",
		}),
		used: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillgate_proxy_capacity_used_ratio",
			Help: "Part of the upstream's capacity that was in use when it was last told (proxy.capacity).",
		}),
		unread: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillgate_proxy_capacity_unread_total",
			Help: "Values of the upstream's capacity header that are no part in use (0.7, or 70%).",
		}),
		again: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillgate_proxy_sent_again_total",
			Help: "Requests that were sent to the upstream once more, on a connection of their own, as a kept one ended before an answer began (HTTP/1), or it refused them twice (HTTP/2).",
		}),
	}
	for i, name := range resultNames {
		m.requests[i] = requests.WithLabelValues(name)
	}
	for i, name := range classes {
		m.responses[i] = responses.WithLabelValues(name)
	}
	if reg != nil {
		reg.MustRegister(requests, responses, m.duration, m.underWay, m.switched, m.used, m.unread, m.again)
	}
	return m
}

// answered counts an answer of the upstream's.
func (m *Metrics) answered(status int) {
	class := status/100 - 1
	if status < http.StatusContinue || class >= len(classes)-1 {
		class = len(classes) - 1
	}
	m.responses[class].Inc()
}
