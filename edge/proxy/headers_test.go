package proxy

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// What a client says of itself does not reach the upstream, whatever it is called and
// however it tries to take away what the proxy says; nor does it change whose the
// request is.
func TestForgedOriginIsDropped(t *testing.T) {
	var got http.Header
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header }, options{}, hourly(1))
	want := map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": s.addr, "X-Forwarded-Proto": "http",
		"Forwarded": `for=127.0.0.1;host="` + s.addr + `";proto=http`,
	}
	forged := []string{
		"X-Forwarded-For", "203.0.113.9", "X-Forwarded-For", "203.0.113.10", "X-Forwarded-Host", "else.example", "X-Forwarded-Proto", "https", "Forwarded", "for=203.0.113.9",
		"X-Forwarded-Port", "443", "X-Forwarded-Prefix", "/else", "X-Forwarded-Uri", "/else", "X-Real-Ip", "203.0.113.9",
		"X-Original-Url", "/else", "X-Original-Method", "PUT", "X-Rewrite-Url", "/else", "X-Spillgate-Undecided", "fault", "X_Spillgate_undecided", "fault", "X_forwarded_for", "203.0.113.9", "X-Forwarded_host", "else.example", "X_Real-IP", "203.0.113.9",
		"Connection", "X-Forwarded-For, Forwarded, X-Forwarded-Proto", "X-Other", "stays", "X_other", "stays",
	}
	if answer := s.get("/", forged...); answer.status != 200 {
		t.Fatalf("%+v", answer)
	}
	for name, values := range got {
		read := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		claim := strings.HasPrefix(read, "x-forwarded-") || strings.HasPrefix(read, "x-original-") || read == "x-real-ip" || read == "x-rewrite-url" || read == "x-spillgate-undecided" || read == "forwarded"
		if claim && !slices.Equal(values, []string{want[name]}) {
			t.Errorf("the upstream was told %s: %q, want %q", name, values, want[name])
		}
	}
	for name := range want {
		if got[name] == nil {
			t.Errorf("the upstream was not told %s", name)
		}
	}
	if got.Get("X-Other") != "stays" || got["X_other"] == nil {
		t.Errorf("other fields are gone: %v", got)
	}
	if again := s.get("/", "X-Forwarded-For", "203.0.113.77"); again.status != http.StatusTooManyRequests {
		t.Errorf("with another forged address: %d, want 429: it is the same client", again.status)
	}
}

// That nobody decided is an edge's word: not a client's, be it that a trusted proxy passes it
// on, nor the upstream's.
func TestUndecidedIsNobodyElsesWord(t *testing.T) {
	for _, trusted := range []httpapi.Proxies{nil, httpapi.Loopback} {
		var got http.Header
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			got = r.Header
			w.Header()["X-Spillgate-Undecided"] = []string{"fault"}
			w.Header()["X_spillgate_undecided"] = []string{"fault"}
		}, options{api: httpapi.Config{TrustedProxies: trusted}}, hourly(5))
		answer := s.get("/", "X-Spillgate-Undecided", "fault", "X_Spillgate_Undecided", "fault", "X-Spillgate_undecided", "fault")
		for who, h := range map[string]http.Header{"the upstream": got, "the client": answer.header} {
			for name := range h {
				if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), httpapi.UndecidedField) {
					t.Errorf("%s is told %s: %q by somebody else (trusted: %v)", who, name, h[name], trusted)
				}
			}
		}
	}
}

