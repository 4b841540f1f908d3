package natsbus

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// connection is what a server tells of one.
type connection struct {
	Name    string
	Reason  string
	Pending int64 `json:"pending_bytes"`
}

// connections of a client by its name; state is "open" or "closed".
func connections(t testing.TB, s *proc.NATSServer, state, name string) (found []connection) {
	t.Helper()
	var z struct{ Connections []connection }
	if err := s.Monitor("connz?state="+state, &z); err != nil {
		t.Fatal(err)
	}
	for _, c := range z.Connections {
		if c.Name == name {
			found = append(found, c)
		}
	}
	return found
}

// TestSlowConsumerIsCutOff has a subscriber that does not read: the server
// cuts it off, by max_pending under a flood and by write_deadline without one,
// holds up nobody for it, and counts it. It comes back by itself.
func TestSlowConsumerIsCutOff(t *testing.T) {
	for _, c := range []struct {
		name   string
		most   int64 // pending bytes at which the flood ends
		reason string
	}{
		{"max_pending", 1 << 40, "Slow Consumer (Pending Bytes)"},
		{"write_deadline", 1 << 20, "Slow Consumer (Write Deadline)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			users := proc.NewNATSUsers(t)
			server := proc.NATSCluster(t, users, "eu", 1).Servers[0]
			wire := proc.NewProxy(t, strings.TrimPrefix(server.URL, "nats://"))
			cfg := as(t, users, "POP_AMS", "_INBOX_eu.ams.slow", "nats://"+wire.Addr)
			cfg.Name = "slow"
			slow := connect(t, cfg)
			fast := connect(t, as(t, users, "POP_FRA", "_INBOX_eu.fra.fast", server.URL))
			agg := connect(t, as(t, users, "AGG_EU", "_INBOX_eu.agg-1", server.URL))

			const hot = "sg.v1.hot.eu.0"
			onSlow, onFast := make(chan struct{}, 1), make(chan struct{}, 1)
			for b, got := range map[*Bus]chan struct{}{slow: onSlow, fast: onFast} {
				if _, err := b.Subscribe("sg.v1.hot.eu.*", func(string, []byte) {
					select {
					case got <- struct{}{}:
					default: // told already
					}
				}); err != nil {
					t.Fatalf("Subscribe: %v", err)
				}
			}
			push := func(to chan struct{}) {
				t.Helper()
				if err := agg.Publish(hot, stamp()); err != nil {
					t.Fatalf("Publish: %v", err)
				}
				select {
				case <-to:
				case <-time.After(heals):
					t.Fatal("a push did not arrive")
				}
			}
			push(onSlow)

			wire.Freeze()
			var slowest time.Duration
			flooding, pushes := true, 0
			proc.Until(t, heals, func() error {
				for range 20 {
					if !flooding {
						break
					}
					begun := time.Now()
					push(onFast)
					slowest = max(slowest, time.Since(begun))
					pushes++
				}
				if gone := connections(t, server, "closed", "slow"); len(gone) > 0 {
					if gone[0].Reason != c.reason {
						t.Errorf("the slow consumer was closed for %q, want %q", gone[0].Reason, c.reason)
					}
					return nil
				}
				for _, open := range connections(t, server, "open", "slow") {
					flooding = flooding && open.Pending < c.most
				}
				return errors.New("a subscriber that does not read is still connected")
			})
			// 8 MB wait in the server, and what the sockets hold is 10 or 20 more.
			if sent := pushes * len(stamp()); sent > 40<<20 {
				t.Errorf("%d MB were sent to a subscriber that does not read before it was cut off", sent>>20)
			}
			if slowest > time.Second {
				t.Errorf("a push to another subscriber took %v meanwhile", slowest)
			}
			var z struct {
				Slow  int64                   `json:"slow_consumers"`
				Stats struct{ Clients int64 } `json:"slow_consumer_stats"`
			}
			if err := server.Monitor("varz", &z); err != nil || z.Slow != 1 || z.Stats.Clients != 1 {
				t.Errorf("the server counts %+v slow consumers, %v, want 1", z, err)
			}

			wire.Mend()
			proc.Until(t, heals, func() error {
				if st := slow.Status(); !st.Connected || st.Reconnects == 0 {
					return fmt.Errorf("Status = %+v, want it connected again", st)
				}
				return nil
			})
			answered := func() error { // the new connection carries pushes
				for len(onSlow) > 0 {
					<-onSlow
				}
				if err := agg.Publish(hot, make([]byte, 8)); err != nil {
					return err
				}
				select {
				case <-onSlow:
					return nil
				case <-time.After(100 * time.Millisecond):
					return errors.New("no push arrives")
				}
			}
			proc.Until(t, heals, answered)
		})
	}
}
