package e2e

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// passes says what a proxy can pass on to its client of what an edge told it.
type passes struct {
	body     bool // the edge's own body, not one that the proxy made
	allowed  bool // the fields of what was allowed
	failOpen bool // it goes on without an edge
	tells    bool // the application why nobody decided
	switches bool // to what is no HTTP, where client and application like
	calls    bool // a call of gRPC how it ends, in its own terms
	barred   int  // what it says of what is barred; 403 where none is given
}

// whole is a proxy that passes on everything.
var whole = passes{body: true, allowed: true, failOpen: true, switches: true, calls: true}

// forwards holds a proxy to what its recipe in deploy/ promises.
func forwards(t *testing.T, start proxied, can passes) {
	s := newSite(t, start)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *site, passes)
	}{
		{"what is allowed reaches the application, as it was sent", allowedIsServed},
		{"what is denied reaches the client, with its wait", deniedIsTold},
		{"a request of HTTP/1.0 without a host is served", hostlessAreServed},
		{"a call of gRPC that is denied ends in its own terms", callsAreTold},
		{"a client is its address", clientsAreAddresses},
		{"a client's words about itself do not help", forgedIsIgnored},
		{"a question that is too long is no dead edge", longIsRefused},
		{"no number of fields gets past, or ends the proxy", manyFieldsAreRefused},
		{"a client's headers are seen by rules", headersAreSeen},
		{"an error of the application's is its own", errorsAreTheirOwn},
		{"a rule that denies all is a 403", barredIs403},
		{"a closed limit's fault is no 429", closedIs503},
		{"what has no limit has no fields", freeHasNoFields},
		{"a websocket opens, and nothing that holds more requests", socketsOpen},
		{"without an edge all passes, and with it limits hold again", deadIsOpen},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.t = t
			test.run(t, s, can)
		})
	}
	t.Run("what nobody decided is told, and not by the client, or the application", func(t *testing.T) { undecidedIsTold(t, start, can) })
}

// undecidedIsTold has a stand-in for an edge say that it cannot decide.
func undecidedIsTold(t *testing.T, start proxied, can passes) {
	const field = "X-Spillgate-Undecided"
	var cannot atomic.Bool
	edge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if cannot.Load() {
			w.Header().Set(field, "fault")
		}
	}))
	defer edge.Close()
	told := make(chan []string, 1)
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(field, "says-the-application")
		var of []string
		for name, values := range r.Header {
			if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), field) { // what CGI, WSGI and others read as it
				of = append(of, values...)
			}
		}
		told <- of
	}))
	defer application.Close()
	s := &site{t: t, proxy: start(t, address(edge.URL), address(application.URL))}
	forged := map[string]string{field: "says-the-client", "X_Spillgate_Undecided": "it says", "X-Spillgate_Undecided": "and says", "X_Spillgate-Undecided": "once more"}
	for _, undecided := range []bool{true, false} {
		cannot.Store(undecided)
		var client, upstream []string
		if undecided && can.allowed {
			client = []string{"fault"}
		}
		if undecided && can.tells {
			upstream = []string{"fault"}
		}
		if a := s.get(ask{target: "/x", header: forged}); a.status != http.StatusOK || !slices.Equal(a.header[field], client) {
			t.Fatalf("undecided: %v: the client got %v, want %s %q", undecided, a, field, client)
		}
		if got := <-told; !slices.Equal(got, upstream) {
			t.Errorf("undecided: %v: the application was told %q, want %q", undecided, got, upstream)
		}
	}
}