// A trusted proxy's word is passed on, and it is added; its client is who is limited.
func TestTrustedProxyIsHeard(t *testing.T) {
	var got http.Header
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header }, options{api: httpapi.Config{TrustedProxies: httpapi.Loopback}}, hourly(1))
	for i, step := range []struct {
		header []string
		status int
		want   map[string][]string
	}{
		{[]string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.example", "Forwarded", `for=192.0.2.1;proto=https`, "X-Real-Ip", "192.0.2.1"}, 200, map[string][]string{
			"X-Forwarded-For": {"192.0.2.1, 127.0.0.1"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"shop.example"}, "X-Real-Ip": {"192.0.2.1"},
			"Forwarded": {`for=192.0.2.1;proto=https, for=127.0.0.1;host="` + s.addr + `";proto=http`},
		}},
		{[]string{"X-Forwarded-For", "192.0.2.2"}, 200, map[string][]string{
			"X-Forwarded-For": {"192.0.2.2, 127.0.0.1"}, "X-Forwarded-Proto": {"http"}, "X-Forwarded-Host": {s.addr}, "Forwarded": nil,
		}},
		{nil, 200, map[string][]string{"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Proto": {"http"}}},
		{[]string{"X-Forwarded-For", "192.0.2.1"}, 429, nil},
	} {
		if answer := s.get("/", step.header...); answer.status != step.status {
			t.Errorf("request %d: %+v, want %d", i, answer, step.status)
		}
		for name, want := range step.want {
			if !slices.Equal(got[name], want) {
				t.Errorf("request %d: the upstream was told %s: %q, want %q", i, name, got[name], want)
			}
		}
	}
}

// Fields of a connection end with it, in both directions.
func TestHopByHopFieldsEndHere(t *testing.T) {
	var got http.Header
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		for _, pair := range [][2]string{{"Connection", "X-Bar"}, {"X-Bar", "1"}, {"Keep-Alive", "timeout=5"}, {"Proxy-Authenticate", "Basic"}, {"Upgrade", "h2c"}, {"X-End", "1"}} {
			w.Header().Add(pair[0], pair[1])
		}
	}, options{}, hourly(9))
	c := s.dial()
	c.write("GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, X-Foo\r\nX-Foo: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nTE: gzip, trailers\r\nTransfer-Encoding: chunked\r\nX-End: 1\r\n\r\n0\r\n\r\n")
	resp := c.response()
	for _, name := range []string{"X-Foo", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Connection", "Upgrade"} {
		if v := got[name]; v != nil {
			t.Errorf("the upstream got %s: %q", name, v)
		}
	}
	if te := got["Te"]; !slices.Equal(te, []string{"trailers"}) || got["X-End"] == nil {
		t.Errorf("the upstream got %v, want TE: trailers, and X-End", got)
	}
	for _, name := range []string{"X-Bar", "Keep-Alive", "Proxy-Authenticate", "Upgrade", "Connection"} {
		if v := resp.Header[name]; v != nil {
			t.Errorf("the client got %s: %q", name, v)
		}
	}
	if resp.Header["X-End"] == nil {
		t.Error("X-End did not reach the client")
	}
}

// Trailers, announced or not, in either direction, are none of the fields that say how
// long a message is, whose, or what is to be done with it.
func TestFieldsThatAreNoTrailers(t *testing.T) {
	const trailers = "0\r\nX-Sum: 1\r\nX-Late: 2\r\nX-User-Id: v\r\nX_User_Id: v\r\nContent-Length: 3\r\nHost: else\r\nTransfer-Encoding: chunked\r\nAuthorization: Basic x\r\nX-Forwarded-For: 203.0.113.9\r\nX_real_ip: 203.0.113.9\r\nSet-Cookie: a=b\r\nCookie: a=b\r\nIf-Match: x\r\n\r\n"
	const announced = "Transfer-Encoding: chunked\r\nTrailer: X-Sum, Host, Set-Cookie, X-Forwarded-For\r\n\r\n1\r\nx\r\n"
	sent := make(chan string, 1)
	upstream := accepts(t, func(c net.Conn) {
		got := ""
		for b := make([]byte, 4096); !strings.Contains(got, "\r\n0\r\n") || !strings.HasSuffix(got, "\r\n\r\n"); {
			n, err := c.Read(b)
			if got += string(b[:n]); err != nil {
				break
			}
		}
		sent <- got
		io.WriteString(c, "HTTP/1.1 200 OK\r\n"+announced+trailers)
	})
	known := limit.RuleSpec{Name: "known", Key: []string{"header.X-User-Id"}, Rates: []limit.RateSpec{{Limit: 9, Per: time.Hour}}}
	s := (&site{t: t}).before(upstream, options{}, hourly(9), known)
	c := s.dial()
	c.write("POST / HTTP/1.1\r\nHost: h\r\n" + announced + trailers)
	resp := c.response()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	header, end, _ := strings.Cut(<-sent, "\r\n1\r\nx\r\n")
	if !strings.Contains(header, "\r\nTrailer: X-Sum\r\n") {
		t.Errorf("the upstream was told of the trailers of %q, want X-Sum", header)
	}
	if end != "0\r\nX-Late: 2\r\nX-Sum: 1\r\n\r\n" {
		t.Errorf("the upstream was sent %q at the end", end)
	}
	if want := (http.Header{"X-Sum": {"1"}, "X-Late": {"2"}, "X-User-Id": {"v"}, "X_user_id": {"v"}}); !maps.EqualFunc(resp.Trailer, want, slices.Equal) {
		t.Errorf("the client got the trailers %v, want %v", resp.Trailer, want)
	}
}

