package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

func TestClientIP(t *testing.T) {
	trusted := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:f::/48")}
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"no proxy", "192.0.2.1:999", nil, "192.0.2.1"},
		{"a stranger is not believed", "192.0.2.1:999", []string{"198.51.100.7"}, "192.0.2.1"},
		{"a proxy", "10.0.0.1:999", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a proxy that says nothing", "10.0.0.1:999", nil, "10.0.0.1"},
		{"the client forged one", "10.0.0.1:999", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"two proxies", "10.0.0.1:999", []string{"203.0.113.9,198.51.100.7 , 10.0.0.2"}, "198.51.100.7"},
		{"two lines", "10.0.0.1:999", []string{"203.0.113.9", "198.51.100.7,10.0.0.2"}, "198.51.100.7"},
		{"lines that end in proxies", "10.0.0.1:999", []string{"198.51.100.7", "10.0.0.3", "10.0.0.2"}, "198.51.100.7"},
		{"proxies only", "10.0.0.1:999", []string{"10.0.0.9, 10.0.0.8"}, "10.0.0.9"},
		{"garbage", "10.0.0.1:999", []string{"unknown"}, "10.0.0.1"},
		{"garbage behind a proxy", "10.0.0.1:999", []string{"198.51.100.7, _hidden, 10.0.0.2"}, "10.0.0.2"},
		{"garbage of the client", "10.0.0.1:999", []string{"<script>, 198.51.100.7"}, "198.51.100.7"},
		{"an empty element", "10.0.0.1:999", []string{"198.51.100.7,"}, "10.0.0.1"},
		{"empty", "10.0.0.1:999", []string{""}, "10.0.0.1"},
		{"a port", "10.0.0.1:999", []string{"198.51.100.7:5000"}, "198.51.100.7"},
		{"a bad port", "10.0.0.1:999", []string{"198.51.100.7:http"}, "10.0.0.1"},
		{"IPv6", "[2001:db8:f::1]:999", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv6 with a port", "[2001:db8:f::1]:999", []string{"[2001:db8::7]:5000"}, "2001:db8::7"},
		{"IPv6 in brackets", "[2001:db8:f::1]:999", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"an open bracket", "[2001:db8:f::1]:999", []string{"[2001:db8::7"}, "2001:db8:f::1"},
		{"a zone", "10.0.0.1:999", []string{"fe80::1%eth0"}, "fe80::1"},
		{"mapped IPv4", "10.0.0.1:999", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"mapped IPv4 in hex", "10.0.0.1:999", []string{"::ffff:c633:6407"}, "198.51.100.7"},
		{"a mapped proxy", "[::ffff:10.0.0.1]:999", []string{"198.51.100.7, ::ffff:10.0.0.2"}, "198.51.100.7"},
		{"too long", "10.0.0.1:999", []string{strings.Repeat("1", 5000)}, "10.0.0.1"},
		{"a unix socket", "@", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a unix socket that says nothing", "@", nil, "unix"},
		{"a unix socket that says garbage", "@", []string{"unix:"}, "unix"},
		{"nginx on a unix socket", "@", []string{"198.51.100.7, unix:"}, "unix"}, // who came to it wrote the rest, be it a client
		{"a named unix socket that says nothing", "/run/client.sock", nil, "unix"},
		{"a named unix socket", "/run/nginx.sock", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a peer without address", "", []string{"198.51.100.7"}, "unknown"},
		{"a peer that is no address", "pipe", nil, "unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := newBench(t, perClient(1)).limiter.Rules().Only().NewRequest()
			defer req.Release()
			r := &http.Request{Method: "GET", RemoteAddr: c.peer, Header: http.Header{}}
			if c.forwarded != nil {
				r.Header["X-Forwarded-For"] = c.forwarded
			}
			ignored, err := FillHTTP(req, r, trusted)
			if err != nil {
				t.Fatal(err)
			}
			if got := req.Get("client_ip"); got != c.want {
				t.Errorf("client_ip = %q, want %q", got, c.want)
			}
			stranger := c.forwarded != nil && (c.peer == "" || strings.HasPrefix(c.peer, "192."))
			if ignored != stranger {
				t.Errorf("ignored = %v, want %v", ignored, stranger)
			}
		})
	}
}

// Who is told to come over a unix socket by the server's end alone is believed all
// the same: the other end may have no name, or one of any form.
func TestUnixSocketIsToldByItsOwnEnd(t *testing.T) {
	ns := newBench(t, perClient(1)).limiter.Rules().Only()
	for _, c := range []struct {
		peer, forwarded string
		local           net.Addr
		want            string
	}{
		{"", "", &net.UnixAddr{Name: "/run/edge.sock", Net: "unix"}, "unix"},
		{"", "198.51.100.7", &net.UnixAddr{Name: "/run/edge.sock", Net: "unix"}, "198.51.100.7"},
		{"client.sock", "198.51.100.7", &net.UnixAddr{Name: "/run/edge.sock", Net: "unix"}, "198.51.100.7"},
		{"", "198.51.100.7", &net.TCPAddr{}, "unknown"},
		{"192.0.2.1:9", "198.51.100.7", &net.TCPAddr{}, "192.0.2.1"},
	} {
		r := (&http.Request{Method: "GET", URL: &url.URL{Path: "/"}, RemoteAddr: c.peer, Header: http.Header{}}).
			WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, c.local))
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		asked, own := ns.NewRequest(), ns.NewRequest()
		if _, err := FillHTTP(asked, r, nil); err != nil {
			t.Fatal(err)
		}
		fillOwn(own, r, nil)
		if asked.ClientIP() != c.want || own.ClientIP() != c.want {
			t.Errorf("%q over %v, forwarded for %q: client_ip %q by /v1/auth and %q in middleware, want %q", c.peer, c.local, c.forwarded, asked.ClientIP(), own.ClientIP(), c.want)
		}
		asked.Release()
		own.Release()
	}
}

