package integration

import (
	"strconv"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// TestNATSOverTLS: daemons with certificates count together over a server that
// speaks to no others. Whoever has the wrong authority, or none, or asks for TLS
// where there is none, says why it is alone, decides, and joins nobody.
func TestNATSOverTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := proc.NewAuthority(t), proc.NewAuthority(t)
	addr := proc.FreeAddr(t)
	nats := proc.NATSAt(t, addr, append([]string{"-c", shipped(t, "deploy/nats/single.conf"), "-m", strconv.Itoa(proc.FreePort(t))}, ours.NATSArgs(t)...)...)
	as := func(ca, name string) []string {
		cert, key := ours.Client(t, name)
		return []string{"--nats-tls-ca", ca, "--nats-tls-cert", cert, "--nats-tls-key", key}
	}
	startAggregator(t, "eu", "us", nats.URL, startRedis(t).Addr, as(ours.CA, "agg-1")...)
	one := startEdge(t, "eu", "eu-1", nats.URL, "testdata/rules.yaml", as(ours.CA, "eu-1")...)
	two := startEdge(t, "eu", "eu-2", nats.URL, "testdata/rules.yaml", as(ours.CA, "eu-2")...)
	one.charge(t, "all", 2)
	two.charge(t, "all", 3)
	agree(t, settles, counts{"all": 5}, one, two)

	strange, strangeKey := theirs.Client(t, "eu-7")
	plain := startNATS(t, proc.FreeAddr(t))
	for _, c := range []struct {
		name, url string
		args      []string
		says      string
	}{
		{"eu-3", nats.URL, as(theirs.CA, "eu-3"), "certificate signed by unknown authority"},
		{"eu-4", nats.URL, nil, "certificate signed by unknown authority"},
		{"eu-5", nats.URL, []string{"--nats-tls-ca", ours.CA}, "the server asks for a client certificate: tls.cert is not set"},
		{"eu-6", plain.URL, as(ours.CA, "eu-6"), "secure connection not available"},
		{"eu-7", nats.URL, []string{"--nats-tls-ca", ours.CA, "--nats-tls-cert", strange, "--nats-tls-key", strangeKey}, "the server asks for a client certificate: shown tls.cert " + strange},
	} {
		e := startEdge(t, "eu", c.name, c.url, "testdata/rules.yaml", c.args...)
		e.charge(t, "all", 1)
		proc.Until(t, settles, func() error { return logs(e, c.says) })
		awaitMetric(t, settles, e.Admin, `spillgate_degraded{reason="sync"}`, 1)
	}
	agree(t, settles, counts{"all": 5}, one, two)
}
