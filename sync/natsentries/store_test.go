package natsentries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/sync/natsbus/embedded/embeddedtest"
)

const rules = "rules"

func openJS(t testing.TB, dir string) (jetstream.JetStream, func()) {
	t.Helper()
	bus, server := embeddedtest.JetStream(t, dir)
	js, err := bus.JetStream("")
	if err != nil {
		t.Fatal(err)
	}
	return js, server.Shutdown
}

func newStore(t testing.TB) (*Store, jetstream.JetStream) {
	t.Helper()
	js, _ := openJS(t, t.TempDir())
	s, err := Make(t.Context(), js, rules, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	return s, js
}

// tier is an entry of a tenant of acme; "" takes it away.
func tier(tenant, name string) Entry {
	e := Entry{Kind: "tenant", Namespace: "acme", Name: tenant, Author: "ada", Message: "because"}
	if e.Deleted = name == ""; !e.Deleted {
		e.Body = json.RawMessage(`{"tier":"` + name + `"}`)
	}
	return e
}

// put writes an entry over the one that is there.
func put(t testing.TB, s *Store, e Entry) Entry {
	t.Helper()
	was, err := s.Get(t.Context(), e.Kind, e.Namespace, e.Name)
	if err != nil && !errors.Is(err, ErrNone) && !errors.Is(err, ErrBad) {
		t.Fatal(err)
	}
	e, err = s.Put(t.Context(), e, was)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEntries(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	now := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	s.now = func() time.Time { return now }
	if _, err := s.Get(t.Context(), "tenant", "acme", "a"); !errors.Is(err, ErrNone) {
		t.Errorf("Get of what is not there: %v, want ErrNone", err)
	}
	e := tier("a.b *>\n", "gold")
	e.Namespace, e.Until, e.Body = "a.b", now.Add(time.Hour), json.RawMessage("{ \"multiply\" :\n3.5 }")
	first := put(t, s, e)
	want := Entry{Kind: "tenant", Namespace: "a.b", Name: "a.b *>\n", At: now.Truncate(time.Microsecond), Until: now.Add(time.Hour).Truncate(time.Microsecond),
		Author: "ada", Message: "because", Body: json.RawMessage(`{"multiply":3.5}`), Revision: 1}
	if got, err := s.Get(t.Context(), e.Kind, e.Namespace, e.Name); err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(first, want) {
		t.Errorf("Get = %+v, %v, and Put %+v, want %+v", got, err, first, want)
	}
	now = now.Add(-time.Hour) // the clock of who writes is set back
	second := put(t, s, e)
	if !second.At.After(first.At) || second.Revision <= first.Revision {
		t.Errorf("%+v after %+v, want a newer one", second, first)
	}
	for _, was := range []Entry{{}, first} {
		if _, err := s.Put(t.Context(), e, was); !errors.Is(err, ErrConflict) {
			t.Errorf("Put over %+v: %v, want ErrConflict", was, err)
		}
	}
	e.Deleted, e.Body, e.Until = true, nil, time.Time{}
	put(t, s, e)
	if got, err := s.Get(t.Context(), e.Kind, e.Namespace, e.Name); err != nil || !got.Gone(now) {
		t.Errorf("Get of what was taken away = %+v, %v", got, err)
	}
	if got := put(t, s, Entry{Kind: "capacity", Name: "api", Body: json.RawMessage(`{"value":0.5}`)}); got.key() != "capacity.YXBp" {
		t.Errorf("a thing of no namespace has the key %s", got.key())
	}
	if _, err := Open(t.Context(), js, "other"); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "rules init") {
		t.Errorf("Open of no bucket: %v, want ErrNone", err)
	}
	if _, err := Make(t.Context(), js, rules, "", 1); err != nil {
		t.Errorf("Make again: %v", err)
	}
}

// What has gone goes from the bucket when it may be forgotten, and what holds for good stays.
func TestGoneGoes(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	ends := tier("a", "gold")
	ends.Until = time.Now().Add(time.Hour)
	for e, want := range map[*Entry]time.Duration{new(tier("b", "")): Keep, &ends: Keep + time.Hour, new(tier("c", "gold")): 0} {
		got := put(t, s, *e)
		m, err := s.stream.GetMsg(t.Context(), got.Revision)
		if err != nil {
			t.Fatal(err)
		}
		ttl, _ := time.ParseDuration(m.Header.Get(jetstream.MsgTTLHeader))
		if ttl > want || ttl < want-2*time.Second {
			t.Errorf("entry %+v goes after %v, want %v", got, ttl, want)
		}
	}
}

// Of two who have seen the same entry one is told.
func TestOneOfTwoWins(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	was := put(t, s, tier("a", "gold"))
	var mu sync.Mutex
	results := map[bool]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := s.Put(context.Background(), tier("a", "silver"), was)
			if err != nil && !errors.Is(err, ErrConflict) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			results[err == nil]++
		})
	}
	all.Wait()
	if results[true] != 1 || results[false] != 7 {
		t.Errorf("%d of 8 have written over one, %d are told", results[true], results[false])
	}
}

