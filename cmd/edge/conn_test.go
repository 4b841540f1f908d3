package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/proc"
)

// watched is a gRPC listener whose bounds and metrics a test sees.
type watched struct {
	*calls
	addr   string
	reg    *prometheus.Registry
	logged *bytes.Buffer
}

func serveWatched(t *testing.T, patience time.Duration) *watched {
	t.Helper()
	node, err := edge.Local(limit.RuleSpec{Name: "user", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1e6, Per: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{reg: prometheus.NewRegistry(), logged: &bytes.Buffer{}}
	refusals := httpapi.NewRefusals(w.reg, slog.New(slog.NewTextHandler(w.logged, nil)))
	w.calls = newCalls(httpapi.NewRoom(httpapi.DefaultRoom, refusals), nil, refusals)
	w.calls.patience = patience
	w.addr = servingBy(t, node, w.calls)
	return w
}

// refused is how often it was, for a reason.
func (w *watched) refused(t *testing.T, reason string) float64 {
	t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetValue() == reason {
					return m.Counter.GetValue()
				}
			}
		}
	}
	return 0
}

// partly calls a method with the beginning of a message, on a connection of its own, until the
// test or its stop ends it.
func partly(t *testing.T, addr, method string, size, sent int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+method, out)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	transport := &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, addr string, _ *tls.Config) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
	done := make(chan struct{})
	go func() { // stop ends it, and waits
		defer close(done)
		if w, err := transport.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, w.Body)
			w.Body.Close()
		}
	}()
	stop = func() {
		cancel()
		in.Close()
		<-done
		transport.CloseIdleConnections()
	}
	t.Cleanup(stop)
	message := binary.BigEndian.AppendUint32([]byte{0}, uint32(size))
	_, _ = in.Write(append(message, make([]byte, sent)...)) // it fails where the call was refused
	return stop
}

func largeCall(bytes int) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: edge.LocalNamespace, Descriptors: []*rlv3.RateLimitDescriptor{{Entries: []*rlv3.RateLimitDescriptor_Entry{
		{Key: "user", Value: "u"}, {Key: "more", Value: strings.Repeat("x", bytes)},
	}}}}
}

// What is under way of messages is bounded in bytes, whole or not; small ones need nothing
// of it.
func TestMessagesShareTheirRoom(t *testing.T) {
	w := serveWatched(t, time.Minute)
	w.calls.roomWait = 100 * time.Millisecond // no call is under way yet
	client := rlsv3.NewRateLimitServiceClient(dialled(t, w.addr))
	methods := []string{rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName}
	var stops []func()
	for n := range 8 { // an address's part
		stops = append(stops, partly(t, w.addr, methods[n%2], 1<<20-1, 900<<10))
	}
	const part = httpapi.DefaultRoom / 4
	for _, method := range methods {
		partly(t, w.addr, method, 1<<20-1, 900<<10)
	}
	if got := w.room.Taken(); got <= part/2 || got > part {
		t.Errorf("%d bytes are taken, want up to the part of an address, %d", got, part)
	}
	if _, err := client.ShouldRateLimit(t.Context(), largeCall(300<<10)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more large call: %v, want it refused", err)
	}
	if _, err := client.ShouldRateLimit(t.Context(), largeCall(3<<10)); err != nil {
		t.Errorf("a small call meanwhile: %v", err)
	}
	if got := w.refused(t, httpapi.RefusedMemory); got != 3 {
		t.Errorf("%v refusals are counted, want 3", got)
	}
	for _, stop := range stops {
		stop()
	}
	noneTaken := func() error {
		if got := w.room.Taken(); got != 0 {
			return fmt.Errorf("%d bytes are taken still", got)
		}
		return nil
	}
	proc.Until(t, 20*time.Second, noneTaken)
	for range 20 {
		if _, err := client.ShouldRateLimit(t.Context(), largeCall(900<<10)); err != nil {
			t.Fatalf("a large call after them: %v", err)
		}
	}
	proc.Until(t, 20*time.Second, noneTaken)
	if n := strings.Count(w.logged.String(), "reason="+httpapi.RefusedMemory); n != 1 {
		t.Errorf("%d lines are logged, want one:\n%s", n, w.logged)
	}
}

