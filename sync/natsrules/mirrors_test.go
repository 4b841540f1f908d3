package natsrules

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/test/proc"
)

// Each region has a mirror in its own domain: a change is there within a second, and what is there
// stays where the region that writes is gone. Edges and aggregators read it by their own rights, and
// change nothing.
func TestMirrorsPerRegion(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGateways(t, users, "eu", "us")
	servers, stores := map[string]*proc.NATSServer{}, map[string]*Store{}
	books := map[string]*book{}
	for _, region := range []string{"eu", "us"} {
		servers[region] = proc.NATSJetStream(t, users, region, sites[region].Leafs[0], t.TempDir())
		js := connectTo(t, users, "OPERATOR", "", sites[region].URLs()[0], region)
		origin := ""
		if region != "eu" {
			origin = "eu"
		}
		proc.Until(t, heals, func() (err error) { // the domain is heard of
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			stores[region], err = Make(ctx, js, Bucket, origin, 1)
			return err
		})
		if region == "eu" {
			js = connectTo(t, users, "AGG_EU", "_INBOX_eu.a1", sites[region].URLs()[0], region)
		}
		books[region] = newBook(t, "", js)
		books[region].run()
	}
	put(t, stores["eu"], "a", "1")
	books["eu"].has("a=1")
	books["us"].has("a=1")
	began := time.Now()
	put(t, stores["eu"], "a", "2")
	books["us"].has("a=2")
	t.Logf("a change was in force in the other region after %v", time.Since(began))
	books["us"].until("all to be heard", func(s Status) bool { return time.Since(s.Heard) < heals })

	pop := connectTo(t, users, "POP_IAD", "_INBOX_us.iad.e1", sites["us"].URLs()[0], "us")
	reads, err := Open(t.Context(), pop, Bucket)
	if err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(context.Context) error{
		"writes": func(ctx context.Context) error {
			_, err := reads.Put(ctx, Version{Namespace: "b", Text: "1"}, 0)
			return err
		},
		"deletes":        func(ctx context.Context) error { return reads.kv.Delete(ctx, key("a")) },
		"makes a bucket": func(ctx context.Context) error { _, err := Make(ctx, pop, "others", "", 1); return err },
		"takes one away": func(ctx context.Context) error { return pop.DeleteKeyValue(ctx, Bucket) },
		"has a consumer": func(ctx context.Context) error { _, err := reads.kv.WatchAll(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := do(ctx); err == nil {
			t.Errorf("a PoP %s", what)
		}
		cancel()
	}
	aggregatorsWriteAndTakeNothingAway(t, users, sites["us"].URLs()[0], stores["us"])
	books["eu"].has("a=2", "b=1")
	servers["eu"].Kill()
	late := newBook(t, "", pop)
	late.run()
	late.has("a=2", "b=1")
	servers["eu"].Restart()
	proc.Until(t, heals, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		v, err := stores["eu"].Get(ctx, "a")
		if err == nil && v.Number == 2 {
			_, err = stores["eu"].Put(ctx, Version{Namespace: "a", Text: "3"}, 2)
		}
		return err
	})
	books["us"].has("a=3", "b=1")
	late.has("a=3", "b=1")
	books["eu"].has("a=3", "b=1")
}

// aggregatorsWriteAndTakeNothingAway: those of a region with a mirror make versions where it is from, and
// append to the audit log of their own region; they take nothing away of that, nor any stream. A PoP cannot
// append.
func aggregatorsWriteAndTakeNothingAway(t *testing.T, users *proc.NATSUsers, url string, mirror *Store) {
	t.Helper()
	if err := natsaudit.Make(t.Context(), connectTo(t, users, "OPERATOR", "", url, "us"), Bucket, 1); err != nil {
		t.Fatal(err)
	}
	agg := connectTo(t, users, "AGG_US", "_INBOX_us.a1", url, "us")
	writes, err := Open(t.Context(), agg, Bucket)
	if err != nil {
		t.Fatal(err)
	}
	log, err := natsaudit.Open(t.Context(), agg, "us", Bucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(t.Context(), natsaudit.Entry{Who: "ada", Action: "put"}); err != nil {
		t.Error(err)
	}
	if _, err := writes.Put(t.Context(), Version{Namespace: "b", Text: "1"}, 0); err != nil {
		t.Error(err)
	}
	proc.Until(t, heals, func() error { _, err := mirror.Get(t.Context(), "b"); return err })
	pop := connectTo(t, users, "POP_IAD", "_INBOX_us.iad.e2", url, "us")
	const stream = "KV_" + Bucket + "_audit"
	for what, do := range map[string]func(context.Context) error{
		"a PoP appends to the audit log": func(ctx context.Context) error {
			_, err := pop.Publish(ctx, "$JS.us.API.$KV."+Bucket+"_audit.x", []byte("{}"))
			return err
		},
		"a PoP reads the audit log":              func(ctx context.Context) error { _, err := natsaudit.Open(ctx, pop, "us", Bucket); return err },
		"an aggregator empties the audit log":    func(ctx context.Context) error { return purge(ctx, agg, stream) },
		"an aggregator takes the audit log away": func(ctx context.Context) error { return agg.DeleteStream(ctx, stream) },
		"an aggregator takes the rules away":     func(ctx context.Context) error { return agg.DeleteKeyValue(ctx, Bucket) },
		"an aggregator makes a bucket":           func(ctx context.Context) error { _, err := Make(ctx, agg, "others", "", 1); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := do(ctx); err == nil {
			t.Error(what)
		}
		cancel()
	}
	entries, _, err := log.Read(t.Context(), 0, 10, func(*natsaudit.Entry) bool { return true })
	if err != nil || len(entries) != 1 || entries[0].Who != "ada" {
		t.Errorf("the audit log has %+v, %v, want what ada did", entries, err)
	}
}

func purge(ctx context.Context, js jetstream.JetStream, name string) error {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

func connectTo(t testing.TB, users *proc.NATSUsers, user, inbox, url, domain string) jetstream.JetStream {
	t.Helper()
	bus, err := natsbus.Connect(natsbus.Config{URLs: []string{url}, InboxPrefix: inbox, NKeySeedFile: users.SeedFile(t, user)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	js, err := bus.JetStream(domain)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