func allowedIsServed(t *testing.T, s *site, can passes) {
	got := s.get(ask{method: "POST", target: "/a%20b/c?q=1&r=%2F", host: "shop.example", body: "the body", header: map[string]string{"X-User-Id": "u1"}})
	if got.status != http.StatusOK {
		t.Fatalf("got %v, want 200", got)
	}
	want := told{"POST", "/a%20b/c?q=1&r=%2F", "shop.example", "the body", "u1", "127.0.0.2"}
	if x := got.told(t); x != want {
		t.Errorf("the application was told %+v, want %+v", x, want)
	}
	if !can.allowed {
		return
	}
	if p, r := got.header.Values("RateLimit-Policy"), got.header.Values("RateLimit"); !slices.Equal(p, []string{`"each.hour";q=2;w=3600`}) || len(r) != 1 || !strings.HasPrefix(r[0], `"each.hour";r=1;t=`) {
		t.Errorf("the client was told the policy %q, the limit %q", p, r)
	}
	if left := got.header.Values("X-RateLimit-Remaining"); !slices.Equal(left, []string{"1"}) {
		t.Errorf("X-RateLimit-Remaining = %q, want 1", left)
	}
}

func deniedIsTold(t *testing.T, s *site, can passes) {
	for range 2 {
		if got := s.get(ask{target: "/denied?n=1"}); got.status != http.StatusOK || !got.served {
			t.Fatalf("within the limit: %v, want 200", got)
		}
	}
	got := s.get(ask{target: "/denied?n=2"})
	if got.status != http.StatusTooManyRequests || got.served {
		t.Fatalf("above the limit: %v, want 429, and the application not asked", got)
	}
	if wait, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || wait < 1 || wait > 4100 {
		t.Errorf("Retry-After = %q, want the seconds of an hour, and some more", got.header.Values("Retry-After"))
	}
	for name, want := range map[string]string{
		"RateLimit-Policy": `"each.hour";q=2;w=3600`, "RateLimit": `"each.hour";r=0;t=`,
		"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "Cache-Control": "no-store", "Content-Type": "application/problem+json",
	} {
		if v := got.header.Values(name); len(v) != 1 || !strings.HasPrefix(v[0], want) {
			t.Errorf("%s = %q, want %s", name, v, want)
		}
	}
	var problem struct {
		Type, Title, Detail string
		Status              int
		Wait                int      `json:"retry_after"`
		Violated            []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil {
		t.Fatalf("the body is %q: %v", got.body, err)
	}
	if !strings.HasSuffix(problem.Type, "#quota-exceeded") || problem.Status != 429 || strconv.Itoa(problem.Wait) != got.header.Get("Retry-After") {
		t.Errorf("the problem is %+v, want quota-exceeded, 429, and the wait of Retry-After", problem)
	}
	if can.body && (problem.Detail == "" || !slices.Equal(problem.Violated, []string{"each.hour"})) {
		t.Errorf("the problem is %+v, want the edge's, with its detail and policy", problem)
	}
	// Another method, host or path is another counter: all of them arrive.
	for _, other := range []ask{{target: "/denied", method: "DELETE"}, {target: "/denied", host: "other.example"}, {target: "/denied/too"}} {
		if got := s.get(other); got.status != http.StatusOK || !got.served {
			t.Errorf("%+v: %v, want 200", other, got)
		}
	}
}

// callsAreTold has calls of gRPC end, over HTTP/1 as that differs in nothing that matters here.
func callsAreTold(t *testing.T, s *site, can passes) {
	if !can.calls {
		return
	}
	kind := "application/grpc+proto"
	call := func(target string) answer {
		return s.get(ask{method: "POST", target: target, header: map[string]string{"Content-Type": kind, "Te": "trailers"}})
	}
	for range 2 {
		if got := call("/denied.Calls/Call"); got.status != http.StatusOK || !got.served {
			t.Fatalf("within the limit: %v, want the application's answer", got)
		}
	}
	for i, target := range []string{"/denied.Calls/Call", "/barred", "/shared", "/denied.Calls/Call"} {
		want := []string{"8", "7", "14", "8"}[i]
		if i == 3 {
			kind = "application/grpc-web-text"
		}
		got := call(target)
		if got.status != http.StatusOK || got.served || !slices.Equal(got.header.Values("Content-Type"), []string{kind}) || got.body != "" || !slices.Equal(got.header.Values("Grpc-Status"), []string{want}) || got.header.Get("Grpc-Message") == "" {
			t.Errorf("%s: %v, want status %s of gRPC, and the application not asked", target, got, want)
		}
		if got.header.Get("Cache-Control") != "no-store" { // or it is everybody's
			t.Errorf("%s: Cache-Control %q, want no-store", target, got.header.Get("Cache-Control"))
		}
		if wait := got.header.Get("Retry-After"); (wait == "") != (want == "7") || (got.header.Get("Grpc-Status-Details-Bin") == "") != (want == "7") {
			t.Errorf("%s: Retry-After %q, details %q: want both where waiting helps", target, wait, got.header.Get("Grpc-Status-Details-Bin"))
		}
	}
	for _, method := range []string{"GET", "PUT"} { // whatever it says of itself, it is none
		is := ask{method: method, target: "/denied.Calls/None", header: map[string]string{"Content-Type": "application/grpc"}}
		s.spend(is)
		if got := s.get(is); got.status != http.StatusTooManyRequests || got.header.Get("Grpc-Status") != "" {
			t.Errorf("%s: %v, want a denial", method, got)
		}
	}
}

// hostlessAreServed: some health checks are such.
func hostlessAreServed(t *testing.T, s *site, _ passes) {
	conn, err := net.Dial("tcp", s.proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := fmt.Fprint(conn, "GET /free HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s, want 200", resp.Status)
	}
}

// spend uses up the limit of a client for target.
func (s *site) spend(a ask) {
	s.t.Helper()
	for range 2 {
		if got := s.get(a); got.status != http.StatusOK {
			s.t.Fatalf("%+v: %v, want 200", a, got)
		}
	}
	if got := s.get(a); got.status != http.StatusTooManyRequests {
		s.t.Fatalf("%+v: %v, want 429", a, got)
	}
}

func clientsAreAddresses(t *testing.T, s *site, _ passes) {
	s.spend(ask{target: "/address", from: "127.0.0.2"})
	s.spend(ask{target: "/address", from: "127.0.0.3"})
}

func forgedIsIgnored(t *testing.T, s *site, _ passes) {
	s.spend(ask{target: "/forged"})
	for name, value := range map[string]string{
		"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Uri": "/else", "X-Forwarded-Method": "PUT", "X-Forwarded-Host": "else.example",
		"X-Original-Uri": "/else", "X-Original-Method": "PUT", "X-Real-Ip": "203.0.113.9", "Forwarded": "for=203.0.113.9",
		"X-Forwarded-Prefix": "/else", "X-Http-Method-Override": "PUT", "Connection": "X-Forwarded-For, X-Forwarded-Uri",
		"Expect": "100-continue", "Upgrade": "websocket", "Te": "trailers", "Content-Encoding": "gzip", "Range": "bytes=0-1",
	} {
		if got := s.get(ask{target: "/forged", header: map[string]string{name: value}}); got.status != http.StatusTooManyRequests || got.served {
			t.Errorf("with %s: %s: %v, want 429", name, value, got)
		}
	}
	if line := s.line("GET /forged", "Content-Length: 10\r\n"); !strings.HasPrefix(line, "HTTP/1.1 429 ") {
		t.Errorf("with a body that does not come: %q, want 429", line)
	}
	// Nor is there a way to the edge's own questions, or past them.
	if got := s.get(ask{target: "/v1/auth?cost=0"}); got.status == http.StatusOK && !got.served {
		t.Errorf("the edge answers clients: %v", got)
	}
	if got := s.get(ask{target: "/spillgate"}); got.status == http.StatusOK && !got.served {
		t.Errorf("the edge answers clients: %v", got)
	}
}

// longIsRefused asks what a proxy just about takes, and what just about fits no more into
// its question, be it of a length that the proxy refuses or the edge.
func longIsRefused(t *testing.T, s *site, _ passes) {
	s.spend(ask{target: "/long"})
	lengths := []int{7 << 10, 31 << 10, 60 << 10, 70 << 10, 300 << 10, 900 << 10}
	for n := 14 << 10; n < 16<<10+512; n += 48 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		filler := strings.Repeat("x", n/8)
		long := ask{target: "/long", header: map[string]string{}}
		for i := range 8 {
			long.header["X-Long-"+strconv.Itoa(i)] = filler
		}
		for _, a := range []ask{long, {target: "/long?q=" + strings.Repeat("x", n)}} {
			before := s.served.Load()
			got, err := s.try(a)
			if err == nil && got.status < 400 || s.served.Load() != before {
				t.Errorf("with %d bytes: %v, %v, want no answer of the application's", n, got, err)
			}
		}
	}
}

