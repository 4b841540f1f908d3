package proxy

import (
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
)

// Capacities takes a signal of how much of a capacity is in use: an edge.Node.
type Capacities interface {
	SetCapacity(now time.Time, name string, used float64, ttl time.Duration) error
}

var _ Capacities = (*edge.Node)(nil)

const (
	// signalWindow is how often a signal is set at the most, but where it rises: each
	// request would meet the lock that all decisions of elastic rules read under.
	signalWindow = 100 * time.Millisecond
	// latencyMemory is the time in which the mean of latencies forgets, to 1/e.
	latencyMemory = time.Second
	// latencyMost is the most that one request counts, in latencies at which all is in
	// use: what is off does not close margins for long.
	latencyMost = 4.0
)

// signal makes one of what the upstream's answers tell. Its clock must not stand still:
// what is older than two windows is forgotten.
type signal struct {
	cfg    CapacityConfig
	to     Capacities
	used   prometheus.Gauge
	odd    prometheus.Counter // headers that are not understood
	log    *slog.Logger
	warned atomic.Bool

	mu       sync.Mutex // guards what follows; held while the signal is set, which waits for no I/O
	began    time.Time  // of the window
	before   float64    // the highest of the window before this
	highest  float64    // of this
	mean     float64    // of latencies, as parts of the one at which all is in use
	measured time.Time  // when the last was added
	stopped  netip.Addr // whose body was not read to its end last
	at       time.Time  // when
}

func newSignal(cfg *Config, to Capacities) *signal {
	if cfg.Capacity.Name == "" || to == nil {
		return nil
	}
	return &signal{cfg: cfg.Capacity, to: to, used: cfg.Metrics.used, odd: cfg.Metrics.unread, log: cfg.Logger}
}

// told is what an answer's header says; text is not "".
func (s *signal) told(now time.Time, text string, read func(string) (float64, error)) {
	used, err := read(text)
	if err != nil || used < 0 {
		s.odd.Inc()
		if !s.warned.Swap(true) {
			s.log.Warn("the upstream's capacity header is not understood: elastic margins stay closed", "header", s.cfg.Header, "value", cut(text), "err", err)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(now, used)
}

// statusOf is the status of an answer, and of a call of gRPC that ends with its header what comes nearest
// to its code. A deadline that it did not meet is its client's own, and may be short.
func (x *exchange) statusOf(res *http.Response) int {
	code, ok := httpapi.CallCode(res.Header)
	if !ok || res.StatusCode != http.StatusOK || !httpapi.GRPC(x.in) {
		return res.StatusCode
	}
	if status := httpapi.CallStatus(code); status != http.StatusGatewayTimeout {
		return status
	}
	return http.StatusInternalServerError
}

// answered is that an answer with a status began after a time. What turns a request away is a fault, however soon
// it does: an upstream that sheds load, or is gone from behind its balancer, is fast. Of other faults those that
// took too long count, and none is a sign of room.
func (s *signal) answered(now time.Time, status int, latency time.Duration) {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		s.failed(now)
	default:
		if status < http.StatusInternalServerError || latency >= s.cfg.Latency {
			s.took(now, latency)
		}
	}
}

// took is that an answer began after a time.
func (s *signal) took(now time.Time, latency time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell(now, s.add(now, float64(latency)/float64(s.cfg.Latency)))
}

// failed is that the upstream gave no answer, or none of its own: it has no capacity to spare.
func (s *signal) failed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full(now)
}

// unread is that it took a body of somebody's, stopped amid it, and gave no answer that arrived. As
// servers do that with what they refuse, too, one client can have it done: it is a fault of the
// upstream's where clients of two addresses meet it within the time that the signal is good for. Of clients that
// nobody tells an address of it is none.
func (s *signal) unread(now time.Time, who netip.Addr) {
	if !who.IsValid() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	others := s.stopped.IsValid() && s.stopped != who && now.Sub(s.at) < s.cfg.TTL
	if s.stopped, s.at = who, now; others {
		s.full(now)
	}
}

// full is that the upstream has no capacity to spare; s.mu is held.
func (s *signal) full(now time.Time) {
	if s.cfg.Latency > 0 {
		s.add(now, latencyMost)
		s.mean = max(s.mean, 1)
		s.tell(now, s.mean)
		return
	}
	s.tell(now, 1)
}

// add adds to the mean, by the time that has passed: so a thousand requests a second
// weigh what one does.
func (s *signal) add(now time.Time, part float64) float64 {
	part = min(part, latencyMost)
	if s.measured.IsZero() {
		s.mean = part
	} else {
		s.mean += (part - s.mean) * -math.Expm1(-float64(max(0, now.Sub(s.measured)))/float64(latencyMemory))
	}
	s.measured = now
	return s.mean
}

// tell sets the signal to the highest of this window and the one before: at once where
// that rises, and at the beginning of each.
func (s *signal) tell(now time.Time, used float64) {
	switch passed := now.Sub(s.began); {
	case passed >= 2*signalWindow || passed < 0 || s.began.IsZero():
		s.began, s.before, s.highest = now, used, used
	case passed >= signalWindow:
		s.began, s.before, s.highest = now, s.highest, used
	case used <= s.highest:
		return
	default:
		s.highest = used
	}
	value := max(s.before, s.highest)
	s.used.Set(value)
	if err := s.to.SetCapacity(now, s.cfg.Name, value, s.cfg.TTL); err != nil && !s.warned.Swap(true) {
		s.log.Warn("the upstream's capacity cannot be told: elastic margins stay closed", "err", err)
	}
}

// cut is text as a log repeats it.
func cut(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}
