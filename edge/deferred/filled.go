package deferred

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// fullWait is for how long a queue that was full is taken to be.
	fullWait = time.Second
	// mostFull bounds the tenants of which that is known; all are forgotten beyond it.
	mostFull = 4096
)

// filled are the tenants whose queue was full a moment ago: who comes again and again is
// denied without his body being read, and sent to JetStream, to be refused there.
type filled struct {
	mu    sync.Mutex // guards what follows
	until map[string]time.Time
}

// brief is a name by which somebody is known here: the name itself, or as clients choose how long
// their keys are, a hash of it.
func brief(name string) string {
	if len(name) <= sha256.Size {
		return name
	}
	h := sha256.Sum256([]byte(name))
	return string(h[:])
}

func (f *filled) is(tenant string, now time.Time) bool {
	tenant = brief(tenant)
	f.mu.Lock()
	defer f.mu.Unlock()
	until, known := f.until[tenant]
	if known && !now.Before(until) {
		delete(f.until, tenant)
	}
	return known && now.Before(until)
}

func (f *filled) was(tenant string, now time.Time) {
	tenant = brief(tenant)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil || len(f.until) >= mostFull {
		f.until = map[string]time.Time{}
	}
	f.until[tenant] = now.Add(fullWait)
}