// manyFieldsAreRefused asks with more fields than some proxies have room for in a question,
// of as many names, and all of one.
func manyFieldsAreRefused(t *testing.T, s *site, _ passes) {
	fields := func(n int, name func(i int) int) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, "X-Field-%d: a\r\n", name(i))
		}
		return all.String()
	}
	names := map[string]func(i int) int{"of all names": func(i int) int { return i }, "of one name": func(int) int { return 0 }}
	for of, name := range names {
		if line := s.line("DELETE /fields", fields(70, name)); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
			t.Errorf("with 70 fields %s: %q, want 200", of, line)
		}
	}
	s.spend(ask{target: "/fields"})
	for of, name := range names {
		for n := 1; n <= 300; n++ {
			before := s.served.Load()
			line := s.line("GET /fields", fields(n, name))
			if denied := strings.HasPrefix(line, "HTTP/1.1 429 "); !denied && (n <= 70 || !strings.HasPrefix(line, "HTTP/1.1 4")) || s.served.Load() != before {
				t.Errorf("with %d fields %s: %q, want 429, or above 70 a refusal, and the application not asked", n, of, line)
			}
		}
	}
}

func headersAreSeen(t *testing.T, s *site, _ passes) {
	for _, step := range []struct {
		user string
		want int
	}{{"u1", 200}, {"u2", 200}, {"u1", 429}, {"u2", 429}} {
		if got := s.get(ask{target: "/users", header: map[string]string{"X-User-Id": step.user}}); got.status != step.want {
			t.Errorf("%s: %v, want %d", step.user, got, step.want)
		}
	}
}

