package httpapi

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Two surfaces of one program may each make their Metrics with the same registry: they count
// together, and nobody panics.
func TestMetricsOfOneRegistryCountTogether(t *testing.T) {
	for name, reg := range map[string]prometheus.Registerer{
		"plain":   prometheus.NewRegistry(),
		"labeled": prometheus.WrapRegistererWith(prometheus.Labels{"node": "a"}, prometheus.NewRegistry()),
	} {
		one, other := NewMetrics(reg), NewMetrics(reg)
		one.panics.Inc()
		other.panics.Inc()
		one.decisions.WithLabelValues("acme", "api", "allow").Inc()
		other.decisions.WithLabelValues("acme", "api", "allow").Inc()
		other.duration.WithLabelValues("http").Observe(1)
		if got := testutil.ToFloat64(one.panics); got != 2 {
			t.Errorf("%s: %v panics, want 2", name, got)
		}
		if got := testutil.ToFloat64(one.decisions.WithLabelValues("acme", "api", "allow")); got != 2 {
			t.Errorf("%s: %v decisions, want 2", name, got)
		}
	}
}

// Whoever tells of decisions reads what the metrics have, but for what has no rule.
func TestMetricsDecided(t *testing.T) {
	m := NewMetrics(nil)
	m.decisions.WithLabelValues("acme", "api", "allow").Add(2)
	m.decisions.WithLabelValues("acme", "", "none").Inc()
	m.undecided.Inc()
	got := map[[3]string]uint64{}
	m.Decided(func(namespace, rule, result string, n uint64) { got[[3]string{namespace, rule, result}] = n })
	if want := (map[[3]string]uint64{{"acme", "api", "allow"}: 2, {"acme", "", "none"}: 1}); !maps.Equal(got, want) {
		t.Errorf("Decided gives %v, want %v", got, want)
	}
}

// Where a name is somebody else's, that is a mistake of the program.
func TestMetricsOfTakenNamesPanic(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "spillgate_decisions_total", Help: "Of somebody else."}))
	defer func() {
		if recover() == nil {
			t.Error("metrics that nobody sees were made without a word")
		}
	}()
	NewMetrics(registry)
}
