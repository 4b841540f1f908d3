package httpapi

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Why a listener refused something, as the metrics name it.
const (
	RefusedConnections = "connections"
	RefusedCalls       = "calls"
	RefusedUnread      = "unread"
	RefusedSlow        = "slow"
	RefusedUntaken     = "untaken"
	RefusedMemory      = "memory"
	RefusedMessage     = "message"
)

// refusedHow says in the log what each is.
var refusedHow = map[string]string{
	RefusedConnections: "there are as many connections as are taken, of that address or of all: it was closed",
	RefusedCalls:       "as many calls, or requests over HTTP/2, are under way as are taken, of that address or of all",
	RefusedUnread:      "as many calls as are taken, of that address or of all, wait for their message",
	RefusedSlow:        "its message did not come in time",
	RefusedUntaken:     "its answers were not taken: the connection was closed",
	RefusedMessage:     "a message is none of its service's, or too large, and was not read",
	RefusedMemory:      "bodies and messages that are under way take all memory that they may, of that address or of all",
}

// tellEvery is how often a refusal is logged, at the most.
const tellEvery = time.Minute

// Refusals counts what listeners refuse before it is decided about, so that they bear
// whatever callers do, and logs it once in a while.
type Refusals struct {
	total *prometheus.CounterVec
	log   *slog.Logger
	told  map[string]*atomic.Int64 // by reason: when it was logged, Unix nanoseconds
}

// NewRefusals registers its metric with reg; nil leaves it unexported. Logger nil logs
// nowhere.
func NewRefusals(reg prometheus.Registerer, log *slog.Logger) *Refusals {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Refusals{log: log, told: map[string]*atomic.Int64{}, total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillgate_refused_total",
		Help: "What the listeners for decisions refused so as to bear whatever callers do, by listener (http, grpc, proxy) and by why: connections (there were as many as are taken, in all or of the address), calls (so many calls, or requests over HTTP/2, were under way or had answers that were not taken yet, in all or of the address), unread (so many calls waited for their message, in all or of the address), slow (the message did not come in time), untaken (answers were not taken, and the connection was closed), memory (bodies and messages under way had all that they may take, in all or of the address), message (over gRPC: it was none of its service's, or too large, and not read).",
	}, []string{"listener", "reason"})}
	for reason := range refusedHow {
		r.told[reason] = new(atomic.Int64)
	}
	if reg != nil {
		reg.MustRegister(r.total)
	}
	return r
}

// Tell counts a refusal.
func (r *Refusals) Tell(listener, reason string) {
	r.total.WithLabelValues(listener, reason).Inc()
	told, now := r.told[reason], time.Now().UnixNano()
	if last := told.Load(); last == 0 || now-last > int64(tellEvery) {
		if told.CompareAndSwap(last, now) {
			r.log.Warn("refused, and not decided", "listener", listener, "reason", reason, "detail", refusedHow[reason],
				"hint", "spillgate_refused_total counts them; this is logged once a minute at the most")
		}
	}
}
