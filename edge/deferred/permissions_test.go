package deferred

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/test/proc"
)

// as is the JetStream of eu for a user of deploy/nats/users.conf, at a server.
func as(t *testing.T, users *proc.NATSUsers, user, inbox, url string) jetstream.JetStream {
	t.Helper()
	bus, err := natsbus.Connect(natsbus.Config{URLs: []string{url}, Name: t.Name(), NKeySeedFile: users.SeedFile(t, user), InboxPrefix: inbox})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	js, err := bus.JetStream("eu")
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// With the shipped configuration of NATS, an edge behind its PoP's leaf keeps requests in
// its region's JetStream, a leaf too, once an operator has made the streams for them, and
// may do nothing else there.
func TestUnderPermissions(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	hub := proc.NATSCluster(t, users, "eu", 1)
	proc.NATSJetStream(t, users, "eu", hub.Leafs[0], t.TempDir())
	leaf := proc.NATSLeaf(t, users, "POP_AMS", hub.Leafs[0])
	js := as(t, users, "POP_AMS", "_INBOX_eu.ams.e1", leaf.URL)
	operator := as(t, users, "OPERATOR", "_INBOX_eu.eu.operator", hub.URLs()[0])
	cfg := Config{Region: "eu", Tries: 1, Timeout: 5 * time.Second}

	// Without the streams nothing waits, and the edge says so; it makes none. With them
	// it goes on, by itself.
	f := NewFront(site(t, time.Hour, &upstream{}), FrontConfig{})
	get(f, call("PUT", "/", "")) // there is room for one
	stop := runs(t, f, js, cfg)
	troubled(t, f, reasonMissing)
	if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusTooManyRequests {
		t.Errorf("%d %s, want 429", w.Code, w.Body)
	}
	if err := f.Trouble(); !strings.Contains(err.Error(), "SG_DEFER_eu is missing") || !strings.HasSuffix(err.Error(), DefaultCommand) {
		t.Errorf("%v, want what is missing, and the command", err)
	}
	if p := plan(t, operator); p.reason() != reasonMissing || len(streams(t, operator)) != 0 {
		t.Fatalf("%s; streams %v; want none", p, streams(t, operator))
	}
	if err := plan(t, js).Apply(t.Context()); err == nil {
		t.Error("a PoP makes the queue")
	}
	if err := plan(t, operator).Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	// As edges made them once they serve, too, until the operator changes that.
	alter(t, operator, "KV_SG_DEFERRED_eu", func(c *jetstream.StreamConfig) { c.AllowRollup, c.SubjectDeleteMarkerTTL = true, markerTTL })
	troubled(t, f, reasonSettings)
	if w := get(f, call("PUT", "/", "x")); w.Code != http.StatusAccepted {
		t.Errorf("%d %s, want 202", w.Code, w.Body)
	}
	if err := plan(t, operator).Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	troubled(t, f, "")
	stop()
	q, err := Open(t.Context(), js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.waiting.DeleteMsg(t.Context(), 1); err != nil { // there is no room for it
		t.Fatal(err)
	}
	id := put(t, q, "acme", time.Time{})
	if list, err := q.Waiting(t.Context(), "acme", 0, 10); err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("%+v, %v wait; want %s", list, err, id)
	}
	if list, of, err := q.Tenants(t.Context(), 10); err != nil || of != 1 || len(list) != 1 || list[0].Tenant != "acme" {
		t.Errorf("%+v, %v of %d; want acme", list, err, of)
	}
	stop = work(t, q, does(200))
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

	if _, err := Open(t.Context(), js, Config{Region: "us", Timeout: time.Second}); err == nil {
		t.Error("an edge has the queue of another region")
	}
	made := fmt.Sprint(described(t, operator))
	for name, nc := range map[string]*nats.Conn{
		"a PoP, over its leaf": js.Conn(),
		"a PoP, at its region": as(t, users, "POP_AMS", "_INBOX_eu.ams.e2", hub.URLs()[0]).Conn(),
		"who runs the leaf":    as(t, users, "OPERATOR", "_INBOX_eu.ams.e3", leaf.URL).Conn(),
	} {
		for subject, answer := range answered(t, nc, fmt.Sprintf("_INBOX_eu.ams.h%d", len(name)), forbidden()) {
			t.Errorf("%s: %s is answered: %s", name, subject, answer)
		}
	}
	rollup := nats.NewMsg(q.noteOf(NewID()))
	rollup.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupAll)
	if _, err := js.PublishMsg(t.Context(), rollup); err == nil {
		t.Error("a PoP empties the bucket by a rollup")
	}
	if is := fmt.Sprint(described(t, operator)); is != made {
		t.Errorf("JetStream has\n%s, want\n%s", is, made)
	}
}

