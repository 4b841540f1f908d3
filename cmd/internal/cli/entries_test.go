package cli

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsbus/embedded/embeddedtest"
	"github.com/spillgate/spillgate/sync/natsentries"
	"github.com/spillgate/spillgate/test/proc"
)

// Entries of tenants come to what a node asks; others that nobody knows, and bad ones, change nothing; and
// they are there again without NATS.
func TestEntriesOfTenants(t *testing.T) {
	bus, server := embeddedtest.JetStream(t, t.TempDir())
	js, err := bus.JetStream("")
	if err != nil {
		t.Fatal(err)
	}
	store, err := natsentries.Make(t.Context(), js, "rules", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	settings := configs.RulesSettings{Source: configs.SourceKV, KV: configs.RulesKVSettings{Bucket: "rules", File: filepath.Join(t.TempDir(), "good")}}
	open := func() (*Entries, *limit.Tenants, *prometheus.Registry) {
		t.Helper()
		tenants, reg := limit.NewTenants(nil), prometheus.NewRegistry()
		e, err := OpenEntries(settings, func() *natsbus.Bus { return bus }, reg, slog.New(slog.DiscardHandler), map[string]ApplyEntries{KindTenant: ApplyTenants(tenants)})
		if err != nil {
			t.Fatal(err)
		}
		return e, tenants, reg
	}
	put := func(kind, name, body string) {
		t.Helper()
		if _, err := store.Put(t.Context(), natsentries.Entry{Kind: kind, Namespace: "acme", Name: name, Body: []byte(body)}, natsentries.Entry{}); err != nil {
			t.Fatal(err)
		}
	}
	put("other", "a", "{}")
	put(KindTenant, "a", `{"tier":"gold"}`)
	put(KindTenant, "b", `{"multiply":3.5}`)
	put(KindTenant, "c", `{"tiers":"gold"}`)
	put(KindTenant, "d", `{"multiply":-1}`)
	if _, err := store.Put(t.Context(), natsentries.Entry{Kind: KindTenant, Namespace: "acme", Name: "ended", Body: []byte(`{"multiply":7}`), Until: time.Now().Add(-time.Second)}, natsentries.Entry{}); err != nil {
		t.Fatal(err)
	}
	e, tenants, reg := open()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	e.Await(ctx)
	if n := tenants.Len("acme"); n != 2 {
		t.Errorf("once it is known what stands there %d tenants have something, want 2", n)
	}
	const metrics = `# HELP spillgate_entries Entries beside the rules, by state: in_force; refused, whose newest is not good, and the one before stays; older and lacking, of which the bucket has an older one or none, and what is known stays.
# TYPE spillgate_entries gauge
spillgate_entries{state="in_force"} 4
spillgate_entries{state="lacking"} 0
spillgate_entries{state="older"} 0
spillgate_entries{state="refused"} 2
`
	proc.Until(t, time.Minute, func() error {
		if n := tenants.Len("acme"); n != 2 {
			return fmt.Errorf("%d tenants have something, want 2", n)
		}
		return testutil.GatherAndCompare(reg, strings.NewReader(metrics), "spillgate_entries")
	})
	cancel()
	running.Wait()
	server.Shutdown()
	if _, tenants, _ := open(); tenants.Len("acme") != 2 {
		t.Errorf("%d tenants have something without NATS, want 2", tenants.Len("acme"))
	}
	settings.Source = configs.SourceFile
	if e, err := OpenEntries(settings, nil, nil, nil, nil); e != nil || err != nil {
		t.Errorf("beside files there are entries: %v, %v", e, err)
	}
}
