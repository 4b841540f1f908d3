package proxy

import (
	"sync"
	"time"
)

// due calls late where what it is started for takes too long, and slows before that.
type due struct {
	most  time.Duration
	late  func()
	soon  time.Duration // zero, or shorter than most: what takes so long has slows be called
	slows func()        // likewise

	mu    sync.Mutex // guards what follows, and is held while late is called
	over  bool       // nothing is late any more
	until time.Time  // when it is late; zero: nothing is awaited
	timer *time.Timer
}

// start is that it begins, or begins anew.
func (d *due) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.run()
}

// moves is that there is as long again for what is awaited, if anything is.
func (d *due) moves() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.until.IsZero() {
		d.run()
	}
}

// stop is that it has come.
func (d *due) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rest()
}

// end has nothing be late from now on.
func (d *due) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.rest()
}

// run is start; the lock is held.
func (d *due) run() {
	if d.over {
		return
	}
	next := d.most
	if d.soon > 0 {
		next = d.soon
	}
	if d.until = time.Now().Add(d.most); d.timer == nil {
		d.timer = time.AfterFunc(next, d.fire)
	} else {
		d.timer.Reset(next)
	}
}

// rest is stop; the lock is held.
func (d *due) rest() {
	if d.until = (time.Time{}); d.timer != nil {
		d.timer.Stop()
	}
}

// fire calls late, unless what the timer ran for has come.
func (d *due) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until.IsZero() {
		return
	}
	left := time.Until(d.until)
	switch {
	case left <= 0:
		d.until = time.Time{}
		d.late()
	case d.soon > 0 && left <= d.most-d.soon: // else it began anew meanwhile
		d.slows()
		d.timer.Reset(left)
	}
}

// pauses bounds how long a client may be silent while its body of HTTP/2 is read and wanted.
// That has a timer of its own: net/http ends such a body at its deadline for good, although
// nobody reads it then, as while the upstream takes its time.
type pauses struct {
	due
	reading bool
	turn    bool // what is read is wanted, whoever reads it
}

// begins is that a read does; wanted: somebody waits for what it has.
func (p *pauses) begins(wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading = true; wanted || p.turn {
		p.run()
	}
}

// wants is that what is read is wanted from now on.
func (p *pauses) wants() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn = true; p.reading && p.until.IsZero() {
		p.run()
	}
}

// ends is that the read has ended.
func (p *pauses) ends() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	p.rest()
}
