package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/spillgate/spillgate/edge/limit"
)

// strict is an upstream of HTTP/2 that ends a connection for a large header, and for trailers, as
// nginx does. It answers once go is closed; asked counts what it is to answer.
func strict(t *testing.T, asked *sync.WaitGroup, goes <-chan struct{}) string {
	return "h2c" + accepts(t, func(c net.Conn) {
		_, _ = io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
		frames := http2.NewFramer(c, c)
		_ = frames.WriteSettings()
		begun := map[uint32]bool{}
		var answers sync.WaitGroup
		var mu sync.Mutex // guards frames' writing
		defer answers.Wait()
		for {
			f, err := frames.ReadFrame()
			if err != nil {
				return
			}
			id := f.Header().StreamID
			if h, ok := f.(*http2.HeadersFrame); ok {
				code := http2.ErrCodeNo
				switch {
				case len(h.HeaderBlockFragment()) > 3000: // as it is packed
					code = http2.ErrCodeEnhanceYourCalm
				case begun[id]:
					code = http2.ErrCodeProtocol
				}
				if code != http2.ErrCodeNo {
					mu.Lock()
					_ = frames.WriteGoAway(id, code, nil)
					mu.Unlock()
					return
				}
				begun[id] = true
			}
			if id == 0 || !f.Header().Flags.Has(http2.FlagDataEndStream) {
				continue
			}
			asked.Done()
			answers.Go(func() {
				<-goes
				var block bytes.Buffer
				_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
				mu.Lock()
				defer mu.Unlock()
				_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
			})
		}
	})[len("http"):]
}

// What an upstream ends a connection for is lost alone, and is the client's fault: neither do
// others' requests end with it, nor is the upstream taken to be full.
func TestWhatEndsConnectionsGoesAlone(t *testing.T) {
	const victims = 20
	var asked sync.WaitGroup
	goes := make(chan struct{})
	asked.Add(victims + 1)
	s := (&site{t: t}).before(strict(t, &asked, goes), options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Hour}}}, hourly(100))
	var all sync.WaitGroup
	get := func() {
		if got := s.get("/"); got.status != http.StatusOK {
			t.Errorf("beside it: %d %s", got.status, got.body)
		}
	}
	all.Go(get)
	s.reaches(1, "spillgate_proxy_requests_under_way")
	for deadline := time.Now().Add(patience); !s.proxy.shared.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody sees that it speaks HTTP/2")
		}
	}
	for range victims {
		all.Go(get)
	}
	asked.Wait()
	large, many := strings.Repeat("x", mostTaken.field+1), ""
	for _, letter := range "bcdfghj" { // of the same fields HPACK sends but one
		many += "X: " + strings.Repeat(string(letter), mostTaken.field/2) + "\r\n"
	}
	for name, c := range map[string]struct {
		target, header string
		status         int
	}{
		"a field":  {"/", "Cookie: " + large, http.StatusRequestHeaderFieldsTooLarge},
		"many":     {"/", many + "Y: y", http.StatusRequestHeaderFieldsTooLarge},
		"a query":  {"/?" + large, "X: x", http.StatusRequestURITooLong},
		"trailers": {"/", "Trailer: X-T\r\nTransfer-Encoding: chunked", http.StatusBadRequest},
	} {
		c2 := s.dial()
		c2.write("POST " + c.target + " HTTP/1.1\r\nHost: h\r\n" + c.header + "\r\n\r\n")
		if c.status == http.StatusBadRequest {
			c2.write("1\r\na\r\n0\r\nX-T: b\r\n\r\n")
		}
		if got := c2.response(); got.StatusCode != c.status {
			t.Errorf("%s: %d, want %d", name, got.StatusCode, c.status)
		}
	}
	close(goes)
	all.Wait()
	s.result("answered", victims+1)
	if used := s.metric("spillgate_proxy_capacity_used_ratio"); used == 1 {
		t.Error("the upstream is taken to be full")
	}
}