func TestBadEntries(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	body := json.RawMessage("{}")
	for name, e := range map[string]Entry{
		"no kind":          {Name: "a", Body: body},
		"a kind":           {Kind: "a.b", Name: "a", Body: body},
		"a namespace":      {Kind: "a", Namespace: "*", Name: "a", Body: body},
		"no name":          {Kind: "a", Body: body},
		"a long name":      {Kind: "a", Name: strings.Repeat("a", MaxName+1), Body: body},
		"a name":           {Kind: "a", Name: "\xff", Body: body},
		"no body":          {Kind: "a", Name: "a"},
		"a body":           {Kind: "a", Name: "a", Body: json.RawMessage("1")},
		"half a body":      {Kind: "a", Name: "a", Body: json.RawMessage("{")},
		"a long body":      {Kind: "a", Name: "a", Body: json.RawMessage(`{"a":"` + strings.Repeat("a", MaxBody) + `"}`)},
		"body and deleted": {Kind: "a", Name: "a", Body: body, Deleted: true},
		"author":           {Kind: "a", Name: "a", Body: body, Author: strings.Repeat("a", 201)},
		"message":          {Kind: "a", Name: "a", Body: body, Message: "\xff"},
	} {
		if _, err := s.Put(t.Context(), e, Entry{}); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v, want ErrBad", name, err)
		}
		if _, errs := s.PutAll(t.Context(), []Change{{Entry: tier("a", "gold")}, {Entry: e}}); len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], ErrBad) {
			t.Errorf("%s, of two: %v, want ErrBad of it alone", name, errs)
		}
	}
	if n, _, err := s.state(t.Context()); n != 0 || err != nil {
		t.Errorf("%d are written, %v, want none", n, err)
	}
	if _, err := s.Put(t.Context(), Entry{Kind: "a", Name: strings.Repeat("a", MaxName), Body: body}, Entry{}); err != nil {
		t.Errorf("the longest name: %v", err)
	}
}

// Many are written side by side, and listed a page at a time, in the order in which they were written.
func TestListMany(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	put(t, s, Entry{Kind: "capacity", Name: "api", Body: json.RawMessage(`{}`)})
	var changes []Change
	for i := range 5000 {
		changes = append(changes, Change{Entry: tier(fmt.Sprint(i), "gold")})
	}
	written, errs := s.PutAll(t.Context(), changes)
	if errs != nil {
		t.Fatal(errors.Join(errs...))
	}
	other := tier("other", "gold")
	other.Namespace = "acme.eu"
	put(t, s, other)
	again := []Change{{tier("7", "silver"), written[7]}, {tier("8", "silver"), Entry{}}}
	if _, errs := s.PutAll(t.Context(), again); len(errs) != 2 || errs[0] != nil || !errors.Is(errs[1], ErrConflict) {
		t.Errorf("over one that was seen, and one that was not: %v, want ErrConflict of the other", errs)
	}
	if _, err := s.js.Publish(t.Context(), "$KV.rules_entries.tenant.acme.YQ", []byte("{")); err != nil {
		t.Fatal(err)
	}
	var names []string
	var unread []error
	for more := uint64(0); ; {
		page, next, bad, err := s.List(t.Context(), "tenant", "acme", more, 1500)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			names = append(names, e.Name)
		}
		unread = append(unread, bad...)
		if more = next; more == 0 {
			break
		}
	}
	if len(names) != 5000 || names[0] != "0" || names[4999] != "7" || len(unread) != 1 {
		t.Errorf("%d are listed, %q to %q, and unread %v; want 5000, 0 to 7", len(names), names[0], names[len(names)-1], unread)
	}
	if all, _, _, err := s.List(t.Context(), "tenant", "", 0, 9000); err != nil || len(all) != 5001 {
		t.Errorf("%d are listed of all namespaces, %v, want 5001", len(all), err)
	}
}
