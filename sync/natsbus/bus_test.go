package natsbus

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/bustest"
	"github.com/spillgate/spillgate/sync/natsbus/embedded"
	"github.com/spillgate/spillgate/test/proc"
)

// connect opens a bus that the test closes.
func connect(t testing.TB, cfg Config) *Bus {
	t.Helper()
	b, err := Connect(cfg)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// startEmbedded starts a server that ends after the buses of the test.
func startEmbedded(t testing.TB, o embedded.Options) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatalf("embedded server: %v", err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func TestBusInProcess(t *testing.T) {
	bustest.Run(t, func(t *testing.T) (a, b deltasync.Bus) {
		cfg := Config{InProcess: startEmbedded(t, embedded.Options{}).InProcess()}
		return connect(t, cfg), connect(t, cfg)
	})
}

func TestBusOverTCP(t *testing.T) {
	bustest.Run(t, func(t *testing.T) (a, b deltasync.Bus) {
		s := startEmbedded(t, embedded.Options{Listen: "127.0.0.1:0"})
		return connect(t, Config{URLs: []string{s.ClientURL()}, InboxPrefix: "_INBOX_eu.a"}),
			connect(t, Config{URLs: []string{s.ClientURL()}, InboxPrefix: "_INBOX_eu.b"})
	})
}

// TestBusWithServerProcess needs no fresh server for each part: the parts
// leave nothing behind once their buses are closed.
func TestBusWithServerProcess(t *testing.T) {
	conf, err := filepath.Abs("../../deploy/nats/single.conf")
	if err != nil {
		t.Fatal(err)
	}
	s := proc.NATS(t, "-c", conf, "-m", strconv.Itoa(proc.FreePort(t)))
	bustest.Run(t, func(t *testing.T) (a, b deltasync.Bus) {
		return connect(t, Config{URLs: []string{s.URL}}), connect(t, Config{URLs: []string{s.URL}})
	})
}

func BenchmarkRequestInProcess(b *testing.B) {
	cfg := Config{InProcess: startEmbedded(b, embedded.Options{}).InProcess()}
	benchmarkRequest(b, connect(b, cfg), connect(b, cfg))
}

func BenchmarkRequestOverTCP(b *testing.B) {
	cfg := Config{URLs: []string{startEmbedded(b, embedded.Options{Listen: "127.0.0.1:0"}).ClientURL()}}
	benchmarkRequest(b, connect(b, cfg), connect(b, cfg))
}

// benchmarkRequest is the round trip of a frame of usual size.
func benchmarkRequest(b *testing.B, server, edge *Bus) {
	if _, err := server.Serve("sg.v1.up.eu.0", "agg-eu", func(_ context.Context, _ string, p []byte) []byte { return p }); err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 1500)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := edge.Request(b.Context(), "sg.v1.up.eu.0", payload); err != nil {
			b.Fatal(err)
		}
	}
}