func errorsAreTheirOwn(t *testing.T, s *site, _ passes) {
	for _, c := range []struct {
		target, body, field, value string
		status                     int
	}{
		{"/forbidden", "not yours\n", "X-Of-The-Application", "yes", 403},
		{"/broken", "broken\n", "Content-Type", "text/plain; charset=utf-8", 500},
		{"/busy", "busy\n", "Retry-After", "7", 503},
	} {
		before := s.served.Load()
		got := s.get(ask{target: c.target})
		if got.status != c.status || got.body != c.body || !slices.Equal(got.header.Values(c.field), []string{c.value}) {
			t.Errorf("%s: %v, want the application's %d, %q and %s", c.target, got, c.status, c.body, c.field)
		}
		if n := s.served.Load() - before; n != 1 {
			t.Errorf("%s was served %d times, want once", c.target, n)
		}
	}
}

func barredIs403(t *testing.T, s *site, _ passes) {
	got := s.get(ask{target: "/barred"})
	if got.status != http.StatusForbidden || got.served || got.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %v, want a 403 with a problem, and the application not asked", got)
	}
	if v := got.header.Values("Retry-After"); v != nil {
		t.Errorf("Retry-After = %q, want none: waiting does not help", v)
	}
	if !json.Valid([]byte(got.body)) {
		t.Errorf("the body is %q, want JSON", got.body)
	}
}

func closedIs503(t *testing.T, s *site, _ passes) {
	got := s.get(ask{target: "/shared"})
	if got.status != http.StatusServiceUnavailable || got.served || got.header.Get("Retry-After") == "" || !strings.Contains(got.body, "#temporary-reduced-capacity") {
		t.Errorf("got %v, want a 503 with a wait, and the application not asked", got)
	}
}

