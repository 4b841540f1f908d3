package deferred

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Several who revive a dead letter at once, or again, have it wait once.
func TestRevivedAtOnceWaitsOnce(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{Tries: 1, Timeout: 10 * time.Second})
	stop := work(t, q, does(500))
	id := put(t, q, "acme", time.Time{})
	becomes(t, q, id, Dead)
	stop()
	ids := make([]string, 16)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			var err error
			if ids[i], err = q.Revive(t.Context(), id); err != nil {
				t.Errorf("reviver %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for _, again := range ids {
		if again != ids[0] || again == id {
			t.Fatalf("ids %v, want one new one", ids)
		}
	}
	if waiting, dead, err := q.Depth(t.Context()); err != nil || waiting != 1 || dead != 0 {
		t.Errorf("%d wait, %d are dead, %v; want that one waits", waiting, dead, err)
	}
	work(t, q, does(201))
	becomes(t, q, ids[0], Done)
	if again, err := q.Revive(t.Context(), id); err != nil || again != ids[0] {
		t.Errorf("revived once more: %s, %v; want %s", again, err, ids[0])
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 0 {
		t.Errorf("%d wait, %v; want none", waiting, err)
	}
}

// A client that asks again under its key is told of the request that waits already; but not
// where anything that matters is another's, or differs.
func TestSameKeyWaitsOnce(t *testing.T) {
	j, u := newJet(t), &upstream{}
	q := j.queue(j.connect(), Config{Timeout: 10 * time.Second})
	f := front(q, site(t, time.Hour, u), 0)
	ask := func(change func(r *http.Request)) (id, state string) {
		t.Helper()
		r := call("POST", "http://api.example/a?q=1", "body", IdempotencyKey, "k1", "Authorization", "a", "Traceparent", NewID())
		if change != nil {
			change(r)
		}
		w := get(f, r)
		var told struct{ ID, State string }
		if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || w.Code != http.StatusAccepted || w.Header().Get("Location") != StatusPath+told.ID {
			t.Fatalf("%d %v %s, want 202", w.Code, w.Header(), w.Body)
		}
		return told.ID, told.State
	}
	for _, from := range []string{"192.0.2.7:1", "192.0.2.8:1"} { // uses the limits up
		r := call("GET", "/", "")
		r.RemoteAddr = from
		get(f, r)
	}
	var mu sync.Mutex
	at := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			id, _ := ask(nil)
			mu.Lock()
			defer mu.Unlock()
			at[id]++
		})
	}
	wg.Wait()
	if len(at) != 1 {
		t.Fatalf("ids %v, want one", at)
	}
	var first string
	for first = range maps.Keys(at) {
	}
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	others := map[string]string{first: "the first"}
	for name, change := range map[string]func(*http.Request){
		"another key":     set(IdempotencyKey, "k2"),
		"another's login": set("Authorization", "b"),
		"another field":   set("X-Api-Key", "b"),
		"another body": func(r *http.Request) {
			*r = *call("POST", "http://api.example/a?q=1", "else", IdempotencyKey, "k1", "Authorization", "a")
		},
		"another method":   func(r *http.Request) { r.Method = "PUT" },
		"another host":     func(r *http.Request) { r.Host = "else.example" },
		"another query":    func(r *http.Request) { r.URL.RawQuery = "q=2" },
		"another address":  func(r *http.Request) { r.RemoteAddr = "192.0.2.8:1" },
		"a PUT, no key":    func(r *http.Request) { r.Method = "PUT"; r.Header.Del(IdempotencyKey) },
		"a PUT, once more": func(r *http.Request) { r.Method = "PUT"; r.Header.Del(IdempotencyKey) },
	} {
		id, _ := ask(change)
		if same, known := others[id]; known {
			t.Errorf("%s has the id of %s", name, same)
		}
		others[id] = name
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != uint64(len(others)) {
		t.Errorf("%d wait, %v; want %d", waiting, err, len(others))
	}
	if n := testutil.ToFloat64(f.cfg.Metrics.requests[resultAgain]); n != 7 {
		t.Errorf("%v were told again, want 7", n)
	}
}

// What is over is told again for a while, but not what was given up: that waits anew.
func TestSameKeyAfterTheEnd(t *testing.T) {
	j := newJet(t)
	now := time.Now()
	var mu sync.Mutex
	q := j.queue(j.connect(), Config{Tries: 1, Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	f := front(q, nil, 0)
	keep := func(key string) (id string, first *Status) {
		t.Helper()
		r := request("acme")
		r.HTTP.Header.Set(IdempotencyKey, key)
		first, err := f.keep(t.Context(), q, r)
		if err != nil {
			t.Fatal(err)
		}
		return r.ID, first
	}
	stop := work(t, q, does(201))
	done, _ := keep("done")
	becomes(t, q, done, Done)
	stop()
	if id, first := keep("done"); id != done || first == nil || first.State != Done {
		t.Errorf("%s, %+v; want %s, which is done", id, first, done)
	}
	stop = work(t, q, does(500))
	dead, _ := keep("dead")
	becomes(t, q, dead, Dead)
	stop()
	if id, first := keep("dead"); id == dead || first != nil {
		t.Errorf("%s, %+v; want that it waits anew", id, first)
	}
	mu.Lock()
	now = now.Add(duplicates)
	mu.Unlock()
	if id, first := keep("done"); id == done || first != nil {
		t.Errorf("later: %s, %+v; want that it waits anew", id, first)
	}
	if waiting, _, err := q.Depth(t.Context()); err != nil || waiting != 2 {
		t.Errorf("%d wait, %v; want two", waiting, err)
	}
	if id := sameID(&Request{ID: strings.Repeat("a", 32), HTTP: call("PUT", "/", "")}); id != "" {
		t.Errorf("without a key its id is %s, want none", id)
	}
}
