package integration

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/spillgate/spillgate/test/proc"
)

// TestKeysStayOffTheWire listens to everything on NATS, as whoever reaches it
// could, while two regions exchange counts of a key near its limit.
func TestKeysStayOffTheWire(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	conn, err := nats.Connect(c.nats.URL)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	defer conn.Close()
	const key = "alice@example.com"
	var mu sync.Mutex // guards seen and leaks
	seen := map[string]int{}
	var leaks []string
	everything, err := conn.Subscribe(">", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		kind := strings.SplitN(m.Subject, ".", 4)
		seen[strings.Join(kind[:min(len(kind), 3)], ".")]++
		whole := append([]byte(m.Subject+" "+m.Reply+" "), m.Data...)
		for _, clear := range []string{key, "alice", "minute", secret} {
			if clear == "minute" && strings.HasPrefix(m.Subject, "sg.v1.tell.") {
				continue // rules are told of by their names, with no key
			}
			if bytes.Contains(whole, []byte(clear)) {
				leaks = append(leaks, m.Subject+" shows "+clear)
			}
		}
	})
	if err != nil {
		t.Fatalf("subscribe: %v", err)
	}
	if err := conn.Flush(); err != nil { // the server knows of the subscription
		t.Fatalf("flush: %v", err)
	}
	total := uint64(0)
	for range 30 { // past the thresholds that are pushed
		for _, e := range c.edges() {
			r, err := e.check(call{Attributes: map[string]string{"user": key}})
			if err != nil {
				t.Fatalf("check: %v", err)
			}
			if r.Allowed {
				total++
			}
		}
	}
	c.allBelieve(t, heals, key, total)
	// The last message shows a key: that it is found shows that all before it
	// were looked at, and that a leak would be seen.
	const planted = "test.planted"
	if err := conn.Publish(planted, []byte("of "+key)); err != nil {
		t.Fatalf("publish: %v", err)
	}
	proc.Until(t, heals, func() error {
		mu.Lock()
		defer mu.Unlock()
		if seen[planted] == 0 {
			return fmt.Errorf("the planted leak did not arrive")
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	found := 0
	for _, l := range leaks {
		if strings.HasPrefix(l, planted) {
			found++
			continue
		}
		t.Error(l)
	}
	if found == 0 {
		t.Error("the planted leak was not seen: the test sees nothing")
	}
	t.Logf("messages seen: %v", seen)
	if n, _ := everything.Dropped(); n > 0 {
		t.Errorf("%d messages were not looked at", n)
	}
	for _, prefix := range []string{"sg.v1.up", "sg.v1.hot"} {
		if seen[prefix] == 0 {
			t.Errorf("no message under %s: the test saw nothing", prefix)
		}
	}
}

// TestLanesMustMatch: an edge that divides the keys otherwise than its region
// is refused and says so. It decides on its own, and the region is unharmed.
func TestLanesMustMatch(t *testing.T) {
	t.Parallel()
	server := startNATS(t, proc.FreeAddr(t))
	aggregator := startAggregator(t, "eu", "us", server.URL, startRedis(t).Addr)
	fits := startEdge(t, "eu", "eu-1", server.URL, "testdata/rules.yaml")
	odd := startEdge(t, "eu", "eu-2", server.URL, "testdata/rules.yaml", "--lanes", "4")

	odd.charge(t, "odd", 3)
	fits.charge(t, "odd", 2)
	awaitMetric(t, heals, odd.Admin, `spillgate_degraded{reason="lanes"}`, 1)
	awaitMetric(t, heals, odd.Admin, `spillgate_degraded{reason="sync"}`, 0)
	awaitMetric(t, heals, fits.Admin, `spillgate_degraded{reason="lanes"}`, 0)
	if n, err := metric(aggregator.Admin, `spillgate_sync_refused_total{reason="lanes"}`); err != nil || n == 0 {
		t.Errorf("frames refused for their lanes = %v, %v, want some", n, err)
	}
	agree(t, heals, counts{"odd": 2}, fits)
	agree(t, heals, counts{"odd": 3}, odd)
	if log := odd.Log(); !strings.Contains(log, "set lanes alike") {
		t.Errorf("the edge does not say what to mend:\n%s", log)
	}

	// Nobody answering is another trouble than being refused.
	server.Kill()
	awaitMetric(t, heals, odd.Admin, `spillgate_degraded{reason="sync"}`, 1)
	awaitMetric(t, heals, odd.Admin, `spillgate_degraded{reason="lanes"}`, 0)
}

// TestSecretsMustMatch: an edge with another secret counts keys of its own, which
// nobody would see: it is told, and says so.
func TestSecretsMustMatch(t *testing.T) {
	t.Parallel()
	server := startNATS(t, proc.FreeAddr(t))
	aggregator := startAggregator(t, "eu", "us", server.URL, startRedis(t).Addr)
	fits := startEdge(t, "eu", "eu-1", server.URL, "testdata/rules.yaml")
	startEdge(t, "eu", "eu-2", server.URL, "testdata/rules.yaml")
	odd := startEdge(t, "eu", "eu-3", server.URL, "testdata/rules.yaml", "--secret", "another secret of a cluster")

	awaitMetric(t, heals, odd.Admin, `spillgate_degraded{reason="secret"}`, 1)
	awaitMetric(t, heals, fits.Admin, `spillgate_degraded{reason="secret"}`, 0)
	awaitMetric(t, heals, aggregator.Admin, "spillgate_sync_other_secret_edges", 1)
	if log := odd.Log(); !strings.Contains(log, "one secret") {
		t.Errorf("the edge does not say what to mend:\n%s", log)
	}
	if log := aggregator.Log(); strings.Count(log, "another secret") != 1 || !strings.Contains(log, "name=eu-3") {
		t.Errorf("the aggregator does not say once whose secret is another:\n%s", log)
	}
}
