package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/client/grpcclient"
	"github.com/spillgate/spillgate/edge/grpclimit"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limiterapi"
)

// elsewhere is an edge over a limiter, which a client asks over gRPC.
func elsewhere(t *testing.T, limiter httpapi.Limiter, how client.Config) client.Limiter {
	t.Helper()
	api, err := httpapi.New(limiter, httpapi.Config{RetryJitter: -1, Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	limiterapi.New(api).Register(server)
	listener := onLoopback(t)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }() // the cleanup stops it and waits
	t.Cleanup(func() { server.Stop(); <-done })
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpcclient.New(conn, how)
}

func onLoopback(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serveRemote is serve with the limiter elsewhere.
func serveRemote(t *testing.T, limiter client.Limiter, cfg grpclimit.RemoteConfig) *grpc.ClientConn {
	t.Helper()
	limited, err := grpclimit.Remote(limiter, cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener := onLoopback(t)
	return serveWith(t, listener, listener.Addr().String(), limited)
}

// costs has a call cost as many as its message has letters.
func costs(_ context.Context, _ string, message any) uint64 {
	if m, ok := message.(*wrapperspb.StringValue); ok {
		return uint64(len(m.Value))
	}
	return 1
}

// Calls, and messages of streams, end alike whether the limiter is here or elsewhere, with
// the same header; but a limit that is used up is not described.
func TestRemoteLimitsAsEmbedded(t *testing.T) {
	user := rule("user", "/shop.Orders/*", 9)
	user.Group, user.Key, user.Match.Has = "user", []string{"header.X-User-Id"}, []string{"header.X-User-Id"}
	banned := limit.RuleSpec{Name: "banned", Group: "banned", Deny: true, Match: limit.MatchSpec{Equals: map[string][]string{"header.x-banned": {"yes"}}}}
	rules := []limit.RuleSpec{rule("client", "/shop.Orders/**", 30), user, banned}
	here := serve(t, node(t, rules...), "", grpclimit.Config{Config: httpapi.Config{TrustedProxies: httpapi.Loopback}, Cost: costs, Messages: true})
	there := serveRemote(t, elsewhere(t, node(t, rules...), client.Config{Timeout: time.Minute}), grpclimit.RemoteConfig{
		RemoteConfig: httpapi.RemoteConfig{TrustedProxies: httpapi.Loopback, Headers: []string{"X-User-Id", "x-banned"}}, Cost: costs, Messages: true,
	})
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, seed))
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	seen := map[codes.Code]int{}
	for i := range 200 {
		value := one("", "x", "xx", "xxxxx")
		pairs := []string{"x-forwarded-for", one("192.0.2.1", "192.0.2.2", "2001:db8::1", "nobody")}
		for _, pair := range [][2]string{{"x-user-id", one("u1", "u2", "u3")}, {"x-banned", one("yes", "no", "no")}} {
			if rnd.IntN(2) == 0 {
				pairs = append(pairs, pair[:]...)
			}
		}
		a, errA := get(t, here, value, pairs...)
		b, errB := get(t, there, value, pairs...)
		seen[status.Code(errA)]++
		if got, want := told(b, errB), told(a, errA); got != want {
			t.Fatalf("seed %d, call %d, %q with %v:\n%s\nwant\n%s", seed, i, value, pairs, got, want)
		}
		if i%10 > 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), pairs...), 10*time.Second)
		defer cancel()
		var ends [2]error
		for k, conn := range []*grpc.ClientConn{here, there} {
			stream, err := conn.NewStream(ctx, &orders.Streams[0], "/shop.Orders/List")
			if err != nil {
				t.Fatal(err)
			}
			for n := 0; n < 3 && ends[k] == nil; n++ {
				ends[k] = send(stream, value)
			}
		}
		if got, want := told(nil, ends[1]), told(nil, ends[0]); got != want {
			t.Fatalf("seed %d, stream %d of %q with %v:\n%s\nwant\n%s", seed, i, value, pairs, got, want)
		}
	}
	for _, code := range []codes.Code{codes.OK, codes.ResourceExhausted, codes.PermissionDenied} {
		if seen[code] == 0 {
			t.Errorf("no call ended with %v: %v", code, seen)
		}
	}
}

// told is how a call ended: code, wait and fields.
func told(header metadata.MD, err error) string {
	var wait time.Duration
	for _, d := range status.Convert(err).Details() {
		if retry, ok := d.(*errdetails.RetryInfo); ok {
			wait = retry.RetryDelay.AsDuration()
		}
	}
	return fmt.Sprint(status.Code(err), " ", wait, " ", header["ratelimit"], header["ratelimit-policy"], header["retry-after"])
}