func TestElementOfForwarded(t *testing.T) {
	for _, c := range []struct{ addr, host, want string }{
		{"192.0.2.1", "shop.example", `for=192.0.2.1;host="shop.example";proto=http`},
		{"2001:db8::1", "[2001:db8::2]:80", `for="[2001:db8::1]";host="[2001:db8::2]:80";proto=http`},
		{"192.0.2.1", `a";for=b`, `for=192.0.2.1;proto=http`},
		{"", "", `for=unknown;proto=http`},
	} {
		addr, _ := netip.ParseAddr(c.addr)
		if got := element(addr, c.host, "http"); got != c.want {
			t.Errorf("element(%s, %s) = %s, want %s", c.addr, c.host, got, c.want)
		}
	}
}

// No name that a client can write says to an upstream, which may read underscores as
// hyphens, and dots and the like, and letters of any case, whose the request is.
func FuzzClaims(f *testing.F) {
	for _, name := range []string{"X-Forwarded-For", "x_forwarded_for", "X__Forwarded-For", "FORWARDED", "x-real_ip", "X-Original-URL", "X.Forwarded!For", "x", "f"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		in := httptest.NewRequest("GET", "/", nil)
		if !httpguts.ValidHeaderFieldName(name) {
			return // no name that net/http takes
		}
		in.Header.Add(name, "forged")
		out := in.Clone(t.Context())
		tellOrigin(in, out, "192.0.2.1", false)
		for key, values := range out.Header {
			read := strings.Map(func(r rune) rune {
				if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r) {
					return '-'
				}
				return r
			}, strings.ToLower(key))
			if (strings.HasPrefix(read, "x-forwarded-") || read == "forwarded" || read == "x-real-ip") && slices.Contains(values, "forged") {
				t.Errorf("%q reaches the upstream", key)
			}
		}
	})
}

// What a client says is for this connection alone is seen neither by the upstream nor by the
// rules: who names himself to these alone would be limited as nobody.
func TestRulesSeeWhatTheUpstreamSees(t *testing.T) {
	known := limit.RuleSpec{Name: "known", Group: "g", Priority: 1, Key: []string{"header.Authorization"}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}}
	known.Match.Has = []string{"header.Authorization"}
	var got http.Header
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header }, options{}, known,
		limit.RuleSpec{Name: "unknown", Group: "g", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}})
	for i, header := range [][]string{
		{"Connection", "Authorization"}, {"Connection", "close, authorization"}, {"Connection", "connection,Authorization", "Connection", "x"},
	} {
		answer := s.get("/", append(header, "Authorization", "junk")...)
		if want := []int{200, 429, 429}[i]; answer.status != want {
			t.Errorf("%q: %d, want %d: as one without", header, answer.status, want)
		}
	}
	if got["Authorization"] != nil {
		t.Errorf("the upstream got %q", got["Authorization"])
	}
	if answer := s.get("/", "Authorization", "token"); answer.status != 200 || got.Get("Authorization") != "token" {
		t.Errorf("with a name: %d, and the upstream got %q", answer.status, got["Authorization"])
	}
}

