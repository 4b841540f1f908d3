package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// heals is how long a bus may take to find its server again: a pause between
// attempts, an attempt that a frozen server swallows, and a slow machine.
const heals = 20 * time.Second

// ask is a request for an echo that is given d.
func ask(t testing.TB, b *Bus, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	reply, err := b.Request(ctx, "up.eu", []byte("x"))
	if err == nil && string(reply) != "x" {
		return fmt.Errorf("reply %q, want x", reply)
	}
	return err
}

// serveEcho has b answer ask, and hand over what is published on "hot".
func serveEcho(t testing.TB, b *Bus) (hot <-chan string) {
	t.Helper()
	if _, err := b.Serve("up.*", "agg", func(_ context.Context, _ string, p []byte) []byte { return p }); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	got := make(chan string, 100)
	if _, err := b.Subscribe("hot", func(_ string, p []byte) { got <- string(p) }); err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return got
}

// works waits until requests and publications from one get to the other.
func works(t testing.TB, from *Bus, hot <-chan string) {
	t.Helper()
	proc.Until(t, heals, func() error { return ask(t, from, time.Second) })
	for len(hot) > 0 {
		<-hot
	}
	if err := from.Publish("hot", []byte("news")); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	select {
	case m := <-hot:
		if m != "news" {
			t.Errorf("received %q, want news", m)
		}
	case <-time.After(heals):
		t.Fatal("what was published did not arrive")
	}
}

// refusesAtOnce checks that nothing waits for a server that is not there.
func refusesAtOnce(t testing.TB, b *Bus) {
	t.Helper()
	start := time.Now()
	if err := ask(t, b, heals); !errors.Is(err, ErrDisconnected) || !errors.Is(err, deltasync.ErrNoResponders) {
		t.Errorf("Request without a server: %v, want ErrDisconnected and ErrNoResponders", err)
	}
	if err := b.Publish("hot", []byte("stale")); !errors.Is(err, ErrDisconnected) {
		t.Errorf("Publish without a server: %v, want ErrDisconnected", err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("failing took %v, want it at once", d)
	}
	if s := b.Status(); s.Connected || s.Server != "" || !errors.Is(s.Err, ErrDisconnected) {
		t.Errorf("Status = %+v, want it not connected, and why", s)
	}
}

func TestServerDiesAndReturns(t *testing.T) {
	s := proc.NATS(t)
	edge, agg := connect(t, Config{URLs: []string{s.URL}}), connect(t, Config{URLs: []string{s.URL}})
	hot := serveEcho(t, agg)
	works(t, edge, hot)
	if st := edge.Status(); !st.Connected || st.Server != s.URL || st.Reconnects != 0 {
		t.Errorf("Status = %+v, want it connected to %s", st, s.URL)
	}

	s.Kill()
	proc.Until(t, heals, func() error {
		if edge.Status().Connected || agg.Status().Connected {
			return errors.New("a killed server still counts as connected")
		}
		return nil
	})
	refusesAtOnce(t, edge)
	// What begins to be served meanwhile is served once the server is back.
	late := make(chan string, 1)
	if _, err := agg.Subscribe("late", func(_ string, p []byte) { late <- string(p) }); err != nil {
		t.Fatalf("Subscribe without a server: %v", err)
	}

	s.Restart()
	works(t, edge, hot)
	if err := edge.Publish("late", []byte("hello")); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	select {
	case <-late:
	case <-time.After(heals):
		t.Error("a subscription made without a server does not work")
	}
	for len(hot) > 0 {
		if m := <-hot; m == "stale" {
			t.Error("what was published without a server was kept and delivered later")
		}
	}
	if st := edge.Status(); st.Reconnects == 0 {
		t.Errorf("Status = %+v, want a reconnect counted", st)
	}
}

func TestRequestUnderWayWhenServerDies(t *testing.T) {
	s := proc.NATS(t)
	edge, agg := connect(t, Config{URLs: []string{s.URL}}), connect(t, Config{URLs: []string{s.URL}})
	started, free := make(chan struct{}), make(chan struct{})
	if _, err := agg.Serve("up.eu", "agg", func(context.Context, string, []byte) []byte {
		close(started)
		<-free
		return []byte("x")
	}); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	defer close(free)
	done := make(chan error, 1)
	go func() { done <- ask(t, edge, 2*time.Second) }() // waited for below
	<-started
	s.Kill()
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrDisconnected) {
		t.Errorf("Request whose server died: %v, want DeadlineExceeded or ErrDisconnected", err)
	}
}

func TestServerComesLate(t *testing.T) {
	addr := proc.FreeAddr(t)
	cfg := Config{URLs: []string{"nats://" + addr}}
	edge, agg := connect(t, cfg), connect(t, cfg)
	hot := serveEcho(t, agg)
	refusesAtOnce(t, edge)
	proc.NATSAt(t, addr)
	works(t, edge, hot)
}