// One that resets the stream of such a request, as Node does, is told so of it, too.
func TestWhatIsResetForItsHeaderIsTheClientsFault(t *testing.T) {
	for _, code := range []http2.ErrCode{http2.ErrCodeEnhanceYourCalm, http2.ErrCodeInternal} { // of Node's without TLS, and with
		s := (&site{t: t}).before(resets(t, code, new(atomic.Int64)), options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Hour}}}, hourly(100))
		var many []string
		for i := range mostTaken.fields + 1 {
			many = append(many, fmt.Sprint("X-", i), "y")
		}
		if got := s.get("/", many...); got.status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%v of many fields: %d %s, want 431", code, got.status, got.body)
		}
		s.result("unreachable", 0)
		unread := 0. // Go's server says so of a handler that panics
		want := http.StatusRequestHeaderFieldsTooLarge
		if code == http2.ErrCodeInternal {
			unread, want = 1, http.StatusBadGateway
		}
		if got := s.get("/", "X", strings.Repeat("x", mostTaken.field+1)); got.status != want {
			t.Errorf("%v of a large field: %d %s, want %d", code, got.status, got.body, want)
		}
		s.result("unreachable", unread)
		if used := s.metric("spillgate_proxy_capacity_used_ratio"); used == 1 {
			t.Errorf("%v: the upstream is taken to be full", code)
		}
		if got := s.get("/"); got.status != http.StatusBadGateway { // what is small it resets for a reason of its own
			t.Errorf("%v of a small one: %d, want 502", code, got.status)
		}
		s.result("unreachable", unread+1)
	}
}

// A client that asks whether it is to go on (Expect) is told so by the edge, also where the upstream
// begins its answer first, and its leaving is seen.
func TestExpectBeforeAnUpstreamThatAnswersAtOnce(t *testing.T) {
	slots := limit.RuleSpec{Name: "slots", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Algorithm: "concurrency", Limit: 2, Lease: time.Hour}}}
	s := newSite(t, echo, options{}, slots)
	for range 3 { // more than there are slots
		c := s.dial()
		c.write("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 12\r\n\r\n")
		resp := c.response()
		if resp.StatusCode == http.StatusContinue {
			resp = c.response()
		}
		c.write("hello\n")
		text := make([]byte, len("hello\n"))
		if _, err := io.ReadFull(resp.Body, text); resp.StatusCode != http.StatusOK || string(text) != "hello\n" || err != nil {
			t.Fatalf("%d %q %v", resp.StatusCode, text, err)
		}
		c.Close() // in the middle of its body
		s.reaches(0, "spillgate_proxy_requests_under_way")
	}
}

// An upstream that answers may take nothing more for as long as its answer comes, and no longer.
func TestWritesLastAsLongAsTheAnswerComes(t *testing.T) {
	const most = time.Second
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		c := &upstreamConn{Conn: near, timeout: most}
		wrote := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 9))
			wrote <- err
		}()
		go func() {
			for range 9 {
				if _, err := c.Read(make([]byte, 9)); err != nil {
					t.Error(err)
				}
			}
		}()
		for range 9 {
			time.Sleep(most - time.Millisecond) // virtual
			fmt.Fprint(far, "x")
			select {
			case err := <-wrote:
				t.Fatalf("while its answer comes: %v", err)
			default:
			}
		}
		begin := time.Now()
		if err := <-wrote; !isTimeout(err) || time.Since(begin) > most {
			t.Errorf("%v, %v after the last of the answer; want a timeout after %v", err, time.Since(begin), most)
		}
	})
}