// However a client writes its host or method, it is who the upstream may take it for.
func TestRulesReadAsUpstreamsMay(t *testing.T) {
	rule := limit.RuleSpec{Name: "r", Key: []string{"header.X-User-Id"}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour}}}
	rule.Match.Host, rule.Match.Methods = []string{"shop.example"}, []string{"POST"}
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, rule)
	for i, request := range []string{
		"POST / HTTP/1.1\r\nHost: shop.example\r\nX-User-Id: u\r\n", "post / HTTP/1.1\r\nHost: shop.example:80,x\r\nX-User-Id: u\r\n", "Post / HTTP/1.1\r\nHost: shop.example:1:2\r\nx-user-id: u\r\n",
	} {
		c := s.dial()
		c.write(request + "\r\n")
		if got, want := c.response().StatusCode, []int{200, 429, 429}[i]; got != want {
			t.Errorf("%q: %d, want %d", request, got, want)
		}
	}
}

// A field with underscores, or dots, is nobody's name: neither for the rules, as another proxy that sees to
// X-User-Id lets it pass, nor for an upstream that would read it as that. What no rule reads is
// passed on.
func TestLookalikesNameNobody(t *testing.T) {
	known := limit.RuleSpec{Name: "known", Group: "g", Priority: 1, Key: []string{"header.X-User-Id"}, Rates: []limit.RateSpec{{Limit: 100, Per: time.Hour}}}
	known.Match.Has = []string{"header.X-User-Id"}
	var got http.Header
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header }, options{}, known,
		limit.RuleSpec{Name: "unknown", Group: "g", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}})
	for i, name := range []string{"X_User_Id", "x_user-id", "X-User_id", "X_USER_ID", "X.User.Id", "x~user!id"} {
		answer := s.get("/", name, fmt.Sprint(i), "X_Other", "o")
		if want := []int{200, 200, 200, 200, 200, 429}[i]; answer.status != want {
			t.Errorf("%s: %d, want %d: as one without a name", name, answer.status, want)
		}
		if got[http.CanonicalHeaderKey(name)] != nil || got.Get("X_Other") != "o" {
			t.Errorf("%s: the upstream got %v", name, got)
		}
	}
}

// Behind an upstream with a path of its own nobody leaves that, nor comes by it to where rules
// do not see him.
func TestPathStaysBelowTheUpstreams(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.URL.Path }))
	t.Cleanup(server.Close)
	for base, climbing := range map[string]int{"/app/": http.StatusBadRequest, "/": http.StatusOK} {
		s := (&site{t: t}).before(server.URL+base, options{}, hourly(100))
		for _, target := range []string{
			"/../app/login", "/%2e%2e/login", "/x/../..//login", "/..;a/login", "/.%2E/x", "/x\\..\\..\\login", "/x%2f..%2F..%2Flogin", "/%252e%252e/login", "//../login", "/./../login", "/x/%2e%2e/%2e%2e",
		} {
			c := s.dial()
			c.write("GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n")
			if status := c.response().StatusCode; status != climbing {
				t.Errorf("%s behind %s: %d, want %d", target, base, status, climbing)
			}
			c.Close()
		}
		for _, target := range []string{"/login", "/x/../login", "/a..b/...", "/%2e", "/x/y/%2e%2e/..%2f", "/x?y=/../..", "/%25"} {
			if answer := s.get(target); answer.status != http.StatusOK || !strings.HasPrefix(got, strings.TrimSuffix(base, "/")) {
				t.Errorf("%s behind %s: %d, and the upstream got %s", target, base, answer.status, got)
			}
		}
	}
}

// A trailer has a name that HTTP/2 has, too, and none that the rules, or who merges it, go by.
func TestWhatMayTrail(t *testing.T) {
	for name, may := range map[string]bool{
		"X-Checksum": true, "Grpc-Status": true, "X T": false, "X(T": false, "X-\x7f": false, "X-\xe4": false, ":path": false, "": false,
		"Content-Length": false, "X-Forwarded-For": false, "Cookie": false,
	} {
		if mayTrail(name) != may {
			t.Errorf("%q may trail: %v", name, !may)
		}
	}
}
