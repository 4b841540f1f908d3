package deferred

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/sync/natsbus/embedded"
	"github.com/spillgate/spillgate/test/proc"
)

// jet is a NATS server with JetStream that can be ended and started again.
type jet struct {
	t      testing.TB
	addr   string
	dir    string
	server *embedded.Server
}

func newJet(t testing.TB) *jet {
	j := &jet{t: t, addr: proc.FreeAddr(t), dir: t.TempDir()}
	j.start()
	t.Cleanup(func() { j.server.Shutdown() })
	return j
}

func (j *jet) start() {
	j.t.Helper()
	s, err := embedded.Start(embedded.Options{Listen: j.addr, StoreDir: j.dir})
	if err != nil {
		j.t.Fatal(err)
	}
	j.server = s
}

func (j *jet) restart() {
	j.t.Helper()
	j.server.Shutdown()
	j.start()
}

// connect is a connection of its own, that is closed at the end.
func (j *jet) connect() *nats.Conn {
	j.t.Helper()
	nc, err := nats.Connect("nats://"+j.addr, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(nc.Close)
	return nc
}

// queue opens the queue over a connection.
func (j *jet) queue(nc *nats.Conn, cfg Config) *Queue {
	j.t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		j.t.Fatal(err)
	}
	if cfg.Region == "" {
		cfg.Region = "eu"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if testing.Verbose() && cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(j.t.Output(), nil))
	}
	q, err := Open(j.t.Context(), js, cfg)
	if err != nil {
		j.t.Fatal(err)
	}
	return q
}

// work has a queue's requests done until the test ends, or stop is called.
func work(t testing.TB, q *Queue, send Send) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { q.Work(ctx, 4, send) })
	stop = func() { cancel(); done.Wait() }
	t.Cleanup(stop)
	return stop
}

// becomes waits until a request is in a state.
func becomes(t testing.TB, q *Queue, id string, want State) (s Status) {
	t.Helper()
	proc.Until(t, 30*time.Second, func() (err error) {
		if s, err = q.Status(context.Background(), id); err == nil && s.State != want {
			err = fmt.Errorf("%s is %+v, not %s yet", id, s, want)
		}
		return err
	})
	return s
}

// call is a request of a client's.
func call(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.7:4711"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// get is what a handler answers.
func get(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// put keeps a request of a tenant's.
func put(t testing.TB, q *Queue, tenant string, expires time.Time) string {
	t.Helper()
	r := &Request{ID: NewID(), Tenant: tenant, Client: "192.0.2.7:4711", Expires: expires, HTTP: call("PUT", "http://api.example/a", "body"), Body: []byte("body")}
	if err := q.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r.ID
}

// reopen opens the queue over another connection.
func reopen(ctx context.Context, nc *nats.Conn, cfg Config) (*Queue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	cfg.Region = "eu"
	return Open(ctx, js, cfg)
}