// What stood in a queue may still be read there as its turn comes: who waits for that waits for
// the client, and not for the upstream.
func TestClientsAreSilentAfterTheirTurn(t *testing.T) {
	b := &body{src: strings.NewReader("x"), left: -1, pauses: &pauses{due: due{most: time.Hour, late: func() {}}}}
	taking := &due{most: time.Hour, late: func() {}}
	awaited := func() bool {
		taking.mu.Lock()
		defer taking.mu.Unlock()
		return !taking.until.IsZero()
	}
	b.taking.Store(taking)
	taking.start()
	b.mu.Lock() // as who reads from the client does
	read := make(chan int)
	go func() {
		n, _ := b.Read(make([]byte, 9))
		read <- n
	}()
	for deadline := time.Now().Add(patience); awaited(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is the upstream that is waited for")
		}
	}
	b.mu.Unlock()
	if n := <-read; n != 1 || !awaited() {
		t.Errorf("%d bytes; then the upstream is waited for: %v", n, awaited())
	}
	taking.end()
}

// What is small is no reason to go alone, but for many of them: a Cookie is as many as it has crumbs.
// So is what the upstream has answered, until it ends a connection after all.
func TestWhatIsTaken(t *testing.T) {
	alone := func(takes *takes, out *http.Request) bool {
		out.URL = mustURL(t, "/")
		return takes.alone(sizeOf(out), out).detail != ""
	}
	for fields, want := range map[int]bool{mostTaken.fields - 3: false, mostTaken.fields - 2: true} { // beside method, path and host
		one, many := http.Header{}, http.Header{}
		one.Set("Cookie", "a=b"+strings.Repeat("; a=b", fields-1))
		for i := range fields {
			many.Set(fmt.Sprintf("X-%d", i), "y")
		}
		for _, h := range []http.Header{one, many} {
			if got := alone(new(takes), &http.Request{Header: h}); got != want {
				t.Errorf("%d fields: alone is %v", fields, got)
			}
		}
	}
	large := &http.Request{Method: strings.Repeat("M", mostTaken.field+1)}
	other := &http.Request{Header: http.Header{"X": {strings.Repeat("x", mostTaken.field+1), strings.Repeat("y", mostTaken.header)}}}
	var known takes
	if !alone(&known, large) || !alone(&known, other) {
		t.Error("what is large goes with others")
	}
	if known.raise(sizeOf(large)); alone(&known, large) || !alone(&known, other) {
		t.Error("what was taken goes alone, or more than that does not")
	}
	if known.reset(); !alone(&known, large) {
		t.Error("what ended a connection goes with others")
	}
	if !alone(&known, &http.Request{Trailer: http.Header{"X-T": nil}}) {
		t.Error("trailers go with others")
	}
}

// Before an upstream that takes large headers they share its connections, once it has answered one;
// trailers do not, and those that nobody announced are none.
func TestLargeHeadersThatAreTaken(t *testing.T) {
	s := (&site{t: t}).before(h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.RemoteAddr, " ", len(r.Trailer))
	}), options{}, hourly(100))
	shared := s.get("/").body
	large := "Cookie: " + strings.Repeat("x", mostTaken.field)
	ask := func(header, trailers string) string {
		c := s.dial()
		c.write("POST / HTTP/1.1\r\nHost: h\r\n" + header + "\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + trailers + "\r\n")
		text, err := io.ReadAll(c.response().Body)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	if got := ask(large, ""); got == shared || got == "" {
		t.Errorf("the first goes by %q, as others", got)
	}
	if got := ask(large, ""); got != shared {
		t.Errorf("the second goes by %q, others by %q", got, shared)
	}
	if got := ask("Trailer: Authorization", "X-T: b\r\n"); got != shared {
		t.Errorf("with a trailer that may be none: %q, others %q", got, shared)
	}
	addr, _, _ := strings.Cut(shared, " ")
	if got := ask("Trailer: X-T", "X-T: b\r\n"); strings.HasPrefix(got, addr) || !strings.HasSuffix(got, " 1") {
		t.Errorf("with a trailer: %q, others %q", got, shared)
	}
}

// Of an upload that the upstream does not take others need not wait: they go by another connection.
func TestUploadsGoRoundOneThatIsNotTaken(t *testing.T) {
	leaves := make(chan struct{})
	upstream := h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/deaf" {
			<-leaves
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})
	s := (&site{t: t}).before(upstream, options{}, hourly(100))
	var deaf sync.WaitGroup
	deaf.Go(func() { s.send("POST", "/deaf", strings.Repeat("x", 3<<20)) }) // more than the windows of a connection
	begun := s.proxy.transport.(*line).on.Load()
	for deadline := time.Now().Add(patience); !begun.full.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody sees that it is not taken")
		}
	}
	const size = 1 << 20
	for range 3 {
		if got := s.send("POST", "/", strings.Repeat("x", size)); got.status != http.StatusOK || got.body != fmt.Sprint(size, nil) {
			t.Errorf("beside it: %d %s", got.status, got.body)
		}
	}
	if now := s.proxy.transport.(*line).on.Load(); now == begun {
		t.Error("they went by the same connection")
	}
	close(leaves)
	deaf.Wait()
}