// A data plane's long reports take room while they come and are read, and none between.
func TestReportsLeaveTheirRoom(t *testing.T) {
	w := serveWatched(t, time.Minute)
	call, err := quotav3.NewRateLimitQuotaServiceClient(dialled(t, w.addr)).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // the end of the test ends it
		for {
			if _, err := call.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	report := &quotav3.RateLimitQuotaUsageReports{Domain: edge.LocalNamespace}
	for n := range 5000 {
		report.BucketQuotaUsages = append(report.BucketQuotaUsages, &quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: &quotav3.BucketId{Bucket: map[string]string{"user": fmt.Sprintf("%0100d", n)}}, NumRequestsAllowed: 1, TimeElapsed: durationpb.New(time.Second),
		})
	}
	for range 30 { // each is more than half a megabyte: 20 of them are an address's part
		if err := call.Send(report); err != nil {
			t.Fatal(<-ended)
		}
	}
	proc.Until(t, 30*time.Second, func() error {
		if got := w.room.Taken(); got != 0 {
			return fmt.Errorf("%d bytes are taken still", got)
		}
		return nil
	})
	if err := call.Context().Err(); err != nil {
		t.Error(err)
	}
	if got := w.refused(t, httpapi.RefusedMemory); got != 0 {
		t.Errorf("%v reports found no room", got)
	}
}