// A number sign begins a fragment to some, and is a letter to net/http and nginx: rules for
// either reading apply.
func TestNumberSignsHideNoPath(t *testing.T) {
	for target, want := range map[string]string{
		"/#/../download/x": "/download/x", "/a#b/../download/x?q": "/download/x", "/download/x#y": "/download/x", "/download/x": "/download/x",
	} {
		path, others := pathOf(target)
		if !slices.Contains(append(others, path), want) {
			t.Errorf("%s: %q, %q, want %q among them", target, path, others, want)
		}
	}
}

func TestFillHTTP(t *testing.T) {
	doc := perClient(1)
	doc.Rules[0].Key = []string{"client_ip", "header.X-User-Id"}
	ns := newBench(t, doc).limiter.Rules().Only()
	for _, c := range []struct {
		name   string
		header map[string]string
		want   map[string]string
	}{
		{"nothing told", nil, map[string]string{"method": "GET", "path": "", "host": "edge.example"}},
		{"Traefik and Caddy", map[string]string{"X-Forwarded-Method": "POST", "X-Forwarded-Uri": "/a/b?c=d", "X-Forwarded-Host": "Shop.Example:8443", "X-User-Id": "u1"},
			map[string]string{"method": "POST", "path": "/a/b", "host": "shop.example", "header.X-User-Id": "u1"}},
		{"nginx", map[string]string{"X-Original-Method": "PUT", "X-Original-Uri": "/a%20b/"}, map[string]string{"method": "PUT", "path": "/a b/"}},
		{"a list of hosts", map[string]string{"X-Forwarded-Host": "forged.example, shop.example."}, map[string]string{"host": "shop.example"}},
		{"a list of hosts, as Envoy writes it", map[string]string{"X-Forwarded-Host": "forged.example,shop.example:80"}, map[string]string{"host": "shop.example"}},
		{"a list with ports", map[string]string{"X-Forwarded-Host": "forged.example:80, shop.example:80"}, map[string]string{"host": "shop.example"}},
		{"and one with a port that is none", map[string]string{"X-Forwarded-Host": "Shop.example:x:1"}, map[string]string{"host": "shop.example"}},
		{"a bare IPv6 host", map[string]string{"X-Forwarded-Host": "2001:DB8::1"}, map[string]string{"host": "2001:db8::1"}},
		{"a method as some read it", map[string]string{"X-Forwarded-Method": "post"}, map[string]string{"method": "POST"}},
		{"a field that CGI would read", map[string]string{"X_User-Id": "u1"}, map[string]string{"header.X-User-Id": ""}},
		{"an IPv6 host", map[string]string{"X-Forwarded-Host": "[2001:DB8::1]:80"}, map[string]string{"host": "2001:db8::1"}},
		{"absolute form", map[string]string{"X-Original-Uri": "http://h/x"}, map[string]string{"path": "/x"}},
		{"absolute form without path", map[string]string{"X-Original-Uri": "http://h?q"}, map[string]string{"path": "/"}},
		{"HAProxy's word for it", map[string]string{"X-Forwarded-Uri": ""}, map[string]string{"path": "/"}},
		{"a query alone", map[string]string{"X-Original-Uri": "?q"}, map[string]string{"path": "/"}},
		{"asterisk", map[string]string{"X-Original-Uri": "*"}, map[string]string{"path": "*"}},
		{"dots", map[string]string{"X-Original-Uri": "/a/../../b/./c//"}, map[string]string{"path": "/b/c/"}},
		{"escaped dots", map[string]string{"X-Original-Uri": "/a/%2e%2e/b"}, map[string]string{"path": "/b"}},
		{"a bad escape", map[string]string{"X-Original-Uri": "/a/%zz"}, map[string]string{"path": "/a/%zz"}},
		{"a bad escape hides no good one", map[string]string{"X-Original-Uri": "/%61pi/%zz"}, map[string]string{"path": "/api/%zz"}},
		{"an escaped question mark", map[string]string{"X-Original-Uri": "/a%3Fb/%63?q"}, map[string]string{"path": "/a%3Fb/c"}},
		{"a small one beside a bad escape", map[string]string{"X-Original-Uri": "/%zz/a%3fb"}, map[string]string{"path": "/%zz/a%3Fb"}},
		{"an escaped number sign", map[string]string{"X-Original-Uri": "/a%23b#c"}, map[string]string{"path": "/a#b"}},
		{"a number sign first", map[string]string{"X-Original-Uri": "#a"}, map[string]string{"path": "/"}},
		{"a fragment", map[string]string{"X-Original-Uri": "/a#b"}, map[string]string{"path": "/a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := ns.NewRequest()
			defer req.Release()
			r := &http.Request{Method: "GET", Host: "edge.example:8080", RemoteAddr: "10.0.0.1:1", Header: http.Header{}}
			for name, v := range c.header {
				r.Header.Set(name, v)
			}
			if _, err := FillHTTP(req, r, Proxies{netip.MustParsePrefix("10.0.0.0/8")}); err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				if got := req.Get(name); got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
		})
	}
}

