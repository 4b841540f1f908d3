package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limiterpb"
	"github.com/spillgate/spillgate/test/proc"
)

// untaking is a client that takes no answers' messages.
type untaking struct {
	net.Conn
	*http2.Framer
	t     *testing.T
	calls uint32
}

func dialUntaking(t *testing.T, addr string) *untaking {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	u := &untaking{c, http2.NewFramer(c, c), t, 0}
	u.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	u.wrote(u.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	return u
}

func (u *untaking) wrote(err error) {
	u.t.Helper()
	if err != nil {
		u.t.Fatal(err)
	}
}

// call asks, and says what the header of the answer says: whether it is all, and the code.
func (u *untaking) call(method string, more ...hpack.HeaderField) (all bool, code string) {
	u.t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range append([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "a"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, more...) {
		u.wrote(encoder.WriteField(f))
	}
	id := 2*u.calls + 1
	u.calls++
	u.wrote(u.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}))
	u.wrote(u.WriteData(id, true, binary.BigEndian.AppendUint32([]byte{0}, 0)))
	for {
		f, err := u.ReadFrame()
		if err != nil {
			u.t.Fatalf("call %d is not answered: %v", id, err)
		}
		if _, ok := f.(*http2.RSTStreamFrame); ok && f.Header().StreamID == id {
			return true, "reset"
		}
		if f, ok := f.(*http2.MetaHeadersFrame); ok && f.StreamID == id {
			for _, field := range f.Fields {
				if field.Name == "grpc-status" {
					code = field.Value
				}
			}
			return f.StreamEnded(), code
		}
	}
}

// ended waits until the edge has closed the connection.
func (u *untaking) ended() {
	u.t.Helper()
	for {
		if _, err := u.ReadFrame(); err != nil {
			if late, ok := err.(net.Error); ok && late.Timeout() {
				u.t.Fatal("the connection goes on")
			}
			return
		}
	}
}

func (w *watched) opens(t *testing.T, want int64) {
	t.Helper()
	proc.Until(t, 20*time.Second, func() error {
		if got := w.open.Load(); got != want {
			return fmt.Errorf("%d calls are open, want %d", got, want)
		}
		return nil
	})
}

// second has one go by, once nothing is written: a write that a busy machine holds up would last
// all the seconds that go by here in no time.
func (w *watched) second(t *testing.T) {
	t.Helper()
	proc.Until(t, 20*time.Second, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		for at := range w.conns {
			if at.writes.Load() > 0 {
				return fmt.Errorf("to %s something is written still", at.Conn.RemoteAddr())
			}
		}
		return nil
	})
	w.tick()
}

// A call has its place until its answer is taken, and an address a part of them.
func TestCallsArePlacedUntilTheirAnswersAreTaken(t *testing.T) {
	w := serveWatched(t, time.Minute)
	w.mostOpen = 4 * grpcOpenParts // no call is open yet
	c := dialUntaking(t, w.addr)
	for n := range 4 {
		if all, code := c.call(limiterpb.Limiter_Check_FullMethodName); all {
			t.Fatalf("answer %d is whole: code %s", n, code)
		}
	}
	for range 2 {
		if all, code := c.call(limiterpb.Limiter_Check_FullMethodName); !all || code != "14" {
			t.Errorf("a call beyond the places: whole %v, code %q, want UNAVAILABLE", all, code)
		}
	}
	w.opens(t, 4)
	if got := w.refused(t, httpapi.RefusedCalls); got != 2 {
		t.Errorf("%v calls are counted as refused, want 2", got)
	}
	c.wrote(c.WriteWindowUpdate(1, 1<<16)) // by which that one is taken
	w.opens(t, 3)
	if all, code := c.call(limiterpb.Limiter_Check_FullMethodName); all {
		t.Errorf("a call where a place is free again: code %s", code)
	}
	c.Close()
	w.opens(t, 0)
}

// A connection whose answers are not taken ends; one whose streams are silent does not.
func TestConnectionsWithoutTakersEnd(t *testing.T) {
	w := serveWatched(t, time.Minute)
	conn := dialled(t, w.addr)
	watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	quotas, err := quotav3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := quotas.Send(&quotav3.RateLimitQuotaUsageReports{Domain: edge.LocalNamespace, BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		{BucketId: &quotav3.BucketId{Bucket: map[string]string{"user": "u"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := quotas.Recv(); err != nil {
		t.Fatal(err)
	}
	c := dialUntaking(t, w.addr)
	if all, code := c.call(limiterpb.Limiter_Check_FullMethodName); all {
		t.Fatalf("the answer is whole: code %s", code)
	}
	w.opens(t, 3)
	for range grpcTaken + 2 {
		w.second(t)
	}
	c.ended()
	w.opens(t, 2)
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), largeCall(10)); err != nil {
		t.Errorf("a call beside silent streams: %v", err)
	}
	w.opens(t, 2)
	if got := w.refused(t, httpapi.RefusedUntaken); got != 1 {
		t.Errorf("%v connections are counted as ended, want 1", got)
	}
}

// one is a listener of one connection.
type one struct {
	net.Listener
	conn net.Conn
}

func (o one) Accept() (net.Conn, error) { return o.conn, nil }

// So does one from which nothing is read.
func TestConnectionsThatAreNotReadEnd(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	c := testCalls()
	conn, err := c.bound(one{conn: ours}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { // the test waits for it
		_, err := conn.Write(make([]byte, 9))
		written <- err
	}()
	at := conn.(interface{ RemoteAddr() net.Addr }).RemoteAddr().(connAddr).conn
	proc.Until(t, 20*time.Second, func() error {
		if at.writes.Load() == 0 {
			return errors.New("nothing is written")
		}
		return nil
	})
	for n := range grpcTaken + 1 {
		select {
		case err := <-written:
			t.Fatalf("after %d s: %v", n, err)
		default:
		}
		c.tick()
	}
	select {
	case err := <-written:
		if err == nil {
			t.Error("what nobody reads was written")
		}
	case <-time.After(20 * time.Second):
		t.Error("the connection goes on")
	}
}

// A stream that was silent for long is none any more just before its end goes.
func TestSilentStreamsEnd(t *testing.T) {
	at := &conn{calls: testCalls(), open: map[uint32]*incoming{1: {answers: true, untaken: 2 * grpcTaken}}}
	at.streams.Store(1)
	silent := at.untaken(grpcTaken)
	at.streams.Store(0)
	ends := at.untaken(grpcTaken)
	delete(at.open, 1)
	if ended := at.untaken(grpcTaken); silent || ends || ended {
		t.Errorf("its connection ends: while it is silent %v, as it ends %v, then %v", silent, ends, ended)
	}
	at.open[3] = &incoming{answers: true, untaken: grpcTaken}
	if first, second := at.untaken(grpcTaken), at.untaken(grpcTaken); first || !second {
		t.Errorf("of an answer that is not taken: %v, %v; want it to end, a second later", first, second)
	}
}

// A call's metadata is bounded.
func TestMetadataIsBounded(t *testing.T) {
	w := serveWatched(t, time.Minute)
	for bytes, taken := range map[int]bool{15 << 10: true, 16 << 10: false} {
		c := dialUntaking(t, w.addr)
		if all, code := c.call(limiterpb.Limiter_Check_FullMethodName, hpack.HeaderField{Name: "pad", Value: strings.Repeat("a", bytes)}); all == taken {
			t.Errorf("a call with %d bytes of metadata is taken: %v, want %v; code %s", bytes, !all, taken, code)
		}
	}
}
