package rlqs

import "github.com/prometheus/client_golang/prometheus"

// Why a message or a stream was refused.
const (
	refusedInvalid = "invalid"
	refusedDomain  = "domain"
	refusedRules   = "no_rules"
	refusedFull    = "buckets"
	refusedStreams = "streams"
	refusedLarge   = "too_large"
	refusedUnread  = "unreadable"
	refusedPanic   = "panic"
)

// metrics have no label that a caller can choose.
type metrics struct {
	streams, subscriptions, buckets prometheus.Gauge
	panics                          prometheus.Counter
	allowed, denied                 prometheus.Counter
	granted, returned, beyond       prometheus.Counter
	assignments                     [kinds]prometheus.Counter
	refused                         *prometheus.CounterVec
	turnedAway                      [refusals]prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	usage := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_rlqs_requests_total", Help: "Requests that data planes reported over RLQS: those that they admitted, and those that they denied.",
	}, []string{"result"})
	tokens := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_rlqs_tokens_total",
		Help: "Tokens of RLQS: granted (and charged) to data planes, returned (given back as the reports show that they were not spent), beyond (requests that were admitted without a grant, and charged when they were reported).",
	}, []string{"what"})
	assignments := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_rlqs_assignments_total", Help: "What data planes were told over RLQS: tokens, deny (there is no room), cut_off (the edge cannot hear of the others that share the limit, and on_partition: closed denies then), allow (no rule applies), abandon (the bucket was idle, or got no place and is not used or one of too many).",
	}, []string{"kind"})
	turnedAway := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_rlqs_turned_away_total",
		Help: "Reports of buckets that got no place, and so no tokens, over RLQS, by why: long (the bucket's id is longer than 2 KiB), empty (it has no entry), text (a value of it is not UTF-8), stream_full or edge_full (there are too many buckets, or their ids are too long together). What they used is charged.",
	}, []string{"reason"})
	m := &metrics{
		streams:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillgate_rlqs_streams", Help: "Streams of data planes that are open."}),
		subscriptions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillgate_rlqs_subscriptions", Help: "Buckets that data planes have subscribed to, each counted once a stream."}),
		buckets:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillgate_rlqs_buckets", Help: "Different buckets among the subscriptions."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillgate_rlqs_refused_total",
			Help: "Streams that were ended, by why: invalid (a report that cannot be), domain (it has no rules that could be asked), no_rules (none are loaded yet), buckets (the stream is not read), streams (there are too many), too_large (a message, which gRPC did not take in), unreadable (a message is not of this protocol), panic (a bug of the edge; see the log).",
		}, []string{"reason"}),
		panics:  prometheus.NewCounter(prometheus.CounterOpts{Name: "spillgate_rlqs_panics_total", Help: "Panics in the service of RLQS, which are bugs: the log says where."}),
		allowed: usage.WithLabelValues("allowed"), denied: usage.WithLabelValues("denied"),
		granted: tokens.WithLabelValues("granted"), returned: tokens.WithLabelValues("returned"), beyond: tokens.WithLabelValues("beyond"),
	}
	for k := kindTokens; k < kinds; k++ {
		m.assignments[k] = assignments.WithLabelValues(kindNames[k])
	}
	for r := placed + 1; r < refusals; r++ {
		m.turnedAway[r] = turnedAway.WithLabelValues(refusalNames[r])
	}
	if reg != nil {
		reg.MustRegister(usage, tokens, assignments, turnedAway, m.streams, m.subscriptions, m.buckets, m.refused, m.panics)
	}
	return m
}
