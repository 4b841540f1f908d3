package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// exchange is a request on its way through the proxy.
type exchange struct {
	proxy  *Proxy
	in     *http.Request     // the client's, once it is passed on
	way    http.RoundTripper // to the upstream
	leave  func()            // gives back the room that it takes
	shares bool              // a connection with others, if that is of HTTP/2
	rc     *http.ResponseController
	result result
	body   *body // nil: none
	answer answer
	pass   httputil.ReverseProxy
	own    http.Header // what the rules had us tell the client
	passed time.Time   // when it was passed on
	who    netip.Addr  // whom it takes room for
	conn   *headerConn // on which it was last; nil: not over HTTP/1
	had    atomic.Bool // it had a connection, on which the upstream may have begun with it
	alone  fault       // what it did, if the upstream ends its connection of HTTP/2, which is its own

	many     bool // it has more fields than servers take by default
	switches bool // it was to, and was sent over HTTP/1 to an upstream that says it speaks HTTP/2 alone
}

// refuse answers what is not passed on.
func (x *exchange) refuse(r *http.Request, f fault) {
	x.result = f.result
	x.fail(r, f)
}

// take takes over the request's body.
func (x *exchange) take(r *http.Request) {
	x.body = &body{src: r.Body, ends: r.Trailer, trim: x.proxy.trimAsked, rc: x.rc, pause: x.proxy.cfg.ClientTimeout, left: x.proxy.cfg.MaxBody, asks: r.Header["Expect"] != nil}
	if r.ProtoMajor == 1 {
		x.answer.body = x.body
		return
	}
	x.body.pauses = &pauses{due: due{most: x.body.pause, late: func() { _ = x.rc.SetReadDeadline(longAgo) }}}
	u := &x.body.stands
	u.room, u.who, u.after, u.rest, u.ahead = x.proxy.bodies, x.who, x.proxy.unread, r.ContentLength, &x.proxy.ahead
	x.body.mu.Lock()
	x.body.rests()
	x.body.mu.Unlock()
}

// end counts what became of the request, and lets go of its body. An answer that breaks
// off under way ends in http.ErrAbortHandler, which goes on to net/http.
func (x *exchange) end(r *http.Request) {
	p := recover()
	if p != nil {
		if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			x.result = resultPanic
			x.proxy.cfg.Logger.Error("panic in the proxy", "path", cut(r.URL.Path), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		} else if x.result = resultBroken; x.answer.untaken || r.Context().Err() != nil && !(x.body != nil && x.body.wasStopped()) {
			x.result = resultLeft
		}
	}
	x.proxy.cfg.Metrics.requests[x.result].Inc()
	if x.body != nil && !x.answer.switched {
		x.body.leave(r.ProtoMajor == 1)
	}
	switch {
	case p == nil:
	case x.result == resultPanic && !x.answer.began:
		x.answer.own = true
		x.fail(r, fault{status: http.StatusInternalServerError, detail: "the proxy failed; its log says where"})
	default:
		panic(http.ErrAbortHandler)
	}
}

// ServeHTTP passes the request on: it was admitted, and its turn has come. httputil
// panics where an answer breaks off under way, which net/http passes on to the client.
func (x *exchange) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := x.proxy
	if p.cfg.Admitted != nil {
		if err := p.cfg.Admitted(r); err != nil {
			x.result = resultRefused
			x.fail(r, fault{status: http.StatusServiceUnavailable, detail: err.Error()})
			return
		}
	}
	x.own = take(w.Header())
	x.answer.ResponseWriter, x.answer.rc, x.answer.own = w, http.NewResponseController(w), false
	if x.answer.between {
		x.answer.apart = http.Header{}
	}
	if x.body != nil {
		r = r.WithContext(r.Context()) // a copy: net/http looks at its own when it ends the request
		r.Body = x.body
	}
	x.result = resultAnswered
	x.pass = httputil.ReverseProxy{
		Rewrite: x.rewrite, Transport: x, ModifyResponse: x.answered, ErrorHandler: x.failed,
		FlushInterval: -1, BufferPool: &buffers, ErrorLog: p.errors,
	}
	x.way, x.leave = p.way(r, x.who)
	x.shares = p.calls == nil || x.way != p.transport
	defer func() { x.leave() }()
	defer x.switchedBack()
	ended := false
	if httpapi.GRPC(r) {
		defer func() {
			if ended {
				httpapi.NoteCall(w, x.answer.Header())
			} else {
				httpapi.NoteBroken(w, x.answer.untaken || r.Context().Err() != nil)
			}
		}()
	}
	x.pass.ServeHTTP(&x.answer, r)
	ended = true
	trimLate(x.answer.Header())
	x.answer.show() // the trailers
}

