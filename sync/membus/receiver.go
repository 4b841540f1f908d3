package membus

import "sync"

const (
	// maxHandlers is how many handlers of one Serve run at once.
	maxHandlers = 64
	// maxPending and maxPendingBytes bound what waits for one receiver. A
	// message that finds no room is lost, as with natsbus.
	maxPending      = 512
	maxPendingBytes = 16 << 20
)

// message is a request or, without reply, a publication. It belongs to its
// receiver.
type message struct {
	subject string
	payload []byte
	reply   chan<- []byte // holds one; a later reply is dropped
}

// receiver is one Serve or Subscribe: a queue, and as many goroutines as there
// is work for, at most width.
type receiver struct {
	bus     *Bus
	pattern string
	queue   string // empty: Subscribe
	width   int
	handle  func(message)

	mu      sync.Mutex
	stopped bool      // guarded by mu
	running int       // guarded by mu; goroutines
	waiting []message // guarded by mu
	bytes   int       // guarded by mu; payloads in waiting
}

// offer hands m over now or later, or loses it. It does not wait.
func (r *receiver) offer(m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped:
	case r.running < r.width:
		if r.bus.begin() {
			r.running++
			// Ends when nothing waits or the receiver was stopped; Bus.Close
			// waits for it.
			go r.work(m)
		}
	case len(r.waiting) >= maxPending || r.bytes+len(m.payload) > maxPendingBytes:
		r.bus.lost.Add(1)
	default:
		r.waiting = append(r.waiting, m)
		r.bytes += len(m.payload)
	}
}

// work handles m and then what waits.
func (r *receiver) work(m message) {
	defer r.bus.handlers.Done()
	for more := true; more; m, more = r.next() {
		r.handle(m)
	}
}

// next is the message that has waited longest, or false: then the goroutine
// that asked ends.
func (r *receiver) next() (message, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || len(r.waiting) == 0 {
		r.running--
		return message{}, false
	}
	m := r.waiting[0]
	r.waiting[0] = message{} // or the array keeps the payload
	r.waiting = r.waiting[1:]
	r.bytes -= len(m.payload)
	return m, true
}

// Stop implements deltasync.Subscription.
func (r *receiver) Stop() error {
	r.bus.forget(r)
	r.end()
	return nil
}

// end makes next and offer hand over nothing more.
func (r *receiver) end() {
	r.bus.hub.remove(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.waiting, r.bytes = nil, 0
}

// begin announces a handler to Close, unless that has begun.
func (b *Bus) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.handlers.Add(1)
	}
	return !b.ended
}

// forget takes r off those that Close must end.
func (b *Bus) forget(r *receiver) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.own, r)
}
