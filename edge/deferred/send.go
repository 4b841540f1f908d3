package deferred

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
)

const (
	// sinkBytes bounds what is taken of an answer that nobody reads, as some never end.
	sinkBytes = 64 << 20
	// statusLeft is what a site answers to who left: the proxy's, and nginx's.
	statusLeft = 499
)

var errBroken = errors.New("the answer was cut, as the upstream broke it off")

var errLarge = fmt.Errorf("the answer was cut, as it is larger than %d MiB", sinkBytes>>20)

// Send does a request that waited, if the limits have room: it is a Send. It ends as the
// upstream's status is known, or could not be had in time.
func (f *Front) Send(ctx context.Context, a *Attempt) Outcome {
	if f.cfg.Room != nil && !f.cfg.Room() {
		return Outcome{Wait: pullWait, Every: unpaced, By: "capacity"}
	}
	wait, looks := f.reach.shut(time.Now())
	if wait > 0 {
		return Outcome{Wait: wait, Every: unpaced, By: "upstream"}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &sink{ctx: ctx, cancel: cancel, timeout: f.cfg.Timeout, header: http.Header{}}
	p := &passage{attempt: a, sink: w}
	r := a.HTTP.Clone(ctx)
	r.RemoteAddr, r.Body, r.ContentLength = a.Client, io.NopCloser(bytes.NewReader(a.Body)), int64(len(a.Body))
	broken := f.passAlone(w, r, p)
	w.end()
	out := Outcome{Status: w.status, Location: w.header.Get("Location"), Wait: retryAfter(w.header, time.Now()), Err: p.err}
	if !p.reached && p.wait > 0 {
		out.Wait, out.Every = p.wait, p.every // Retry-After has whole seconds, and some at random
	}
	if !p.reached {
		out.By = p.by
	}
	switch {
	case p.reached && w.cut != nil && out.Status == statusLeft:
		// It is we who left: what the upstream did is not known.
		out.Status, out.Err = 0, w.cut
	case p.reached && out.Status == 0:
		out.Status = http.StatusOK // as net/http has it
	case p.reached && ctx.Err() != nil:
		out.Cut = context.Cause(ctx)
	case p.reached && broken:
		out.Cut = errBroken
	case p.reached && (out.Status == http.StatusBadGateway || out.Status == http.StatusGatewayTimeout):
		if kind, own := strings.CutPrefix(w.header.Get("Proxy-Status"), "spillgate; error="); own {
			out.Status, out.Err = 0, fmt.Errorf("the upstream gave no answer: %s", kind)
			out.Unreached = httpapi.Unconnected(kind)
		}
	}
	switch {
	case p.reached:
		out.Wait = max(out.Wait, f.reach.note(out.Unreached, time.Now()))
	case looks: // its limits had no room: another may
		f.reach.giveBack(time.Now())
	}
	return out
}

// reach is whether the upstream could be reached last: while it could not, one request after the other
// looks for it, as each is charged to its limits when it is sent, and the others wait.
type reach struct {
	mu    sync.Mutex
	pause time.Duration // until it is looked for again; 0: it is there
	until time.Time
	looks bool // one does
}

// shut is how long a request is to wait; who need not, and all others wait for, looks. Meanwhile
// they wait for no longer than may pass until it is known.
func (r *reach) shut(now time.Time) (wait time.Duration, looks bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pause == 0 {
		return 0, false
	}
	if left := r.until.Sub(now); left > 0 && left <= awayMost {
		if r.looks {
			return min(left, awayLeast), false
		}
		return left, false
	}
	r.until, r.looks = now.Add(r.pause), true
	return 0, true
}

// giveBack has another look in place of one that was not sent.
func (r *reach) giveBack(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until, r.looks = now, false
}

// note takes in whether there was a connection to it, and returns how long there is to be no look.
func (r *reach) note(unreached bool, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks = false
	if !unreached {
		r.pause = 0
		return 0
	}
	r.pause = min(max(awayLeast, 2*r.pause), awayMost)
	r.until = now.Add(r.pause)
	return r.pause
}

// passAlone is pass without a server to serve: it says that the answer broke off.
func (f *Front) passAlone(w http.ResponseWriter, r *http.Request, p *passage) (broken bool) {
	defer func() {
		if p := recover(); p == http.ErrAbortHandler {
			broken = true
		} else if p != nil {
			panic(p)
		}
	}()
	// httputil does not tell of it where there is none.
	f.pass(w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, f)), p)
	return false
}

// retryAfter is what a response says of when to come again; 0: nothing.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// sink is a response of which nobody reads but the status. The rest is taken all the same, as
// an upstream may be at work as long as it answers. It ends the request, by its context, where
// the answer does not begin in time, or does not end in as much again, or is too large.
type sink struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout time.Duration // from when the upstream is asked to its status, and from that to its end
	timer   *time.Timer   // nil: it is not asked yet; end stops it
	header  http.Header
	status  int
	cut     error // why the context had ended before there was a status
	taken   int   // bytes of the answer
}

// begin is that the upstream is asked now.
func (s *sink) begin() {
	s.timer = time.AfterFunc(s.timeout, func() {
		s.cancel(fmt.Errorf("the upstream did not begin its answer within %v", s.timeout))
	})
}

func (s *sink) end() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *sink) Header() http.Header { return s.header }

func (s *sink) WriteHeader(code int) {
	if s.status != 0 || code < 200 { // what is below is not the answer yet
		return
	}
	s.status, s.cut = code, context.Cause(s.ctx)
	s.end()
	s.timer = time.AfterFunc(s.timeout, func() {
		s.cancel(fmt.Errorf("the answer was cut, as it did not end within %v of its beginning", s.timeout))
	})
}

func (s *sink) Write(b []byte) (int, error) {
	s.WriteHeader(http.StatusOK)
	if s.taken += len(b); s.taken > sinkBytes {
		s.cancel(errLarge)
		return 0, errLarge
	}
	return len(b), nil
}
