package deferred

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/test/proc"
)

// With the shipped configuration of NATS, an edge behind its PoP's leaf keeps requests in
// its region's JetStream, a leaf too, and may do nothing else there.
func TestUnderPermissions(t *testing.T) {
	users := proc.NewNATSUsers(t)
	hub := proc.NATSCluster(t, users, "eu", 1)
	proc.NATSJetStream(t, users, "eu", hub.Leafs[0], t.TempDir())
	leaf := proc.NATSLeaf(t, users, "POP_AMS", hub.Leafs[0])
	bus, err := natsbus.Connect(natsbus.Config{URLs: []string{leaf.URL}, Name: t.Name(), NKeySeedFile: users.SeedFile(t, "POP_AMS"), InboxPrefix: "_INBOX_eu.ams.e1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	js, err := bus.JetStream("eu")
	if err != nil {
		t.Fatal(err)
	}
	var q *Queue
	proc.Until(t, time.Minute, func() (err error) { // leafs have yet to tell each other what they serve
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		q, err = Open(ctx, js, Config{Region: "eu", Tries: 1, Timeout: 5 * time.Second})
		return err
	})
	id := put(t, q, "acme", time.Time{})
	if list, err := q.Waiting(t.Context(), "acme", 0, 10); err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("%+v, %v wait; want %s", list, err, id)
	}
	if list, of, err := q.Tenants(t.Context(), 10); err != nil || of != 1 || len(list) != 1 || list[0].Tenant != "acme" {
		t.Errorf("%+v, %v of %d; want acme", list, err, of)
	}
	stop := work(t, q, does(200))
	becomes(t, q, id, Done)
	stop()
	stop = work(t, q, does(500))
	id = put(t, q, "acme", time.Time{})
	becomes(t, q, id, Dead)
	stop()
	if letters, err := q.Dead(t.Context(), 0, 10); err != nil || len(letters) != 1 || letters[0].ID != id {
		t.Errorf("%+v, %v; want the letter of %s", letters, err, id)
	}
	again, err := q.Revive(t.Context(), id)
	if err != nil {
		t.Error(err)
	}
	work(t, q, does(201))
	becomes(t, q, again, Done)

	late := request("acme")
	if _, err := q.statuses.Create(t.Context(), late.ID, []byte("another's")); err != nil {
		t.Error(err)
	}
	if err := q.Put(t.Context(), late); !errors.Is(err, ErrUnavailable) {
		t.Errorf("what cannot be noted: %v, want ErrUnavailable", err)
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 0 {
		t.Errorf("%d wait, %v; want that it is taken back", waiting, err)
	}

	refused := func(what string, call func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := call(ctx); err == nil {
			t.Errorf("an edge may %s", what)
		}
	}
	refused("delete the queue", func(ctx context.Context) error { return js.DeleteStream(ctx, q.stream) })
	refused("make a stream of its own", func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other.>"}})
		return err
	})
	refused("have the queue of another region", func(ctx context.Context) error {
		_, err := Open(ctx, js, Config{Region: "us", Timeout: time.Second})
		return err
	})
	refused("purge the dead", func(ctx context.Context) error {
		s, err := js.Stream(ctx, q.dead)
		if err != nil {
			return err
		}
		return s.Purge(ctx)
	})
	refused("consume the dead", func(ctx context.Context) error {
		_, err := js.CreateConsumer(ctx, q.dead, jetstream.ConsumerConfig{Durable: "replay"})
		return err
	})
}
