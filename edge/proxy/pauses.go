package proxy

import (
	"sync"
	"time"
)

// pauses bounds how long a client may be silent while its body of HTTP/2 is read and wanted.
// That has a timer of its own: net/http ends such a body at its deadline for good, although
// nobody reads it then, as while the upstream takes its time.
type pauses struct {
	most time.Duration
	late func() // ends the read

	mu      sync.Mutex
	reading bool
	turn    bool      // what is read is wanted, whoever reads it
	lasts   bool      // a pause is no fault any more
	until   time.Time // when what is read is late; zero: it never is
	timer   *time.Timer
}

// begins is that a read does; wanted: somebody waits for what it has.
func (p *pauses) begins(wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading = true; wanted || p.turn {
		p.bound()
	}
}

// wants is that what is read is wanted from now on.
func (p *pauses) wants() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn = true; p.reading && p.until.IsZero() {
		p.bound()
	}
}

// last has pauses be no fault from now on.
func (p *pauses) last() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lasts = true
	p.unbound()
}

// ends is that the read has ended.
func (p *pauses) ends() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	p.unbound()
}

// bound has what is read be late after a pause from now. The lock is held.
func (p *pauses) bound() {
	if p.lasts {
		return
	}
	if p.until = time.Now().Add(p.most); p.timer == nil {
		p.timer = time.AfterFunc(p.most, p.fire)
	} else {
		p.timer.Reset(p.most)
	}
}

// unbound takes that back. The lock is held.
func (p *pauses) unbound() {
	if p.until = (time.Time{}); p.timer != nil {
		p.timer.Stop()
	}
}

// fire ends the read, unless the one that it was for is over.
func (p *pauses) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.until.IsZero() && !time.Now().Before(p.until) {
		p.late()
	}
}
