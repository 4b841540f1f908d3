package deferred

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A request is read as it was written.
func TestRequestIsKeptWhole(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 123456789, time.UTC)
	for _, target := range []string{"http://api.example/", "http://api.example:8080/a%2Fb%20c?q=%C3%A9&q=2", "http://[::1]:80//x/../y?"} {
		for _, body := range []string{"", "body", "\x00\r\n\r\nGET / HTTP/1.1\r\n\r\n"} {
			h := call("PATCH", target, body, "X-One", "1", "x-two", " 2 ", "Expect", "100-continue", "Cookie", "a=b", "Upgrade", "h2c", "HTTP2-Settings", "AAMAAABk")
			h.Header.Add("X-One", "eins")
			h.Header.Set("Trailer", "X-Sum")
			r := &Request{ID: NewID(), Tenant: "ä\n\x00*", Client: "[2001:db8::1]:443", Accepted: at, Expires: at.Add(time.Hour), HTTP: h, Body: []byte(body)}
			m, err := r.message("x")
			if err != nil {
				t.Fatal(err)
			}
			got, err := requestOf(m.Header, m.Data)
			if err != nil {
				t.Fatalf("%s: %v", m.Data, err)
			}
			if got.ID != r.ID || got.Tenant != r.Tenant || got.Client != r.Client || !got.Accepted.Equal(r.Accepted) || !got.Expires.Equal(r.Expires) || !bytes.Equal(got.Body, r.Body) {
				t.Errorf("%+v, want %+v", got, r)
			}
			x := got.HTTP
			if x.Method != h.Method || x.Host != h.Host || x.URL.RequestURI() != h.URL.RequestURI() || x.RemoteAddr != r.Client {
				t.Errorf("%s %s %s from %s, want %s", x.Method, x.Host, x.URL, x.RemoteAddr, h.URL)
			}
			want := http.Header{"X-One": {"1", "eins"}, "X-Two": {"2"}, "Cookie": {"a=b"}, IdempotencyKey: {r.ID}}
			for name := range want {
				if len(x.Header[name]) != len(want[name]) || x.Header[name][0] != want[name][0] {
					t.Errorf("%s: %q, want %q", name, x.Header[name], want[name])
				}
			}
			for name := range x.Header {
				if len(want[name]) == 0 && name != "Content-Length" {
					t.Errorf("%s: %q came from nowhere", name, x.Header[name])
				}
			}
			if h.Header.Get("Expect") == "" {
				t.Error("the client's request was changed")
			}
		}
	}
}

// Whatever stands in the queue is read or refused.
func FuzzRequestOf(f *testing.F) {
	good, err := (&Request{ID: NewID(), Tenant: "acme", Client: "192.0.2.7:1", Accepted: time.Now(), Expires: time.Now(), HTTP: call("PUT", "http://api.example/a", "b"), Body: []byte("b")}).message("x")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Header.Get(jetstream.MsgIDHeader), good.Header.Get(headerTenant), good.Header.Get(headerExpires), good.Data)
	for _, at := range []string{"2026-11-27T00:00:00+24:00", "0000-01-01T00:00:00+23:59", "9999-12-31T23:59:59-01:00"} {
		f.Add(good.Header.Get(jetstream.MsgIDHeader), good.Header.Get(headerTenant), at, good.Data)
	}
	f.Add("", "", "", []byte("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"))
	f.Fuzz(func(t *testing.T, id, tenant, expires string, data []byte) {
		h := nats.Header{jetstream.MsgIDHeader: {id}, headerTenant: {tenant}, headerExpires: {expires}, headerAccepted: {expires}}
		r, err := requestOf(h, data)
		if err != nil {
			return
		}
		if _, err := json.Marshal([]time.Time{r.Accepted, r.Expires}); err != nil {
			t.Error(err)
		}
		if !validID(r.ID) || r.HTTP == nil || len(r.Body) > len(data) {
			t.Errorf("%+v", r)
		}
	})
}
