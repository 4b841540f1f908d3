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

// A unary call of Connect, whose client takes a 429 without its JSON for UNAVAILABLE, is told of a
// denial by that, beside the status and the fields; what is none gets the problem.
func TestCallsOverConnect(t *testing.T) {
	shut, shadowed, dear := limit.RuleSpec{Name: "no", Deny: true}, hourly(1), hourly(1)
	shadowed.OnLimit.ShowHeaders, dear.OnLimit.Status = "none", http.StatusPaymentRequired
	const used = `{"code":"resource_exhausted","message":"1 per 1h are used up"}`
	version := []string{"Connect-Protocol-Version", "1"}
	for name, c := range map[string]struct {
		rule    limit.RuleSpec
		method  string
		target  string
		header  []string
		status  int
		body    string // "": a problem
		retried bool
	}{
		"of messages in JSON":   {hourly(1), "POST", "/x.Y/Z", append(version, "Content-Type", "application/json"), 429, used, true},
		"of messages in proto":  {hourly(1), "POST", "/x.Y/Z", append(version, "Content-Type", "application/proto"), 429, used, true},
		"by GET":                {hourly(1), "GET", "/x.Y/Z?encoding=json&message=%7B%7D&connect=v1", nil, 429, used, true},
		"a status of its own":   {dear, "POST", "/x.Y/Z", append(version, "Content-Type", "application/json"), 402, used, true},
		"a rule that is hidden": {shadowed, "POST", "/x.Y/Z", append(version, "Content-Type", "application/json"), 429, `{"code":"resource_exhausted","message":"the limit is used up"}`, true},
		"barred":                {shut, "POST", "/x.Y/Z", append(version, "Content-Type", "application/json"), 403, `{"code":"permission_denied","message":"this call is not served"}`, false},
		"a stream":              {hourly(1), "POST", "/x.Y/Z", append(version, "Content-Type", "application/connect+json"), 429, "", true},
		"a version to come":     {hourly(1), "POST", "/x.Y/Z", []string{"Connect-Protocol-Version", "2", "Content-Type", "application/json"}, 429, "", true},
		"GET without a version": {hourly(1), "GET", "/x.Y/Z?connect=v2", nil, 429, "", true},
		"PUT, which it has not": {hourly(1), "PUT", "/x.Y/Z?connect=v1", version, 429, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, c.rule)
			s.get("/")
			got := s.send(c.method, c.target, "", c.header...)
			kind, body := "application/json", c.body
			if body == "" {
				kind, body = "application/problem+json", got.body
			}
			if got.status != c.status || got.header.Get("Content-Type") != kind || got.body != body || (got.header.Get("Retry-After") != "") != c.retried || got.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%+v, want %d %s %s", got, c.status, kind, body)
			}
		})
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
