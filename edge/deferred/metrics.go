package deferred

import "github.com/prometheus/client_golang/prometheus"

// result is what became at the door of a request that its rule lets wait, as the metrics
// name it.
type result uint8

const (
	resultKept result = iota
	resultAgain
	resultLarge
	resultLate
	resultMemory
	resultFull
	resultAway
	resultMalformed
	results
)

var resultNames = [results]string{"kept", "again", "large", "late", "memory", "full", "away", "malformed"}

// end is what became of a request that was tried, as the metrics name it.
type end uint8

const (
	endDone end = iota
	endDead
	endExpired
	endFailed
	endUnreached
	ends
)

var endNames = [ends]string{"done", "dead", "expired", "failed", "unreached"}

// Metrics counts what a Front has wait, what becomes of it, and how much room there is for that.
type Metrics struct {
	requests  [results]prometheus.Counter
	ends      [ends]prometheus.Counter
	statuses  prometheus.Gauge
	shortened prometheus.Counter
	queue     [len(reasons)]prometheus.Gauge
}

// troubled has the queue be in this trouble, and no other; "": in none.
func (m *Metrics) troubled(why string) {
	for i, reason := range reasons {
		is := 0.0
		if reason == why {
			is = 1
		}
		m.queue[i].Set(is)
	}
}

// NewMetrics registers the metrics with reg; nil leaves them unexported. Registering twice
// with one registry panics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_deferred_requests_total",
		Help: "Denied requests that their rule lets wait, by what became of them: kept (202), told again (again: 202) what waits already under their Idempotency-Key, or denied all the same (429) as they are large (body or header), late (the body did not come in time, or not whole), as what bodies may take of memory is used up (memory), as many wait of their key, or of all, as may (full), as JetStream did not answer, or answers nobody yet (away), or malformed (they cannot be written down).",
	}, []string{"result"})
	became := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_deferred_outcomes_total",
		Help: "What became of deferred requests that this edge tried: done, dead (given up: a letter says why; see /admin/v1/deferred/dead), expired (a dead letter, too: there was no room in time, or no upstream), or, to be tried again, failed (a try: the upstream was busy, broken, or silent) or unreached (no try: there was no connection to it).",
	}, []string{"result"})
	queue := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillgate_deferred_queue_trouble",
		Help: "1 while the region's queue of deferred requests is not as this edge's settings say, by the reason: JetStream does not answer (away), does not have all of it (missing), or has it so that it would lose requests, or keep them without bounds (unfit): no request waits then; or other sizes than the edge's stand (settings). edge deferred apply mends all but the first.",
	}, []string{"reason"})
	m := &Metrics{
		statuses: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillgate_deferred_statuses_used_ratio",
			Help: "How much is taken of the room for what became of the region's deferred requests (proxy.defer.max_bytes), as this edge saw it last. Above 0.875 no more requests wait, until some of it has expired.",
		}),
		shortened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillgate_deferred_statuses_shortened_total",
			Help: "Deferred requests that are over, and whose clients can ask for less than the usual time what became of them: those of their key, or of all, come so fast that they would not find room else.",
		}),
	}
	for i, name := range resultNames {
		m.requests[i] = requests.WithLabelValues(name)
	}
	for i, name := range endNames {
		m.ends[i] = became.WithLabelValues(name)
	}
	for i, reason := range reasons {
		m.queue[i] = queue.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(requests, became, queue, m.statuses, m.shortened)
	}
	return m
}
