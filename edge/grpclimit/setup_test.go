package grpclimit_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/grpclimit"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// at is the clock of all tests: 15 s into a minute.
var at = time.Date(2026, 1, 1, 0, 0, 15, 0, time.UTC)

// orders is a service by hand: Get answers with what it was asked, List sends
// back each message.
var orders = grpc.ServiceDesc{
	ServiceName: "shop.Orders",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Get", Handler: func(srv any, ctx context.Context, dec func(any) error, unary grpc.UnaryServerInterceptor) (any, error) {
		in := &wrapperspb.StringValue{}
		if err := dec(in); err != nil {
			return nil, err
		}
		info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/shop.Orders/Get"}
		return unary(ctx, in, info, func(_ context.Context, req any) (any, error) { return req, nil })
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "List", ServerStreams: true, ClientStreams: true, Handler: func(_ any, ss grpc.ServerStream) error {
		for {
			in := &wrapperspb.StringValue{}
			if err := ss.RecvMsg(in); err != nil {
				if in.Value == "go on" { // a handler that does not mind
					err = ss.RecvMsg(in)
				}
				return err
			}
			if err := ss.SendMsg(in); err != nil {
				return err
			}
		}
	}}},
}

// rule limits calls of a method, by client address, in fixed windows.
func rule(name, path string, most uint64) limit.RuleSpec {
	return limit.RuleSpec{
		Name: name, Match: limit.MatchSpec{Path: []string{path}}, Key: []string{"client_ip"},
		Rates: []limit.RateSpec{{Name: "minute", Limit: most, Per: time.Minute, Algorithm: "fixed_window"}},
	}
}

func node(t *testing.T, rules ...limit.RuleSpec) *edge.Node {
	t.Helper()
	n, err := edge.Local(rules...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// serve starts a server on loopback with the limiter in front and connects to
// it. The clock stands still and there is no jitter unless cfg says else.
func serve(t *testing.T, limiter httpapi.Limiter, namespace string, cfg grpclimit.Config) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, listener, listener.Addr().String(), limiter, namespace, cfg)
}

// serveOn is serve on a listener, which is dialled at target.
func serveOn(t *testing.T, listener net.Listener, target string, limiter httpapi.Limiter, namespace string, cfg grpclimit.Config, dial ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return at }
	}
	if cfg.RetryJitter == 0 {
		cfg.RetryJitter = -1
	}
	limited, err := grpclimit.New(limiter, namespace, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return serveWith(t, listener, target, limited, dial...)
}

// serveWith is serveOn with interceptors.
func serveWith(t *testing.T, listener net.Listener, target string, limited *grpclimit.Interceptors, dial ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(limited.Unary), grpc.StreamInterceptor(limited.Stream))
	server.RegisterService(&orders, nil)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }() // the cleanup stops it and waits
	t.Cleanup(func() { server.Stop(); <-done })
	conn, err := grpc.NewClient(target, append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// get calls Get with pairs of metadata and returns the header of the answer.
func get(t *testing.T, conn *grpc.ClientConn, value string, pairs ...string) (metadata.MD, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var header metadata.MD
	out := &wrapperspb.StringValue{}
	err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, pairs...), "/shop.Orders/Get", wrapperspb.String(value), out, grpc.Header(&header))
	if err == nil && out.Value != value {
		t.Fatalf("Get(%q) = %q: the call did not reach its handler", value, out.Value)
	}
	return header, err
}

// list opens a stream that ends with the test.
func list(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &orders.Streams[0], "/shop.Orders/List")
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// send sends one message on a stream and receives what comes back.
func send(stream grpc.ClientStream, value string) error {
	_ = stream.SendMsg(wrapperspb.String(value)) // io.EOF where it ended: RecvMsg has the reason
	return stream.RecvMsg(&wrapperspb.StringValue{})
}
