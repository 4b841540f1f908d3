package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge/limit"
)

// calls are made with the usual retry policy, which takes UNAVAILABLE for a fault that is over
// at once; or without, as the last try's own end is an EOF in place of its status in grpc-go 1.85,
// where it came before all was sent (stream.go, shouldRetry).
func calls(t *testing.T, s *site, again bool) healthpb.HealthClient {
	t.Helper()
	policy := `{}`
	if again {
		policy = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.01s","maxBackoff":"0.05s","backoffMultiplier":1.5,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
	}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(policy))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// A client of gRPC is told a denial from a fault, and when to come again.
func TestCallsAreAnsweredInTheirTerms(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int64
	frozen := errors.New("frozen")
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		served.Add(1)
		if md, _ := metadata.FromIncomingContext(ctx); len(md["x-freeze"]) > 0 {
			<-ctx.Done()
			return nil, frozen
		}
		return h(ctx, req)
	}))
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(ln) }() // Stop ends it
	t.Cleanup(server.Stop)
	up := "h2c://" + ln.Addr().String()
	custom := hourly(1)
	custom.OnLimit.Status = http.StatusPaymentRequired
	large := make([]byte, 100)
	for name, c := range map[string]struct {
		upstream string
		rule     limit.RuleSpec
		header   string
		service  string
		want     codes.Code // of the second call
		served   int64
		retry    time.Duration
	}{
		"served":              {up, hourly(9), "", "", codes.OK, 2, 0},
		"denied":              {up, hourly(1), "", "", codes.ResourceExhausted, 1, time.Hour},
		"a status of its own": {up, custom, "", "", codes.ResourceExhausted, 1, time.Hour},
		"barred":              {up, limit.RuleSpec{Name: "no", Deny: true}, "", "", codes.PermissionDenied, 0, 0},
		"dead":                {"h2c://127.0.0.1:1", hourly(9), "", "", codes.Unavailable, 0, 0},
		"frozen":              {up, hourly(9), "x-freeze", "", codes.DeadlineExceeded, 2, 0},
		"too large":           {up, hourly(9), "", string(large), codes.InvalidArgument, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			served.Store(0)
			s := (&site{t: t}).before(c.upstream, options{cfg: Config{Timeout: 200 * time.Millisecond, MaxBody: 90}}, c.rule)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if c.header != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, c.header, "1")
			}
			client := calls(t, s, c.want != codes.Unavailable)
			_, _ = client.Check(ctx, &healthpb.HealthCheckRequest{Service: c.service})
			var trailer metadata.MD
			_, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: c.service}, grpc.Trailer(&trailer))
			if got := status.Code(err); got != c.want || served.Load() != c.served {
				t.Errorf("%v after %d were served; want %v after %d", err, served.Load(), c.want, c.served)
			}
			var retry time.Duration
			for _, d := range status.Convert(err).Details() {
				if info, ok := d.(*errdetails.RetryInfo); ok {
					retry = info.RetryDelay.AsDuration()
				}
			}
			if told := strings.Join(trailer["retry-after"], ","); retry < c.retry || retry > c.retry*6/5 || c.retry > 0 && told != strconv.Itoa(int(retry.Seconds())) || c.retry == 0 && told != "" {
				t.Errorf("to be tried again after %v, %v; want %v", retry, told, c.retry)
			}
		})
	}
}

// Of gRPC-Web the status stands in the header, too, over HTTP/1.
func TestCallsOverGRPCWeb(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, hourly(1))
	s.get("/")
	got := s.send("POST", "/x.Y/Z", "", "Content-Type", "application/grpc-web+proto")
	if got.status != 200 || got.header.Get("Grpc-Status") != "8" || got.header.Get("Content-Type") != "application/grpc-web+proto" || got.body != "" {
		t.Errorf("%+v", got)
	}
	if got := s.send("POST", "/x", "", "Content-Type", "application/json"); got.status != 429 {
		t.Errorf("no call of gRPC: %+v", got)
	}
}

// Rules that count responses see the status that an answer of HTTP would have.
func TestCallsAreCountedByTheirFaults(t *testing.T) {
	rule := hourly(2)
	rule.CountWhen = "response.status == 502"
	s := (&site{t: t}).before("http://127.0.0.1:1", options{}, rule)
	for i, want := range []string{"14", "14", "8"} {
		if got := s.send("POST", "/x.Y/Z", "", "Content-Type", "application/grpc-web+proto"); got.header.Get("Grpc-Status") != want {
			t.Errorf("call %d: %+v, want status %s", i, got, want)
		}
	}
}

// A stream may be longer than a body, once the upstream answers to it.
func TestStreamsOfCallsAreOfAnyLength(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	echo := func(_ any, stream grpc.ServerStream) error {
		for m := new(wrapperspb.StringValue); ; {
			if err := stream.RecvMsg(m); err != nil {
				return err
			}
			if err := stream.SendMsg(wrapperspb.String(m.Value[:1])); err != nil {
				return err
			}
		}
	}
	server := grpc.NewServer()
	desc := grpc.StreamDesc{StreamName: "Z", ServerStreams: true, ClientStreams: true, Handler: echo}
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "x.Y", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{desc}}, nil)
	go func() { _ = server.Serve(ln) }() // Stop ends it
	t.Cleanup(server.Stop)
	s := (&site{t: t}).before("h2c://"+ln.Addr().String(), options{cfg: Config{MaxBody: 1000}}, hourly(9))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := conn.NewStream(ctx, &desc, "/x.Y/Z")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		err := stream.SendMsg(wrapperspb.String(strings.Repeat("x", 100)))
		if err == nil {
			err = stream.RecvMsg(new(wrapperspb.StringValue))
		}
		if err != nil {
			t.Fatalf("message %d of 100 bytes: %v", i, err)
		}
	}
}
