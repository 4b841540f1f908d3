package membus

import (
	"context"
	"testing"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/bustest"
)

func TestBus(t *testing.T) {
	bustest.Run(t, func(*testing.T) (a, b deltasync.Bus) {
		bus := New()
		return bus, bus.Connect()
	})
}

func TestImpairedByNothing(t *testing.T) {
	bustest.Run(t, func(*testing.T) (a, b deltasync.Bus) {
		bus := New()
		return Impair(bus, Faults{}), Impair(bus.Connect(), Faults{})
	})
}

func TestImpairedByDelay(t *testing.T) {
	slow := Faults{Link: func(string) Link { return Link{Delay: time.Millisecond} }}
	bustest.Run(t, func(*testing.T) (a, b deltasync.Bus) {
		bus := New()
		return Impair(bus, slow), Impair(bus.Connect(), slow)
	})
}

func BenchmarkRequest(b *testing.B) {
	server := New()
	if _, err := server.Serve("sg.v1.up.eu.0", "agg-eu", func(_ context.Context, _ string, p []byte) []byte { return p }); err != nil {
		b.Fatal(err)
	}
	edge := server.Connect()
	payload := make([]byte, 1500)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := edge.Request(b.Context(), "sg.v1.up.eu.0", payload); err != nil {
			b.Fatal(err)
		}
	}
}