func TestServerFreezes(t *testing.T) {
	s := proc.NATS(t)
	edge, agg := connect(t, Config{URLs: []string{s.URL}}), connect(t, Config{URLs: []string{s.URL}})
	hot := serveEcho(t, agg)
	works(t, edge, hot)

	s.Pause()
	start := time.Now()
	if err := ask(t, edge, 250*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Request to a frozen server: %v, want DeadlineExceeded", err)
	}
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("Request with 250 ms took %v", d)
	}
	// The socket fills up: no call may wait for long, and nothing may pile up.
	payload := make([]byte, 64<<10)
	var slowest time.Duration
	proc.Until(t, heals, func() error {
		for range 50 {
			start := time.Now()
			err := edge.Publish("bulk", payload)
			slowest = max(slowest, time.Since(start))
			if err != nil && !errors.Is(err, ErrDisconnected) {
				t.Fatalf("Publish to a frozen server: %v, want nil or ErrDisconnected", err)
			}
		}
		if edge.Status().Connected {
			return errors.New("a frozen server still counts as connected")
		}
		return nil
	})
	if limit := writeTimeout + dialTimeout + time.Second; slowest > limit {
		t.Errorf("Publish into a full socket took %v, want at most %v", slowest, limit)
	}
	// Meanwhile the client connects, and waits for a greeting, again and again.
	for attempts := time.Now().Add(2 * dialTimeout); time.Now().Before(attempts); {
		tries := 0
		proc.Until(t, heals, func() error {
			if tries++; tries < 10 {
				return errors.New("too early")
			}
			return nil
		})
		refusesAtOnce(t, edge)
	}

	s.Continue()
	works(t, edge, hot)
}

func TestSilentFreezeIsNoticed(t *testing.T) {
	s := proc.NATS(t)
	b := connect(t, Config{URLs: []string{s.URL}})
	s.Pause()
	start := time.Now()
	proc.Until(t, heals, func() error {
		if b.Status().Connected {
			return errors.New("a frozen server still counts as connected")
		}
		return nil
	})
	if d := time.Since(start); d > (maxPings+1)*pingInterval+2*time.Second {
		t.Errorf("the silence was noticed after %v, want %v", d, (maxPings+1)*pingInterval)
	}
}

func TestUserThatIsKnownLater(t *testing.T) {
	s := proc.NATS(t, "--user", "edge", "--pass", "right")
	url := func(pass string) string { return strings.Replace(s.URL, "nats://", "nats://edge:"+pass+"@", 1) }
	wrong, right := connect(t, Config{URLs: []string{url("wrong")}}), connect(t, Config{URLs: []string{url("right")}})
	hot := serveEcho(t, right)
	works(t, right, hot)
	if shown := right.Status().Server; strings.Contains(shown, "right") {
		t.Errorf("Status shows the password: %s", shown)
	}
	// More refusals than the client would bear by itself, then a server that
	// knows the user.
	refusals := time.Now().Add(3 * (reconnectWait + reconnectJitter))
	proc.Until(t, heals, func() error {
		if time.Now().Before(refusals) {
			return errors.New("too early")
		}
		return nil
	})
	refusesAtOnce(t, wrong)
	if err := wrong.Status().Err; err == nil || !strings.Contains(strings.ToLower(err.Error()), "authorization violation") {
		t.Errorf("Status of a bus that is refused: %v, want the reason", err)
	}
	s.Kill()
	proc.NATSAt(t, strings.TrimPrefix(s.URL, "nats://"), "--user", "edge", "--pass", "wrong")
	proc.Until(t, heals, func() error {
		if !wrong.Status().Connected {
			return errors.New("the bus gave up after it was refused")
		}
		return nil
	})
}

func TestSlowReceiverIsCounted(t *testing.T) {
	s := proc.NATS(t)
	b := connect(t, Config{URLs: []string{s.URL}})
	free := make(chan struct{})
	sub, err := b.Subscribe("hot", func(string, []byte) { <-free })
	if err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	const n = maxPending + 500
	for range n {
		if err := b.Publish("hot", nil); err != nil {
			t.Fatalf("Publish: %v", err)
		}
	}
	// The client counts the message that its handler has towards the bound.
	const want = n - maxPending
	proc.Until(t, heals, func() error {
		if got := b.Status().Lost; got != want {
			return fmt.Errorf("Lost = %d, want %d", got, want)
		}
		return nil
	})
	close(free)
	if err := sub.Stop(); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	if got := b.Status(); got.Lost != want || got.OutMessages != n {
		t.Errorf("Status = %+v, want %d lost, also after Stop, and %d sent", got, want, n)
	}
}
