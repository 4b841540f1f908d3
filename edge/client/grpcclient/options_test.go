package grpcclient_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/client/grpcclient"
	"github.com/spillgate/spillgate/edge/limiterpb"
)

// edge admits all.
type edge struct {
	limiterpb.UnimplementedLimiterServer
}

func (edge) Check(context.Context, *limiterpb.CheckRequest) (*limiterpb.CheckResponse, error) {
	return &limiterpb.CheckResponse{Allowed: true}, nil
}

// wire is one end of a connection. Once it is cut off nothing comes or goes, and nobody is
// told; its other end is the same.
type wire struct {
	net.Conn
	silent atomic.Bool
}

func (w *wire) Write(b []byte) (int, error) {
	if w.silent.Load() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

// asked is a client as the documentation has it made, of an edge with cmd/edge's bound of pings.
func asked(t *testing.T, dial func(ctx context.Context, edge *bufconn.Listener) (net.Conn, error)) client.Limiter {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}))
	limiterpb.RegisterLimiterServer(server, edge{})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }() // the cleanup stops it and waits
	t.Cleanup(func() { server.Stop(); <-done })
	conn, err := grpc.NewClient("passthrough:edge", append(grpcclient.Options(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, listener) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpcclient.New(conn, client.Config{})
}

// until asks each 100 ms, in a bubble of synctest, and returns how long it took until an edge decided.
func until(t *testing.T, limiter client.Limiter, within time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < within {
		if r, err := limiter.Check(t.Context(), client.Check{}); err == nil && !r.Undecided {
			return time.Since(began)
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	t.Errorf("nothing is decided within %v", within)
	return within
}

// However long an edge was away, be it that it refuses or that its machine is gone, it is asked
// again within two and a half seconds of being back.
func TestEdgesThatAreBackAreFound(t *testing.T) {
	for name, fails := range map[string]func(context.Context) error{
		"refuses": func(context.Context) error { return errors.New("connection refused") },
		"is gone": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var away atomic.Bool
				var dials atomic.Int32
				limiter := asked(t, func(ctx context.Context, edge *bufconn.Listener) (net.Conn, error) {
					if away.Load() {
						dials.Add(1)
						return nil, fails(ctx)
					}
					return edge.DialContext(ctx)
				})
				away.Store(true)
				for range 3000 { // five minutes
					if r, err := limiter.Check(t.Context(), client.Check{}); !client.IsFault(err) || !r.Undecided {
						t.Fatalf("%+v, %v, want a fault", r, err)
					}
					time.Sleep(100 * time.Millisecond) // virtual
				}
				if n := dials.Load(); n < 100 {
					t.Errorf("it was dialled %d times in five minutes, want once in three seconds at least", n)
				}
				away.Store(false)
				if took := until(t, limiter, 5*time.Minute); took > 2500*time.Millisecond {
					t.Errorf("the edge is back, and asked again after %v", took)
				}
			})
		})
	}
}

// A connection that falls silent is given up, and another found.
func TestSilentConnectionsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last atomic.Pointer[wire]
		limiter := asked(t, func(ctx context.Context, edge *bufconn.Listener) (net.Conn, error) {
			conn, err := edge.DialContext(ctx)
			w := &wire{Conn: conn}
			last.Store(w)
			return w, err
		})
		until(t, limiter, time.Minute)
		last.Load().silent.Store(true)
		if took := until(t, limiter, 5*time.Minute); took > 12*time.Second {
			t.Errorf("its connection is silent, and another asked after %v", took)
		}
		last.Load().silent.Store(true)
		time.Sleep(time.Minute) // virtual: and nobody asks meanwhile
		if took := until(t, limiter, 5*time.Minute); took > 0 {
			t.Errorf("its connection was silent for a minute, and another asked after %v", took)
		}
	})
}

// Pings are no more than an edge permits: a connection that nobody uses lasts.
func TestEdgesPermitPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		limiter := asked(t, func(ctx context.Context, edge *bufconn.Listener) (net.Conn, error) {
			dials.Add(1)
			return edge.DialContext(ctx)
		})
		until(t, limiter, time.Minute)
		time.Sleep(10 * time.Minute) // virtual
		until(t, limiter, time.Minute)
		if n := dials.Load(); n != 1 {
			t.Errorf("%d connections, want one", n)
		}
	})
}