// forbidden is what is asked of JetStream's API to make, change, empty, copy or delete what
// it has, or to read it otherwise than edges do.
func forbidden() (subjects []string) {
	for _, stream := range []string{"SG_DEFER_eu", "SG_DEAD_eu", "KV_SG_DEFERRED_eu", "OTHER"} {
		for _, verb := range []string{"STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.SNAPSHOT", "STREAM.RESTORE", "STREAM.LEADER.STEPDOWN", "STREAM.PEER.REMOVE", "CONSUMER.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST"} {
			subjects = append(subjects, "$JS.eu.API."+verb+"."+stream)
		}
		for _, verb := range []string{"CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.DELETE", "CONSUMER.PAUSE", "CONSUMER.RESET", "CONSUMER.UNPIN", "CONSUMER.LEADER.STEPDOWN"} {
			subjects = append(subjects, "$JS.eu.API."+verb+"."+stream+".replay", "$JS.eu.API."+verb+"."+stream+".other")
		}
		subjects = append(subjects, "$JS.eu.API.CONSUMER.CREATE."+stream+".replay.sg.v1.>", "$JS.eu.API.CONSUMER.MSG.NEXT."+stream+".other")
	}
	return append(subjects, "$JS.eu.API.STREAM.MSG.DELETE.KV_SG_DEFERRED_eu", "$JS.eu.API.STREAM.LIST", "$JS.eu.API.STREAM.NAMES", "$JS.eu.API.INFO", "$JS.eu.API.META.LEADER.STEPDOWN")
}

// answered is what JetStream says to requests, of those that reach it.
func answered(t *testing.T, nc *nats.Conn, inbox string, subjects []string) map[string]string {
	t.Helper()
	sub, err := nc.SubscribeSync(inbox + ".*")
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	const may = "$JS.eu.API.STREAM.INFO.SG_DEFER_eu"
	ask := func(of []string) map[string]string {
		told := map[string]string{}
		for i, subject := range of {
			_, stream, _ := strings.Cut(subject, "SG_")
			body, _ := json.Marshal(map[string]any{"name": "SG_" + stream, "subjects": []string{"sg.v1.dead.eu.x"}, "stream_name": "SG_" + stream, "config": map[string]any{"ack_policy": "explicit"}})
			if err := nc.PublishRequest(subject, fmt.Sprint(inbox, ".", i), body); err != nil {
				t.Fatal(err)
			}
		}
		for {
			m, err := sub.NextMsg(time.Second)
			switch {
			case errors.Is(err, nats.ErrNoResponders): // one of them is not passed on
				continue
			case err != nil:
				return told
			}
			var i int
			if _, err := fmt.Sscanf(m.Subject[len(inbox):], ".%d", &i); err != nil {
				t.Fatal(err)
			}
			told[of[i]] = string(m.Data)
		}
	}
	proc.Until(t, time.Minute, func() error { // answers find their way
		if len(ask([]string{may})) == 0 {
			return errors.New("what is allowed is not answered")
		}
		return nil
	})
	told := ask(append(subjects, may))
	if told[may] == "" {
		t.Error("what is allowed is not answered any more")
	}
	delete(told, may)
	return told
}

// described is how JetStream has its streams and consumers.
func described(t *testing.T, js jetstream.JetStream) (all []string) {
	t.Helper()
	for _, name := range streams(t, js) {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		config, _ := json.Marshal(s.CachedInfo().Config)
		all = append(all, fmt.Sprintf("%s with %d messages\n", config, s.CachedInfo().State.Msgs))
		list := s.ListConsumers(t.Context())
		for c := range list.Info() {
			config, _ := json.Marshal(c.Config)
			all = append(all, fmt.Sprintf("%s\n", config))
		}
		if err := list.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
