package natsentries

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/test/proc"
)

// Each region has a mirror in its own domain: a change is there within a second, and what is there stays
// where the region that writes is gone. Edges and aggregators read it by their own rights, and change
// nothing; aggregators of either region write.
func TestMirrorsPerRegion(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGateways(t, users, "eu", "us")
	servers, books, urls := map[string]*proc.NATSServer{}, map[string]*book{}, map[string]string{}
	pops := map[string][2]string{"eu": {"POP_AMS", "_INBOX_eu.ams.e1"}, "us": {"POP_IAD", "_INBOX_us.iad.e1"}}
	for _, region := range []string{"eu", "us"} {
		servers[region] = proc.NATSJetStream(t, users, region, sites[region].Leafs[0], t.TempDir())
		urls[region] = sites[region].URLs()[0]
		js := connectTo(t, users, "OPERATOR", "", urls[region], region)
		origin := ""
		if region != "eu" {
			origin = "eu"
		}
		proc.Until(t, heals, func() error { // the domain is heard of
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := Make(ctx, js, rules, origin, 1)
			return err
		})
		books[region] = newBook(t, "", connectTo(t, users, pops[region][0], pops[region][1], urls[region], region))
		books[region].run()
	}
	eu := open(t, connectTo(t, users, "AGG_EU", "_INBOX_eu.a1", urls["eu"], "eu"))
	us := open(t, connectTo(t, users, "AGG_US", "_INBOX_us.a1", urls["us"], "us"))
	put(t, eu, tier("a", "gold"))
	for _, b := range books {
		b.has("a=gold")
	}
	began := time.Now()
	put(t, us, tier("a", "silver")) // to where it is from
	books["us"].has("a=silver")
	t.Logf("a change in the other region was in force in both after %v", time.Since(began))
	books["eu"].has("a=silver")
	var changes []Change
	for range 3000 {
		changes = append(changes, Change{Entry: tier(time.Now().String(), "")})
	}
	if _, errs := us.PutAll(t.Context(), changes); errs != nil {
		t.Fatal(errs[0])
	}
	agg := newBook(t, "", us.js) // aggregators follow, too, and list
	agg.run()
	agg.has("a=silver")
	proc.Until(t, heals, func() error {
		all, _, _, err := us.List(t.Context(), "tenant", "acme", 0, 5000)
		if err == nil && len(all) != 3001 {
			err = fmt.Errorf("%d of 3001 are listed", len(all))
		}
		return err
	})

	pop := open(t, connectTo(t, users, "POP_IAD", "_INBOX_us.iad.e2", urls["us"], "us"))
	deletes := func(js jetstream.JetStream) func(context.Context) error {
		return func(ctx context.Context) error { return js.DeleteKeyValue(ctx, nameOf(rules)) }
	}
	for what, do := range map[string]func(context.Context) error{
		"a PoP writes": func(ctx context.Context) error {
			_, err := pop.Put(ctx, tier("b", "gold"), Entry{})
			return err
		},
		"a PoP makes a bucket":                func(ctx context.Context) error { _, err := Make(ctx, pop.js, "others", "", 1); return err },
		"a PoP takes the bucket away":         deletes(pop.js),
		"an aggregator takes the bucket away": deletes(us.js),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := do(ctx); err == nil {
			t.Error(what)
		}
		cancel()
	}
	servers["eu"].Kill()
	late := newBook(t, "", pop.js)
	late.run()
	late.has("a=silver")
	servers["eu"].Restart()
	proc.Until(t, heals, func() error {
		was, err := eu.Get(t.Context(), "tenant", "acme", "a")
		if err == nil && was.Revision == 2 {
			_, err = eu.Put(t.Context(), tier("a", "bronze"), was)
		}
		return err
	})
	for _, b := range books {
		b.has("a=bronze")
	}
	late.has("a=bronze")
}

func open(t testing.TB, js jetstream.JetStream) *Store {
	t.Helper()
	s, err := Open(t.Context(), js, rules)
	if err != nil {
		t.Fatal(err)
	}
	return s
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
