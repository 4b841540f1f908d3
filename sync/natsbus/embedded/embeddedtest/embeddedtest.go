// Package embeddedtest has tests begin with a JetStream of their own.
package embeddedtest

import (
	"testing"

	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsbus/embedded"
)

// JetStream is a server that keeps its streams in a directory, and a connection to it; both end with the test.
func JetStream(t testing.TB, dir string) (*natsbus.Bus, *embedded.Server) {
	t.Helper()
	server, err := embedded.Start(embedded.Options{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	bus, err := natsbus.Connect(natsbus.Config{InProcess: server.InProcess()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() }) // it loses nothing that a test asks about
	return bus, server
}