// Whether that is two hosts or one with what is no port nobody can tell, nor what the upstream
// takes it for.
func TestFillHTTPRefusesHostsThatAreOneOrTwo(t *testing.T) {
	ns := newBench(t, perClient(1)).limiter.Rules().Only()
	for _, hosts := range []string{"shop.example:80,x", "shop.example:,x", "[::1]:80,x", "a,b:80,c"} {
		req := ns.NewRequest()
		defer req.Release()
		r := httptest.NewRequest("GET", "http://edge.example/v1/auth", http.NoBody)
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("X-Forwarded-Host", hosts)
		_, err := FillHTTP(req, r, Proxies{netip.MustParsePrefix("10.0.0.0/8")})
		if err == nil || !strings.Contains(err.Error(), "X-Forwarded-Host") {
			t.Errorf("%s: %v, want an error of X-Forwarded-Host", hosts, err)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	_, err := New(&edge.Node{}, Config{TrustedProxies: Proxies{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")}, RetryJitter: 1.5})
	for _, want := range []string{"TrustedProxies[0]", "TrustedProxies[1]", "RetryJitter"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want a mistake at %s", err, want)
		}
	}
}

// proxied is a request as a proxy sends it to /v1/auth.
func proxied(user string) *http.Request {
	r, err := http.NewRequest("GET", "http://edge.example/v1/auth", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.RemoteAddr = "10.0.0.1:4711"
	for name, v := range map[string]string{
		"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/api/things?page=2", "X-Forwarded-Host": "shop.example",
		"X-Forwarded-For": "203.0.113.9, 2001:db8::7, 10.0.0.2", "X-User-Id": user, "User-Agent": "test",
	} {
		r.Header.Set(name, v)
	}
	return r
}

func TestFillHTTPAllocatesNothing(t *testing.T) {
	doc := perClient(1)
	doc.Rules[0].Key = []string{"client_ip", "header.X-User-Id"}
	ns := newBench(t, doc).limiter.Rules().Only()
	trusted := Proxies{netip.MustParsePrefix("10.0.0.0/8")}
	r := proxied("u1")
	req := ns.NewRequest() // outside: under -race a pool drops some of what it is given
	defer req.Release()
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := FillHTTP(req, r, trusted); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("building a request from net/http allocates %v times, want 0", n)
	}
}

func FuzzForwarded(f *testing.F) {
	f.Add("GET", "/a?b", "h:1", "1.2.3.4, [::1]:80, fe80::1%x", "10.0.0.1:1")
	f.Add("", "http://x", "[", "%,%", "@")
	f.Add("", "", "hh::,", "", "::1")
	set, _ := limit.Compile(perClient(1))
	trusted := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	f.Fuzz(func(t *testing.T, method, uri, host, forwarded, peer string) {
		req := set.Only().NewRequest()
		defer req.Release()
		h := http.Header{"X-Forwarded-Method": {method}, "X-Original-Uri": {uri}, "X-Forwarded-Host": {host}, "X-Forwarded-For": {forwarded}}
		if _, err := FillHTTP(req, &http.Request{Method: "GET", Header: h, RemoteAddr: peer}, trusted); err != nil {
			comma := strings.LastIndex(host, ",")
			if comma >= 0 && strings.Contains(host[:comma], ":") && strings.IndexAny(host[comma+1:]+".", " \t") != 0 {
				return // one host or two: TestFillHTTPRefusesHostsThatAreOneOrTwo
			}
			t.Fatalf("FillHTTP: %v, though no two headers differ, and the host is one", err)
		}
		if ip := req.Get("client_ip"); ip != "unix" && ip != "unknown" {
			if _, err := netip.ParseAddr(ip); err != nil {
				t.Errorf("client_ip = %q is no address", ip)
			}
		}
		if p := req.Get("path"); strings.ContainsAny(p, "?") {
			t.Errorf("path %q of %q has a query", p, uri)
		}
	})
}
