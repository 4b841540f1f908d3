package rls_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/httplimit"
	"github.com/spillgate/spillgate/edge/limit"
)

// wire is a codec of messages as they are on the wire.
type wire struct{}

func (wire) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (wire) Unmarshal(text []byte, v any) error {
	*(v.(*[]byte)) = append([]byte{}, text...)
	return nil
}
func (wire) Name() string { return "proto" }

var _ encoding.Codec = wire{}

// asWritten asks about entries as Envoy writes them: a text has whatever bytes it has.
func (b *bench) asWritten(entries ...string) (*rlsv3.RateLimitResponse, error) {
	b.Helper()
	part := func(to []byte, number protowire.Number, text []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), text)
	}
	var descriptor []byte
	for _, e := range of(entries...).Entries {
		descriptor = part(descriptor, 1, part(part(nil, 1, []byte(e.Key)), 2, []byte(e.Value)))
	}
	text := part(part(nil, 1, []byte(domain)), 2, descriptor)
	var raw []byte
	if err := b.conn.Invoke(b.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, text, &raw, grpc.ForceCodec(wire{})); err != nil {
		return nil, err
	}
	out := &rlsv3.RateLimitResponse{}
	if err := proto.Unmarshal(raw, out); err != nil {
		b.Fatal(err)
	}
	return out, nil
}

var noText = []string{"\xff", "\xfe", "a\xff", "caf\xe9", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xff\xff", "\x80\x01\x0a\x00", "\uFFFD", "%FF", `\xff`}

// No byte of a client's turns his limits off: neither that of who he is, nor that of his
// address.
func TestBytesThatAreNoText(t *testing.T) {
	for _, c := range []struct{ entry, key string }{{"header.X-User-Id", "client_ip"}, {"path", "client_ip"}, {"header.X-User-Id", "header.X-User-Id"}, {"host", "host"}, {"remote_address", "client_ip"}} {
		for _, value := range noText {
			b := newBench(t, minutely("r", 2, c.key))
			entries := []string{c.entry + "=" + value}
			if c.entry != "remote_address" {
				entries = append(entries, "remote_address=192.0.2.1")
			}
			for i, want := range []string{"0 0", "0 0", "1 1"} {
				if out, err := b.asWritten(entries...); err != nil || code(out) != want {
					t.Errorf("%s of %q by %s, call %d: %v, %v, want %s", c.entry, value, c.key, i+1, out, err, want)
				}
			}
			if n := b.counted("spillgate_decisions_total", "result", "deny"); n != 1 {
				t.Errorf("%s of %q: %v denials are counted", c.entry, value, n)
			}
		}
	}
}

// By a tree, too.
func TestBytesThatAreNoTextByATree(t *testing.T) {
	tree := limit.DescriptorSpec{Below: []limit.DescriptorSpec{{Key: "user", Limit: with(most(1), func(l *limit.DescriptorLimit) { l.Metadata = map[string]any{"a": "b"} })}}}
	b := benchOver(t, limitertest.New(t, limit.Document{Namespace: domain, Descriptors: &tree}))
	for _, value := range noText {
		for i, want := range []string{"0 0", "1 1"} {
			if out, err := b.asWritten("user=" + value); err != nil || code(out) != want {
				t.Errorf("%q, call %d: %v, %v, want %s", value, i+1, out, err, want)
			}
		}
	}
}

// Who has used up his limit in front of the middleware has done so behind Envoy, and the
// other way round: by the same bytes and by no others.
func TestBytesAreCountedAsHTTPCountsThem(t *testing.T) {
	node, err := edge.Local(minutely("user", 1, "header.X-User-Id"))
	if err != nil {
		t.Fatal(err)
	}
	b := benchOver(t, node)
	limited, err := httplimit.New(node, "", httpapi.Config{RetryJitter: -1, Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	handler := limited(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	byHTTP := func(value string) string {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header["X-User-Id"] = []string{value}
		if handler.ServeHTTP(w, r); w.Code == http.StatusTooManyRequests {
			return "1 1"
		}
		return "0 0"
	}
	byEnvoy := func(value string) string {
		out, err := b.asWritten("header.X-User-Id=" + value)
		if err != nil {
			t.Fatal(err)
		}
		return code(out)
	}
	for i, value := range noText {
		first, second := byHTTP, byEnvoy
		if i%2 > 0 {
			first, second = second, first
		}
		if got := first(value); got != "0 0" {
			t.Errorf("%q shares the counter of another: %s", value, got)
		}
		if got := second(value); got != "1 1" {
			t.Errorf("%q has two counters: %s", value, got)
		}
	}
}

// Malformed calls are errors as before.
func TestNoMessage(t *testing.T) {
	b := newBench(t, minutely("r", 2, "client_ip"))
	for _, text := range []string{"\xff", "\x0a\x05\xff", "\x12\x03\x0a\xff\xff", "\x0c"} {
		var raw []byte
		err := b.conn.Invoke(b.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, []byte(text), &raw, grpc.ForceCodec(wire{}))
		if status.Code(err) != codes.Internal {
			t.Errorf("%q: %v, want it refused", text, err)
		}
	}
}
