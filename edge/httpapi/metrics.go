package httpapi

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/spillgate/spillgate/edge/limit"
)

// maxRuleLabels is how many rules have a label of their own in the metrics,
// over the life of the process; the rest are "other".
const maxRuleLabels = 1000

const otherRule = "other"

// result is what became of a call, as the metrics name it.
type result uint8

const (
	resultAllow result = iota
	resultSoft
	resultElastic
	resultDeny
	resultCutOff
	resultShadowDeny
	resultReplayDeny
	resultNone // no rule applies
	results
)

var resultNames = [results]string{"allow", "soft", "elastic", "deny", "cut_off", "shadow_deny", "replay_deny", "none"}

// resultError names calls that could not be decided. They have no rule, and
// their namespace is only what the caller wrote, so they bear neither label.
const resultError = "error"

func resultOf(d *limit.Decision, req *limit.Request) result {
	switch {
	case d.Rule == nil:
		return resultNone
	case !d.Allowed && req.Replay:
		return resultReplayDeny
	case d.Basis.CutOff:
		return resultCutOff
	case !d.Allowed:
		return resultDeny
	case d.Zone == limit.ZoneSoft:
		return resultSoft
	case d.Zone == limit.ZoneElastic:
		return resultElastic
	case d.Zone == limit.ZoneShadow:
		return resultShadowDeny
	default:
		return resultAllow
	}
}

// Metrics counts what the surfaces decide.
type Metrics struct {
	decisions   *prometheus.CounterVec
	cost        *prometheus.CounterVec
	near        *prometheus.CounterVec
	tenants     *prometheus.CounterVec
	reports     *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	waiting     prometheus.Gauge
	abandoned   prometheus.Counter
	undecided   prometheus.Counter
	misreported prometheus.Counter
	unasked     *prometheus.CounterVec
	panics      prometheus.Counter
	ignored     prometheus.Counter

	mu     sync.Mutex           // guards labels
	labels map[[2]string]string // namespace and rule -> rule label
}

// NewMetrics registers the metrics with reg; nil leaves them unexported. Several of one
// registry count together. It panics where one of their names is already that of a metric
// of somebody else.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillgate_decisions_total",
			Help: "Decisions by the rule that decided and by result: allow, soft (over the limit, inside its soft margin), elastic (inside an elastic margin that was open), deny, cut_off (denied as the edge hears of nobody else, by a rule with on_partition: closed), shadow_deny (a shadow rule would have denied), replay_deny (a request that was denied, and waits, found no room yet: no client's denial), none (no rule applies), error (the call could not be decided). Peeks are included.",
		}, []string{"namespace", "rule", "result"}),
		cost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillgate_decision_cost_total",
			Help: "Cost of the requests that were admitted, by the rule that decided.",
		}, []string{"namespace", "rule"}),
		near: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillgate_near_limit_total",
			Help: "Requests that were admitted and left their key at or above the rule's near_limit.",
		}, []string{"namespace", "rule"}),
		tenants: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillgate_tenant_decisions_total",
			Help: "Decisions in namespaces whose rules have tier_from, by the tenant's tier and by result, as spillgate_decisions_total has it: a tier of the document, none, own (a multiplier of the tenant's own), unknown (by the store it has a tier that the document has not), other (the document has more tiers than 50). Peeks are included.",
		}, []string{"namespace", "tier", "result"}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillgate_reports_total",
			Help: "Reports, over HTTP and gRPC, by what they did: charge, give_back, answered (charge by the response), error (the call could not be understood, and has no namespace).",
		}, []string{"namespace", "kind"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillgate_queue_waiting_requests",
			Help: "Requests that are held back for their turn in a queue.",
		}),
		abandoned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillgate_queue_abandoned_total",
			Help: "Requests that ended before their turn in a queue came: the client was gone, or its deadline too near. What they were charged was given back.",
		}),
		unasked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillgate_remote_undecided_total",
			Help: "Requests about which an edge elsewhere decided nothing, by why: fault (it failed, or was not reached), setup (there are no rules for the namespace, or the edge wants credentials), refused (what the request says is longer than an edge takes, not UTF-8, or wrong: it was denied), gone (the caller went before the answer came: it was not served).",
		}, []string{"why"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillgate_http_panics_total",
			Help: "Panics in handlers and interceptors; each is a bug. The HTTP API answered with 500, a call behind middleware passed.",
		}),
		ignored: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillgate_http_forwarded_ignored_total",
			Help: "Calls whose forwarding headers were ignored because the peer is not in trusted_proxies.",
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "spillgate_decision_duration_seconds",
			Help:    "Time from a request that was read to its decision; of a call over gRPC to the last of them.",
			Buckets: []float64{250e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 50e-6, 200e-6, 1e-3, 10e-3, 100e-3},
		}, []string{"transport"}),
		labels: map[[2]string]string{},
	}
	if reg != nil {
		m.decisions, m.cost, m.near = registered(reg, m.decisions), registered(reg, m.cost), registered(reg, m.near)
		m.tenants = registered(reg, m.tenants)
		m.reports, m.waiting, m.abandoned = registered(reg, m.reports), registered(reg, m.waiting), registered(reg, m.abandoned)
		m.unasked, m.panics, m.ignored = registered(reg, m.unasked), registered(reg, m.panics), registered(reg, m.ignored)
		m.duration = registered(reg, m.duration)
	}
	m.undecided = m.decisions.WithLabelValues("", "", resultError)
	m.misreported = m.reports.WithLabelValues("", resultError)
	return m
}