// answers is an edge that answers so.
type answers struct {
	client.Limiter
	reply client.Reply
	err   error
}

func (a answers) Check(context.Context, client.Check) (client.Reply, error) { return a.reply, a.err }

// A fault lets calls pass, or ends them with another code than a denial.
func TestRemoteFaults(t *testing.T) {
	fault := &client.Fault{Op: "check", Err: errors.New("gone")}
	for name, c := range map[string]struct {
		answers
		want string
	}{
		"passes":          {answers{reply: client.Reply{Allowed: true, Undecided: true}, err: fault}, "OK 0s"},
		"closed":          {answers{reply: client.Reply{Undecided: true}, err: fault}, "Unavailable 1s"},
		"cut off":         {answers{reply: client.Reply{Rule: "r", Policy: "p", Basis: client.Basis{CutOff: true}, Headers: map[string]string{"Retry-After": "7"}}}, "Unavailable 7s"},
		"denied":          {answers{reply: client.Reply{Rule: "r", Policy: "p", Headers: map[string]string{"Retry-After": "7"}}}, "ResourceExhausted 7s"},
		"denied for good": {answers{reply: client.Reply{Rule: "r"}}, "PermissionDenied 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			header, err := get(t, serveRemote(t, c.answers, grpclimit.RemoteConfig{}), "x")
			if undecided := len(header.Get(httpapi.UndecidedField)) > 0; undecided != (err == nil) {
				t.Errorf("told as undecided: %v, with %v", undecided, err)
			}
			if got := told(nil, err); !strings.HasPrefix(got, c.want+" ") {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A call that a queue admits waits for its turn, unless it ends before.
func TestRemoteWaitsForItsTurn(t *testing.T) {
	soon := serveRemote(t, answers{reply: client.Reply{Allowed: true, Delay: 20 * time.Millisecond}}, grpclimit.RemoteConfig{})
	began := time.Now()
	if _, err := get(t, soon, "x"); err != nil || time.Since(began) < 20*time.Millisecond {
		t.Errorf("%v after %v, want it served after 20 ms", err, time.Since(began))
	}
	late := serveRemote(t, answers{reply: client.Reply{Allowed: true, Delay: time.Hour}}, grpclimit.RemoteConfig{})
	if _, err := get(t, late, "x"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("with an hour to wait: %v, want the deadline told", err)
	}
}

func TestRemoteExempts(t *testing.T) {
	conn := serveRemote(t, answers{reply: client.Reply{Rule: "r"}}, grpclimit.RemoteConfig{Exempt: []string{"/shop.Orders/Get"}})
	if _, err := get(t, conn, "x"); err != nil {
		t.Errorf("a call that is exempt: %v", err)
	}
	if err := send(list(t, conn), "x"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another: %v, want it denied", err)
	}
}

func TestRemoteConfig(t *testing.T) {
	cfg := grpclimit.RemoteConfig{Exempt: []string{"Get"}, RemoteConfig: httpapi.RemoteConfig{Headers: []string{""}}}
	_, err := grpclimit.Remote(answers{}, cfg)
	for _, want := range []string{`Exempt[0]: "Get" is neither`, `Headers[0]: "" is not the name`} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// No call switches its own limit off: what no edge can be told of is refused.
func TestRemoteHasNoWayAround(t *testing.T) {
	there := serveRemote(t, elsewhere(t, node(t, rule("client", "/shop.Orders/**", 1)), client.Config{Timeout: time.Minute}),
		grpclimit.RemoteConfig{RemoteConfig: httpapi.RemoteConfig{Headers: []string{"X-User-Id", "x-some-bin"}}})
	if _, err := get(t, there, "x"); err != nil {
		t.Fatalf("within the limit: %v", err)
	}
	for name, c := range map[string]struct {
		pair [2]string
		want codes.Code
	}{
		"plain":          {[2]string{"x-user-id", "u"}, codes.ResourceExhausted},
		"bytes":          {[2]string{"x-some-bin", "\xff"}, codes.InvalidArgument},
		"12 KiB of <":    {[2]string{"x-user-id", strings.Repeat("<", 12<<10)}, codes.ResourceExhausted},
		"control bytes":  {[2]string{"x-some-bin", strings.Repeat("\x01", 11<<10)}, codes.InvalidArgument},
		"another header": {[2]string{"x-other-bin", "\xff"}, codes.ResourceExhausted},
	} {
		if _, err := get(t, there, "x", c.pair[:]...); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
