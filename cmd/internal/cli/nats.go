package cli

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync/natsbus"
)

// NATS is how a daemon reaches its servers. inbox is what its replies are
// addressed to, so that permissions can keep one from reading another's; "" of an operator's,
// who may read all.
func NATS(s configs.NATSSettings, name, inbox string, log *slog.Logger) natsbus.Config {
	if inbox != "" {
		inbox = "_INBOX_" + inbox
	}
	return natsbus.Config{
		URLs: s.URLs, Name: name, InboxPrefix: inbox,
		CAFile: s.TLSCA, CertFile: s.TLSCert, KeyFile: s.TLSKey,
		CredsFile: s.Creds, NKeySeedFile: s.NKey, Logger: log,
	}
}

// natsMetrics tells how the connection to the servers fares.
type natsMetrics struct{ status func() natsbus.Status }

// NATSMetrics registers metrics of a bus.
func NATSMetrics(reg prometheus.Registerer, status func() natsbus.Status) {
	reg.MustRegister(&natsMetrics{status})
}

var (
	natsConnected  = prometheus.NewDesc("spillgate_nats_connected", "1 while this process has a NATS server, or has not yet noticed that it is silent.", nil, nil)
	natsReconnects = prometheus.NewDesc("spillgate_nats_reconnects_total", "Connections to NATS servers after the first.", nil, nil)
	natsLost       = prometheus.NewDesc("spillgate_nats_lost_messages_total", "Messages that arrived and that this process was too slow to take.", nil, nil)
	natsBytes      = prometheus.NewDesc("spillgate_nats_bytes_total", "Bytes of payload, by direction.", []string{"direction"}, nil)
)

// Describe implements prometheus.Collector.
func (m *natsMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *natsMetrics) Collect(ch chan<- prometheus.Metric) {
	st := m.status()
	connected := 0.0
	if st.Connected {
		connected = 1
	}
	ch <- prometheus.MustNewConstMetric(natsConnected, prometheus.GaugeValue, connected)
	ch <- prometheus.MustNewConstMetric(natsReconnects, prometheus.CounterValue, float64(st.Reconnects))
	ch <- prometheus.MustNewConstMetric(natsLost, prometheus.CounterValue, float64(st.Lost))
	ch <- prometheus.MustNewConstMetric(natsBytes, prometheus.CounterValue, float64(st.InBytes), "in")
	ch <- prometheus.MustNewConstMetric(natsBytes, prometheus.CounterValue, float64(st.OutBytes), "out")
}