func freeHasNoFields(t *testing.T, s *site, _ passes) {
	got := s.get(ask{target: "/free"})
	if got.status != http.StatusOK || !got.served {
		t.Fatalf("got %v, want 200", got)
	}
	for name, v := range got.header {
		if strings.Contains(strings.ToLower(name), "ratelimit") || name == "Retry-After" {
			t.Errorf("%s = %q, want none", name, v)
		}
	}
}

// answersWithin is how long a client may wait where the edge is dead: the time that the
// recipes give it, and what a busy machine takes.
const answersWithin = 3 * time.Second

func deadIsOpen(t *testing.T, s *site, can passes) {
	s.spend(ask{target: "/dead"})
	open := func(state string) {
		t.Helper()
		if !can.failOpen {
			if got, err := s.try(ask{target: "/dead"}); err == nil && (got.status < 500 || got.served) { // or it waits for longer than the client
				t.Errorf("%s: %v, want an error: this proxy cannot do without", state, got)
			}
			return
		}
		began := time.Now()
		got := s.get(ask{method: "POST", target: "/dead?q=1", body: "the body", host: "shop.example"})
		if took := time.Since(began); got.status != http.StatusOK || took > answersWithin {
			t.Fatalf("%s: %v after %v, want 200 within %v", state, got, took, answersWithin)
		}
		if x, want := got.told(t), (told{"POST", "/dead?q=1", "shop.example", "the body", "", "127.0.0.2"}); x != want {
			t.Errorf("%s: the application was told %+v, want %+v", state, x, want)
		}
		errorsAreTheirOwn(t, s, can)
		for name, v := range got.header {
			if strings.Contains(strings.ToLower(name), "ratelimit") {
				t.Errorf("%s: %s = %q, want none", state, name, v)
			}
		}
	}
	s.edge.Pause()
	open("while the edge is frozen")
	s.edge.Continue()
	s.edge.Kill()
	open("while the edge is dead")
	s.edge.Restart()
	// Some proxies look for a dead edge only now and then. What is barred is not counted.
	proc.Until(t, patience, func() error {
		if got, want := s.get(ask{target: "/barred"}), cmp.Or(can.barred, http.StatusForbidden); got.status != want {
			return fmt.Errorf("with the edge back: %v, want %d", got, want)
		}
		return nil
	})
	s.spend(ask{target: "/alive"})
}

// socketsOpen has clients ask to switch. What is asked in HTTP that a connection was switched to
// would be limited by nobody.
func socketsOpen(t *testing.T, s *site, can passes) {
	if !can.switches {
		return
	}
	for i, upgrade := range []string{"websocket", "WebSocket", "h2c", "HTTP/2.0", "TLS/1.2", "websocket, h2c", "h2c, websocket", "websocket\r\nUpgrade: h2c", "h2c\r\nUpgrade: websocket"} {
		c, err := net.Dial("tcp", s.proxy)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /switch/%d HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n", i, upgrade)
		answer := bufio.NewReader(c)
		resp, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatalf("Upgrade: %s: %v", upgrade, err)
		}
		switch {
		case !strings.EqualFold(upgrade, "websocket"):
			if resp.StatusCode == http.StatusSwitchingProtocols && !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
				t.Errorf("Upgrade: %s: the client switches to %q, in which nobody limits it", upgrade, resp.Header["Upgrade"])
			}
		case resp.StatusCode != http.StatusSwitchingProtocols:
			t.Errorf("Upgrade: %s: %d, want 101", upgrade, resp.StatusCode)
		default:
			for range 2 {
				fmt.Fprintln(c, "hello")
				if line, err := answer.ReadString('\n'); line != "hello\n" || err != nil {
					t.Errorf("%q came back from the websocket, %v", line, err)
				}
			}
		}
	}
}