// take takes the fields out of a header. They go with the answer that counts, and not
// with informational ones before it, after which httputil clears all.
func take(h http.Header) http.Header {
	own := make(http.Header, len(h))
	for name, values := range h {
		own[name] = values
	}
	clear(h)
	return own
}

// rewrite makes of the client's request the one that the upstream gets.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	p := x.proxy
	x.in = pr.In
	out := pr.Out
	pr.SetURL(p.cfg.Upstream)
	if out.URL.Scheme == "h2c" {
		out.URL.Scheme = "http"
	}
	out.URL.RawQuery = pr.In.URL.RawQuery // as it was sent: nothing here goes by it
	out.URL.User = nil
	if pr.In.Method == http.MethodOptions && pr.In.URL.Path == "*" && strings.Trim(p.cfg.Upstream.Path, "/") == "" {
		out.URL.Opaque = "*" // of the server, and no path (RFC 9110, section 7.1)
	}
	if !p.cfg.UpstreamHost {
		out.Host = pr.In.Host
	}
	switch asked := pr.In.Header["Upgrade"]; {
	case out.Header["Upgrade"] == nil:
	case !p.asksToSwitch(pr.In):
		httpapi.DropUpgrade(out.Header)
	case len(asked) > 1 || strings.Contains(asked[0], ","): // httputil would take the answer for another one than was asked for
		out.Header.Set("Upgrade", oneOf(strings.Join(asked, ",")))
	}
	out.Header.Del("Expect") // the client is told to go on as the body is read: net/http would send none to who answers at once, and wants it
	peer, trusted := p.api.PeerOf(pr.In)
	tellOrigin(pr.In, out, peer, trusted)
	if why := x.own[httpapi.UndecidedField]; why != nil {
		out.Header[httpapi.UndecidedField] = why
	}
	p.trimAsked(pr.In.Trailer)
	if out.Trailer = pr.In.Trailer; len(out.Trailer) == 0 || x.body == nil { // else the same map: it is filled when the body was read
		out.Trailer = nil // or it would be so with what nobody announced
	}
	x.passed = time.Now()
}

// answered is called with the upstream's answer, before it goes to the client.
func (x *exchange) answered(res *http.Response) error {
	p := x.proxy
	if res.StatusCode < http.StatusContinue || res.StatusCode > 999 { // net/http reads it, and panics where it is to be written
		return fmt.Errorf("the status is %d", res.StatusCode)
	}
	took := time.Since(x.passed)
	if x.body != nil {
		if ended := x.body.endedAt.Load(); ended > 0 { // the client may have been slow to send it
			took = min(took, max(0, time.Since(time.Unix(0, ended))))
		}
		x.body.talk(strings.HasPrefix(res.Header.Get("Content-Type"), "application/grpc"))
		if x.body.taking.Load() != nil { // it is of HTTP/2
			res.Body = &early{res.Body, x.body}
		}
	}
	p.cfg.Metrics.duration.Observe(took.Seconds())
	p.cfg.Metrics.answered(res.StatusCode)
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.result = resultSwitched
		p.cfg.Metrics.switched.Inc()
	}
	if s := p.signal; s != nil {
		switch header := s.cfg.Header; {
		case header == "":
			s.answered(p.cfg.Now(), x.statusOf(res), took)
		case res.Header.Get(header) != "":
			s.told(p.cfg.Now(), res.Header.Get(header), httpapi.PartInUse)
			res.Header.Del(header)
		}
	}
	if res.ContentLength == 0 {
		// Or httputil flushes the header from another goroutine: one that comes before the end of the
		// stream does not end it, and a call of gRPC whose status is in the header has none then.
		x.pass.FlushInterval = 0
	}
	if _, ok := res.Header["Content-Type"]; !ok {
		x.answer.Header()["Content-Type"] = nil // net/http would guess one
	}
	x.dropNominated(res.Header)
	trim(res.Trailer)
	dropUndecided(res.Header)
	tell(res.Header, x.own)
	p.cfg.Origins.Show(res.Header, x.in)
	return nil
}

