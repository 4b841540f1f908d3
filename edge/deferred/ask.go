package deferred

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// serveStatus tells a client what became of a request.
func (f *Front) serveStatus(w http.ResponseWriter, r *http.Request, id string) {
	if f.cfg.Origins.Preflight(r) {
		f.cfg.Origins.Permit(w.Header(), r)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	f.cfg.Origins.Tell(w.Header(), r)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, fmt.Errorf("method %s: want GET", r.Method))
		return
	}
	if !validID(id) {
		fail(w, http.StatusNotFound, fmt.Errorf("deferred: %w: its id has 32 hexadecimal digits", ErrUnknown))
		return
	}
	queue, err := f.open()
	if err == nil && !f.mayRead(time.Now()) {
		err = fmt.Errorf("deferred: %w: too many ask what became of theirs, more than %d a second", ErrUnavailable, f.cfg.Reads)
	}
	var s Status
	if err == nil {
		s, err = queue.Latest(r.Context(), id)
	}
	if err != nil {
		if errors.Is(err, ErrUnavailable) {
			w.Header().Set("Retry-After", "1")
		}
		fail(w, statusOf(err), err)
		return
	}
	if !s.over() {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, http.StatusOK, &s)
}

// mayRead says that one more may ask JetStream now: of as many places a second as there are,
// those of the last second are not used up.
func (f *Front) mayRead(now time.Time) bool {
	apart := int64(time.Second) / int64(f.cfg.Reads)
	for {
		given, at := f.reads.Load(), now.UnixNano()
		next := max(given, at-int64(time.Second)) + apart
		if next > at {
			return false
		}
		if f.reads.CompareAndSwap(given, next) {
			return true
		}
	}
}

// statusOf is the HTTP status of an error of a Queue's.
func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrUnknown):
		return http.StatusNotFound
	case errors.Is(err, ErrDeadAgain):
		return http.StatusConflict
	case errors.Is(err, ErrFull):
		return http.StatusTooManyRequests
	case errors.Is(err, ErrUnavailable):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeBody(w, status, map[string]any{"title": http.StatusText(status), "status": status, "detail": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, status, v)
}

func writeBody(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // to a client that may be gone
}