// Data planes that come at once, with more in their messages than there is room for, wait for
// each other, and no stream of theirs is slow, or too large: as all do once an edge has started
// again.
func TestReportsWaitForRoom(t *testing.T) {
	w := serveWatched(t, grpcPatience)
	w.calls.roomWait = time.Minute
	report := &quotav3.RateLimitQuotaUsageReports{Domain: edge.LocalNamespace}
	for n := range 5000 {
		report.BucketQuotaUsages = append(report.BucketQuotaUsages, &quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: &quotav3.BucketId{Bucket: map[string]string{"user": fmt.Sprintf("%0400d", n)}}, NumRequestsAllowed: 1, TimeElapsed: durationpb.New(time.Second),
		})
	}
	var planes []quotav3.RateLimitQuotaService_StreamRateLimitQuotasClient
	for range 8 { // each of 2 MB, and twice in memory: three are an address's part
		call, err := quotav3.NewRateLimitQuotaServiceClient(dialled(t, w.addr)).StreamRateLimitQuotas(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		planes = append(planes, call)
	}
	var all sync.WaitGroup
	for _, call := range planes {
		all.Go(func() {
			if err := call.Send(report); err != nil {
				t.Error(err)
			}
			if _, err := call.Recv(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, reason := range []string{httpapi.RefusedMemory, httpapi.RefusedSlow} {
		if got := w.refused(t, reason); got != 0 {
			t.Errorf("%v are refused as %s", got, reason)
		}
	}
}

// Where no room comes for a message, that is counted, and not that it is slow.
func TestReportsWithoutRoom(t *testing.T) {
	w := serveWatched(t, time.Minute)
	w.calls.roomWait = 100 * time.Millisecond
	for range 4 {
		partly(t, w.addr, quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, 2<<20-1, 900<<10)
	}
	proc.Until(t, 20*time.Second, func() error {
		if got := w.room.Taken(); got < httpapi.DefaultRoom/4-8 {
			return fmt.Errorf("%d bytes are taken", got)
		}
		return nil
	})
	call, err := quotav3.NewRateLimitQuotaServiceClient(dialled(t, w.addr)).StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = call.Send(&quotav3.RateLimitQuotaUsageReports{Domain: strings.Repeat("x", 100<<10)}) // what became of it, Recv says
	if _, err := call.Recv(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), noRoom) {
		t.Errorf("a stream without room: %v", err)
	}
	if memory, slow := w.refused(t, httpapi.RefusedMemory), w.refused(t, httpapi.RefusedSlow); memory != 1 || slow != 0 {
		t.Errorf("%v are refused for memory and %v as slow, want 1 and 0", memory, slow)
	}
}

// Whoever opens calls and sends no message has a part of the places for them; calls that come
// whole are decided, whatever others do. It is counted and logged.
func TestSilentCallersKeepNobodyOut(t *testing.T) {
	w := serveWatched(t, time.Minute)
	client := rlsv3.NewRateLimitServiceClient(dialled(t, w.addr))
	for range 3 {
		slow(t, w.addr, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, 700, 0)
	}
	proc.Until(t, 20*time.Second, func() error {
		if got := w.refused(t, httpapi.RefusedUnread); got < 2100-3-grpcMostUnread/grpcUnreadParts { // 3: one of each connection
			return fmt.Errorf("%v of 2100 silent calls were refused", got)
		}
		return nil
	})
	if got := w.unread.Load(); got != grpcMostUnread/grpcUnreadParts {
		t.Errorf("%d calls of one address wait, want %d", got, grpcMostUnread/grpcUnreadParts)
	}
	for range 100 {
		if _, err := client.ShouldRateLimit(t.Context(), largeCall(10)); err != nil {
			t.Fatalf("a call meanwhile: %v", err)
		}
	}
	if n := strings.Count(w.logged.String(), "reason="+httpapi.RefusedUnread); n != 1 {
		t.Errorf("%d lines are logged, want one a minute:\n%s", n, w.logged)
	}
}

// A stream of quotas that reports nothing ends, and so does the connection of one of whose
// reports but a part comes.
func TestSlowReportsEnd(t *testing.T) {
	w := serveWatched(t, 500*time.Millisecond)
	quotas := quotav3.NewRateLimitQuotaServiceClient(dialled(t, w.addr))
	silent, err := quotas.StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Recv(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a stream without a report: %v, want it ended", err)
	}
	reports, err := quotas.StreamRateLimitQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := reports.Send(&quotav3.RateLimitQuotaUsageReports{Domain: edge.LocalNamespace, BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		{BucketId: &quotav3.BucketId{Bucket: map[string]string{"user": "u"}}, TimeElapsed: durationpb.New(time.Second)},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := reports.Recv(); err != nil {
		t.Fatal(err)
	}
	w.calls.patience = time.Minute // of no call that is under way
	partly(t, w.addr, quotav3.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, 1<<20-1, 100)
	proc.Until(t, 20*time.Second, func() error {
		if w.waiting.Load() != 1 {
			return errors.New("nothing is waited for")
		}
		return nil
	})
	for range int(grpcLongPatience/time.Second) + 2 {
		w.tick()
	}
	proc.Until(t, 20*time.Second, func() error {
		if n := w.waiting.Load(); n != 0 {
			return fmt.Errorf("%d messages are waited for still", n)
		}
		return nil
	})
	if got := w.refused(t, httpapi.RefusedSlow); got != 2 {
		t.Errorf("%v are counted as slow, want 2", got)
	}
	if err := reports.Context().Err(); err != nil {
		t.Errorf("one between two reports: %v", err)
	}
}

// Connections are bounded, in all and by address, and leave their places.
func TestConnectionsAreBounded(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := newPlaces(listenerHTTP, httpapi.Proxies{netip.MustParsePrefix("192.0.2.99/32"), netip.MustParsePrefix("2001:db8::99/128")}, httpapi.NewRefusals(reg, nil))
	p.room = room{proxies: 4, most: 3, part: 2}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	let, done := make(chan net.Conn, 9), make(chan struct{})
	go func() { // closing the listener ends it; the cleanup waits
		defer close(done)
		for bounded := p.bound(ln); ; {
			c, err := bounded.Accept()
			if err != nil {
				return
			}
			let <- c
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	dial := func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	dial()
	first := <-let
	<-let
	if _, err := dial().Read(make([]byte, 1)); err == nil || len(let) > 0 {
		t.Error("a connection beyond the part of its address was let in")
	}
	other, more := p.enter("192.0.2.1:1"), p.enter("192.0.2.2:1")
	if other == nil || more != nil {
		t.Errorf("of two other addresses, where one place is left: %v, %v", other, more)
	}
	// Proxies have places of their own, one address as many as all.
	for _, c := range []struct {
		peer string
		let  bool
	}{{"192.0.2.99:1", true}, {"192.0.2.99:2", true}, {"[::ffff:192.0.2.99]:3", true}, {"[2001:db8::98]:1", false}, {"[2001:db8::99]:1", true}, {"192.0.2.99:4", false}, {"@", false}} {
		if a := p.enter(c.peer); (a != nil) != c.let {
			t.Errorf("%s was let in: %v, want %v", c.peer, a != nil, c.let)
		} else if a != nil {
			defer p.leave(a)
		}
	}
	first.Close()
	first.Close() // a server may
	dial()
	<-let
	if got := (&watched{reg: reg}).refused(t, httpapi.RefusedConnections); got != 1 {
		t.Errorf("%v are counted as refused, want 1", got)
	}
}

// However bytes are cut, and whatever they are, as much is known of calls.
func FuzzConn(f *testing.F) {
	f.Add(uint64(1), []byte("nothing"))
	f.Fuzz(func(t *testing.T, seed uint64, noise []byte) {
		c, rng := testCalls(), rand.New(rand.NewPCG(seed, 1))
		at := testConn(c)
		var text bytes.Buffer
		framer := http2.NewFramer(&text, nil)
		framer.AllowIllegalWrites = true
		text.WriteString(http2.ClientPreface)
		waiting, room := int64(0), int64(0)
		for id := uint32(1); id < 40; id += 2 {
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("h"), EndHeaders: true})
			size := rng.IntN(40 << 10)
			message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, size)...)
			sent := len(message)
			if rng.IntN(2) == 0 {
				sent = rng.IntN(len(message))
				waiting++
			}
			if sent >= 5 && size > smallMessage {
				room += 2 * int64(size)
			}
			for rest := message[:sent]; len(rest) > 0; {
				n := min(len(rest), 1+rng.IntN(8<<10))
				_ = framer.WriteDataPadded(id, false, rest[:n], make([]byte, rng.IntN(9)))
				rest = rest[n:]
			}
		}
		cut := func(b []byte, to func([]byte)) {
			for len(b) > 0 {
				n := min(len(b), 1+rng.IntN(3000))
				to(b[:n])
				b = b[n:]
			}
		}
		arrive := func(b []byte) (ok bool) {
			for had := 0; len(b) > 0; b = b[had:] {
				if had, ok = at.arrive(b); !ok {
					return false
				}
			}
			return true
		}
		cut(text.Bytes(), func(b []byte) {
			if !arrive(b) {
				t.Fatal("refused")
			}
		})
		if got, has := c.waiting.Load(), c.room.Taken(); got != waiting || has != room {
			t.Errorf("%d calls wait, and %d bytes are taken, want %d and %d", got, has, waiting, room)
		}
		text.Reset()
		for id := uint32(1); id < 40; id += 4 {
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("h"), EndHeaders: true, EndStream: true})
			_ = framer.WriteRSTStream(id+2, http2.ErrCodeCancel)
		}
		cut(text.Bytes(), at.leave)
		if got, has := c.waiting.Load(), c.room.Taken(); got != 0 || has != 0 || len(at.open) != 0 {
			t.Errorf("once all have ended %d wait, %d bytes are taken, %d are open", got, has, len(at.open))
		}
		cut(noise, func(b []byte) { arrive(b) })
		cut(noise, at.leave)
		_ = at.Close()
		if got, has := c.waiting.Load(), c.room.Taken(); got != 0 || has != 0 {
			t.Errorf("after noise, and the end, %d wait, %d bytes are taken", got, has)
		}
	})
}