// What takes long is told once, before it takes too long, and again only where it begins anew.
func TestDueIsSlowBeforeItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, late := 0, 0
		d := &due{most: 5 * time.Second, late: func() { late++ }, soon: 2 * time.Second, slows: func() { slow++ }}
		for _, step := range []struct {
			what       func()
			lasts      time.Duration
			slow, late int
		}{
			{d.start, 2*time.Second - 1, 0, 0}, {d.moves, 2*time.Second - 1, 0, 0}, {d.moves, 2*time.Second + 1, 1, 0}, {func() {}, 3*time.Second - 2, 1, 0}, {func() {}, 2, 1, 1},
			{func() {}, time.Hour, 1, 1}, {d.start, 3 * time.Second, 2, 1}, {d.stop, time.Hour, 2, 1},
		} {
			step.what()
			time.Sleep(step.lasts) // virtual
			synctest.Wait()
			d.mu.Lock() // as who counts has it
			if slow != step.slow || late != step.late {
				t.Errorf("after %v: slow %d, late %d, want %d and %d", step.lasts, slow, late, step.slow, step.late)
			}
			d.mu.Unlock()
		}
	})
}

// An upstream that refuses the stream of a large header (HAProxy, of one that is barely too large) has
// no fault either.
func TestLargeHeadersWhoseStreamIsRefused(t *testing.T) {
	upstream := ends(t, func(frames *http2.Framer, stream uint32) {
		_ = frames.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
	})
	s := (&site{t: t}).before(upstream, options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Hour}}}, hourly(100))
	if got := s.get("/", "X-Large", strings.Repeat("x", mostTaken.field)); got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%+v, want 431", got)
	}
	if used := s.metric("spillgate_proxy_capacity_used_ratio"); used == 1 {
		t.Error("the upstream is taken to be full")
	}
	if got := s.get("/"); got.status != http.StatusBadGateway {
		t.Errorf("what is small, and refused: %+v, want 502", got)
	}
	if used := s.metric("spillgate_proxy_capacity_used_ratio"); used != 1 {
		t.Errorf("capacity %v after a fault of the upstream's, want 1", used)
	}
}

// A client that announces trailers of a request without a body sends none: net/http would wait for them.
func TestTrailersOfNoBody(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	up.Config.Protocols = new(http.Protocols)
	up.Config.Protocols.SetUnencryptedHTTP2(true)
	up.Start()
	t.Cleanup(up.Close)
	s := (&site{t: t}).before("h2c"+up.URL[len("http"):], options{cfg: Config{Timeout: time.Second}}, hourly(900))
	over := &http.Transport{Protocols: new(http.Protocols)}
	over.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(over.CloseIdleConnections)
	for _, method := range []string{"GET", "DELETE", "POST"} {
		req, err := http.NewRequest(method, s.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header["TRailer"] = []string{"X-T"} // by its name net/http's client forbids it
		res, err := over.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", method, res.StatusCode)
		}
	}
	s.result("timeout", 0)
}