// tell adds the rules' fields to an answer. Lists are joined; of others the upstream's
// own stand, as its limit is the nearer one, and none of ours that would be taken for that's.
func tell(h, own http.Header) {
	theirs := map[string]bool{}
	for name := range h {
		theirs[profileOf(name)] = true
	}
	for name, values := range own {
		switch profile := profileOf(name); {
		case name == "Ratelimit" || name == "Ratelimit-Policy":
			h[name] = append(h[name], values...)
		case h[name] == nil && (profile == "" || !theirs[profile]):
			h[name] = values
		}
	}
}

// profileOf is that of the fields which tell of one limit together; "": of none.
func profileOf(name string) string {
	switch {
	case strings.HasPrefix(name, "X-Ratelimit-"):
		return "X-Ratelimit"
	case name == "Ratelimit-Limit" || name == "Ratelimit-Remaining" || name == "Ratelimit-Reset":
		return "Ratelimit"
	}
	return ""
}

// switchedBack counts the end of a connection that had switched protocols.
func (x *exchange) switchedBack() {
	if x.result == resultSwitched {
		x.proxy.cfg.Metrics.switched.Dec()
	}
}

// faulted tells of a fault, by how full the upstream is. What a client may have brought about by its
// header, or by what it asked to switch to, says nothing of that; by a body, or a large header, that the
// upstream does not read to its end, only where other clients meet it, too: then workers die that take them.
func (x *exchange) faulted(err error, asked bool) {
	s, now, op := x.proxy.signal, x.proxy.cfg.Now(), (*net.OpError)(nil)
	var reset http2.StreamError
	stops := errors.As(err, &op) && op.Op == "write" || errors.Is(err, net.ErrClosed) || x.conn != nil && x.conn.isLost() || // whose end was read first
		errors.As(err, &reset) && reset.Code == http2.ErrCodeCancel && isPeers(reset)
	switch {
	case s == nil || asked || x.alone.detail != "":
	case stops && !isTimeout(err) && (x.body != nil || !sizeOf(x.in).within(mostTaken)):
		s.unread(now, x.proxy.api.ClientOf(x.in))
	default:
		s.failed(now)
	}
}

// failed is called where the upstream gave no answer.
func (x *exchange) failed(w http.ResponseWriter, r *http.Request, err error) {
	p := x.proxy
	if x.answer.switched { // and then the client left: there is nothing to write to
		return
	}
	f, asked := faultOf(err, x.body, r.Context().Err() != nil), x.result == resultSwitched
	switch {
	case x.alone.detail != "" && (endedFor(err) || refuses(err, x.many)):
		f = x.alone
	case x.switches && f.result == resultUnreachable:
		f = fault{resultRefused, http.StatusBadGateway, "http_upgrade_failed", "the upstream says that it speaks HTTP/2 alone, and did not switch to another protocol"}
	case x.passed.IsZero():
		f = requestFault(http.StatusBadRequest, "Upgrade is no protocol")
	case x.result == resultSwitched:
		x.switchedBack()
		f = fault{resultUnreachable, http.StatusBadGateway, "http_upgrade_failed", "the upstream switched to another protocol than was asked for"}
	}
	if x.had.Load() && httpapi.Unconnected(f.kind) { // the second time there was none
		f = fault{resultUnreachable, http.StatusBadGateway, "http_response_incomplete", "the upstream closed the connection before it answered, and then: " + f.detail}
	}
	x.result = f.result
	if f.result == resultUnreachable || f.result == resultTimeout {
		p.tellFault(f, err)
		x.faulted(err, asked)
	}
	x.answer.own = true
	h := w.Header()
	for name, values := range x.own {
		h[name] = values
	}
	x.fail(r, f)
}
