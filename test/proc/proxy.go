package proc

import (
	"net"
	"sync"
	"testing"
	"time"
)

const (
	// proxyChunk is the most that a Proxy passes at once, and proxyHeld how
	// many chunks it holds for each direction of a connection: it stands for a
	// wire, and a sender must feel soon that nothing moves.
	proxyChunk = 16 << 10
	proxyHeld  = 8
)

// Proxy is the wire to one server, for tests to cut, freeze and slow down.
// Its methods are for any goroutine.
type Proxy struct {
	Addr   string // where it listens
	listen net.Listener
	all    sync.WaitGroup

	mu     sync.Mutex
	target string // guarded by mu, as all below
	now    wire
	news   chan struct{}         // closed when now changes
	conns  map[net.Conn]struct{} // both ends; nil: the test is over
}

// wire is what happens to bytes.
type wire struct {
	cut, frozen bool
	delay       time.Duration
	rate        int // bytes a second for each direction of a connection; 0: no bound
}

// NewProxy listens on a free port and passes what comes to target, which need
// not be there yet. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p := &Proxy{target: target, news: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	var err error
	for range 10 { // another test's process may take the port first
		p.Addr = FreeAddr(t)
		if p.listen, err = net.Listen("tcp", p.Addr); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("proxy to %s: %v", target, err)
	}
	t.Cleanup(p.close)
	// Ends with the listener; close waits for it.
	p.all.Go(func() {
		for {
			c, err := p.listen.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.connect(c) }) // ends with its connection; close waits for it
		}
	})
	return p
}

// Cut ends all connections, and new ones at once, until Mend.
func (p *Proxy) Cut() {
	p.change(func(w *wire) { w.cut = true })
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Freeze stops all bytes until Mend, and closes nothing: what both ends do
// meanwhile, be it to connect or to close, the other learns when it thaws.
func (p *Proxy) Freeze() { p.change(func(w *wire) { w.frozen = true }) }

// Mend ends Cut and Freeze. What was held passes, if its connection still
// stands.
func (p *Proxy) Mend() { p.change(func(w *wire) { w.cut, w.frozen = false, false }) }

// Delay holds all bytes for d in each direction; 0 ends it.
func (p *Proxy) Delay(d time.Duration) { p.change(func(w *wire) { w.delay = d }) }

// Rate bounds each direction of each connection, in bytes a second; 0 ends it.
func (p *Proxy) Rate(bytes int) { p.change(func(w *wire) { w.rate = bytes }) }

// Lead has connections from now on go to another server, as when an address passes
// to who stands in for one that died. Those that stand are ended.
func (p *Proxy) Lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) change(by func(*wire)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by(&p.now)
	close(p.news)
	p.news = make(chan struct{})
}

// state is the wire now, and what is closed when that changes.
func (p *Proxy) state() (wire, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.news
}

func (p *Proxy) close() {
	p.listen.Close()
	p.Cut()
	p.mu.Lock()
	p.conns = nil
	p.mu.Unlock()
	p.all.Wait()
}

// add lets Cut know of c, or closes it if there is nothing to pass.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.cut || p.conns == nil {
		c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// connect passes what comes from c to the server, and back.
func (p *Proxy) connect(c net.Conn) {
	if !p.add(c) {
		return
	}
	defer p.remove(c)
	if !p.held(0, time.Now()) {
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	s, err := net.Dial("tcp", target)
	if err != nil || !p.add(s) {
		return
	}
	defer p.remove(s)
	var both sync.WaitGroup
	both.Go(func() { p.pass(c, s) })
	both.Go(func() { p.pass(s, c) })
	both.Wait()
}

// chunk is what was read at once.
type chunk struct {
	bytes []byte
	read  time.Time
}

// pass copies from one end to the other until one of them is gone, and then
// closes both.
func (p *Proxy) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	chunks := make(chan chunk, proxyHeld)
	gone := make(chan struct{})
	defer close(gone)
	// Ends with its source, which pass closes, or with pass; close waits for it.
	p.all.Go(func() {
		defer close(chunks)
		for {
			b := make([]byte, proxyChunk)
			n, err := from.Read(b)
			select {
			case chunks <- chunk{b[:n], time.Now()}:
			case <-gone:
				return
			}
			if err != nil {
				return // the end, which passes in its turn
			}
		}
	})
	for c := range chunks {
		if !p.held(len(c.bytes), c.read) {
			return
		}
		if _, err := to.Write(c.bytes); err != nil {
			return
		}
	}
}

// held waits for as long as the wire holds n bytes that were read at the
// given time, and reports whether they pass at all.
func (p *Proxy) held(n int, read time.Time) bool {
	begun := time.Now()
	for {
		w, news := p.state()
		due := read.Add(w.delay)
		if w.rate > 0 {
			if paced := begun.Add(time.Duration(n) * time.Second / time.Duration(w.rate)); paced.After(due) {
				due = paced
			}
		}
		switch wait := time.Until(due); {
		case w.cut:
			return false
		case w.frozen:
			<-news // close ends that, by Cut
		case wait <= 0:
			return true
		default:
			select {
			case <-news:
			case <-time.After(wait):
			}
		}
	}
}
