package deferred

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// Of ten thousand requests (target R7) none is lost: each is done, or is a dead letter,
// though JetStream ends and starts, workers die with what they have, upstreams fail, and
// there is room for one in two at a time. The upstream does each once, by its key.
func TestNoneIsLost(t *testing.T) {
	requests := 10_000
	if testing.Short() {
		requests = 1000 // the race detector runs it so
	}
	const senders, tenants = 8, 20
	j := newJet(t)
	cfg := Config{Lease: 2 * time.Second, Timeout: 5 * time.Second, Tries: 4, PerTenant: requests}
	q := j.queue(j.connect(), cfg)

	var mu sync.Mutex
	effects := map[string]int{} // by key: of what is done twice the second is none
	sent := 0
	send := func(_ context.Context, a *Attempt) Outcome {
		if rand.IntN(2) == 0 {
			return Outcome{Wait: time.Duration(rand.IntN(100)) * time.Millisecond}
		}
		if err := a.Begin(); err != nil {
			return Outcome{Err: err}
		}
		mu.Lock()
		defer mu.Unlock()
		if sent++; rand.IntN(5) == 0 || a.ID[len(a.ID)-2] == '0' && a.ID[len(a.ID)-1] < '4' { // one in 64 can never be done
			return Outcome{Status: 503, Wait: time.Millisecond}
		}
		effects[a.HTTP.Header.Get(IdempotencyKey)]++
		return Outcome{Status: 200}
	}

	var accepted []string
	var put, working sync.WaitGroup
	for range senders {
		put.Go(func() {
			for i := range requests / senders {
				r := &Request{ID: NewID(), Tenant: fmt.Sprint(i % tenants), Client: "192.0.2.7:4711", HTTP: call("PUT", "http://api.example/a", ""), Body: []byte("body")}
				for q.Put(context.Background(), r) != nil { // as clients do who are told to come again
					r.ID = NewID()
				}
				mu.Lock()
				accepted = append(accepted, r.ID)
				mu.Unlock()
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	for range 3 {
		working.Go(func() {
			for ctx.Err() == nil { // a life of a worker, ended with its connection
				nc := j.connect()
				life, end := context.WithCancel(ctx)
				own, err := reopen(life, nc, cfg)
				for ; err != nil && life.Err() == nil; own, err = reopen(life, nc, cfg) {
					pause(life, 50*time.Millisecond)
				}
				if err != nil {
					end()
					return
				}
				stop := context.AfterFunc(life, nc.Close)
				at := time.AfterFunc(time.Duration(500+rand.IntN(2500))*time.Millisecond, end)
				own.Work(life, 16, send)
				at.Stop()
				stop()
				nc.Close()
				end()
			}
		})
	}
	for range 3 {
		pause(ctx, time.Duration(500+rand.IntN(1000))*time.Millisecond) // it is under way
		j.restart()
	}
	put.Wait()

	dead := map[string]bool{}
	proc.Until(t, 5*time.Minute, func() error {
		waiting, buried, err := q.Depth(context.Background())
		if err != nil || waiting > 0 {
			return fmt.Errorf("%d wait, %d are dead, %v", waiting, buried, err)
		}
		return nil
	})
	cancel()
	working.Wait()
	for from := uint64(0); ; {
		letters, err := q.Dead(context.Background(), from, mostLetters)
		if err != nil {
			t.Fatal(err)
		}
		if len(letters) == 0 {
			break
		}
		for _, l := range letters {
			dead[l.ID], from = true, l.Next
		}
	}
	done, twice := 0, 0
	for _, id := range accepted {
		s, err := q.Status(context.Background(), id)
		switch {
		case err != nil:
			t.Errorf("%s: %v", id, err)
		case s.State == Done && effects[id] == 0:
			t.Errorf("%s is said to be done, and was not", id)
		case s.State == Done:
			done++
		case s.State != Dead || !dead[id]:
			t.Errorf("%s: %+v, among the letters: %v; want done or dead", id, s, dead[id])
		}
		if effects[id] > 1 {
			twice++ // the upstream knows the key: that is what it is for
		}
	}
	if len(accepted) != requests/senders*senders || done+len(dead) < len(accepted) {
		t.Errorf("%d accepted, %d done, %d dead", len(accepted), done, len(dead))
	}
	if done < len(accepted)*9/10 || len(dead) == 0 {
		t.Errorf("%d of %d done, %d dead: want most done, and some dead", done, len(accepted), len(dead))
	}
	t.Logf("%d accepted: %d done, %d dead; %d sent, of them %d a second time with the same key though the first was done", len(accepted), done, len(dead), sent, twice)
}