// registered is the collector, or the one that is known of its kind and names.
func registered[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := known.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

// Decided is given what was decided so far: by rule, "" where none applied and "other" beyond those that have a
// label, and by result. It is for who tells of it now and then.
func (m *Metrics) Decided(each func(namespace, rule, result string, decisions uint64)) {
	all := make(chan prometheus.Metric)
	go func() { // ends with the last one, which is waited for
		defer close(all)
		m.decisions.Collect(all)
	}()
	for c := range all {
		var read dto.Metric
		if err := c.Write(&read); err != nil {
			continue
		}
		label := map[string]string{}
		for _, l := range read.GetLabel() {
			label[l.GetName()] = l.GetValue()
		}
		if label["result"] != resultError {
			each(label["namespace"], label["rule"], label["result"], uint64(read.GetCounter().GetValue()))
		}
	}
}

// ruleLabel is the label of a rule: its name, as long as labels are left.
func (m *Metrics) ruleLabel(namespace, rule string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := [2]string{namespace, rule}
	if label, ok := m.labels[key]; ok {
		return label
	}
	if len(m.labels) >= maxRuleLabels {
		return otherRule
	}
	m.labels[key] = rule
	return rule
}

// series are the counters of one rule. Each is looked up when it is first
// used, so that a rule exports only what has happened, and no request after
// the first pays for a lookup by label.
type series struct {
	namespace, rule string
	decisions       [results]atomic.Pointer[prometheus.Counter]
	cost, near      lazyCounter
}

// lazyCounter is a counter that may not have been looked up yet.
type lazyCounter struct {
	found atomic.Pointer[prometheus.Counter]
}

func (l *lazyCounter) in(vec *prometheus.CounterVec, s *series) prometheus.Counter {
	if c := l.found.Load(); c != nil {
		return *c
	}
	c := vec.WithLabelValues(s.namespace, s.rule)
	l.found.Store(&c)
	return c
}

func (s *series) count(m *Metrics, d *limit.Decision, req *limit.Request) {
	res := resultOf(d, req)
	c := s.decisions[res].Load()
	if c == nil {
		fresh := m.decisions.WithLabelValues(s.namespace, s.rule, resultNames[res])
		c = &fresh
		s.decisions[res].Store(c)
	}
	(*c).Inc()
	if !d.Allowed || req.Peek {
		return
	}
	if d.Cost > 0 {
		s.cost.in(m.cost, s).Add(float64(d.Cost))
	}
	if d.Near {
		s.near.in(m.near, s).Inc()
	}
}
