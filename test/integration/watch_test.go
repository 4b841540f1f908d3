package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// slowest is how long a decision may take over HTTP while something fails: far
// more than it needs, and less than any timeout that an edge could be waiting
// for by mistake. On a busy machine it may take longer, and so do calls to the same
// edge then that decide nothing: three times the slowest of these is added.
const slowest = time.Second

// watch calls the edges, one call after the other each, until it is stopped. A
// decision needs neither NATS nor an aggregator nor Redis, so not one call may
// fail or be slow, whatever happens to them.
func watch(t *testing.T, edges ...*edge) (stop func()) {
	t.Helper()
	type log struct {
		calls  int
		worst  time.Duration
		idle   time.Duration // the slowest call that decides nothing
		failed error
	}
	logs := make([]log, len(edges))
	done := make(chan struct{})
	var loops sync.WaitGroup
	for i, e := range edges {
		l := &logs[i]
		loops.Go(func() { // stop() ends it and waits for it
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-done:
					return
				case <-pace.C:
				}
				start := time.Now()
				r, err := e.check(call{Attributes: map[string]string{"account": "watched"}})
				l.calls++
				l.worst = max(l.worst, time.Since(start))
				start = time.Now()
				if herr := e.healthy(); err == nil {
					err = herr
				}
				l.idle = max(l.idle, time.Since(start))
				if err == nil && !r.Allowed {
					err = fmt.Errorf("denied: %+v", r)
				}
				if err != nil && l.failed == nil {
					l.failed = fmt.Errorf("call %d: %w", l.calls, err)
				}
			}
		})
	}
	return func() {
		t.Helper()
		close(done)
		loops.Wait()
		for i, e := range edges {
			l := logs[i]
			t.Logf("%s answered %d calls meanwhile, the slowest in %v, of those that decide nothing in %v", e.name, l.calls, l.worst, l.idle)
			if l.failed != nil {
				t.Errorf("%s, while its surroundings failed: %v", e.name, l.failed)
			}
			if most := slowest + 3*l.idle; l.calls == 0 || l.worst > most {
				t.Errorf("%s: %d calls, the slowest in %v, want some, within %v", e.name, l.calls, l.worst, most)
			}
		}
	}
}
