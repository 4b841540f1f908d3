package natsbus

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/spillgate/spillgate/test/proc"
)

// TestClusterNodeDies kills the servers of both clients in turn. Each was told
// of one server only; of the others it learns from that.
func TestClusterNodeDies(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	site := proc.NATSCluster(t, users, "eu", 3)
	var buses []*Bus
	for _, url := range site.URLs() {
		buses = append(buses, connect(t, as(t, users, "OPERATOR", "", url)))
	}
	edge, agg, bystander := buses[0], buses[1], buses[2]
	hot := serveEcho(t, agg)
	works(t, edge, hot)
	works(t, bystander, hot)
	dies := func(node *proc.NATSServer, of *Bus) {
		t.Helper()
		node.Kill()
		killed := time.Now()
		works(t, edge, hot)
		t.Logf("the dead server was replaced after %v", time.Since(killed))
		if st := of.Status(); st.Reconnects == 0 || st.Server == node.URL {
			t.Errorf("Status = %+v, want it at another server than %s", st, node.URL)
		}
	}

	// Who has another server, and asks somebody at a third, notices nothing.
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { // ends with stop
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := ask(t, bystander, heals); err != nil {
				t.Errorf("a request over servers that live, while another dies: %v", err)
			}
		}
	})
	dies(site.Servers[0], edge)
	close(stop)
	asking.Wait()

	site.Servers[0].Restart()
	site.AwaitRoutes(t)
	dies(site.Servers[1], agg)
}

// TestJetStreamPerRegion has each region keep what it needs: another's loss
// stops neither its reading nor its writing, and a mirror has what was written
// elsewhere.
func TestJetStreamPerRegion(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGateways(t, users, "eu", "us")
	servers := map[string]*proc.NATSServer{}
	for name, site := range sites {
		servers[name] = proc.NATSJetStream(t, users, name, site.Leafs[0], t.TempDir())
	}
	// Whoever asks is in us, whatever the domain.
	us := operator(t, users, sites["us"].URLs()[0])
	domain := func(name string) nats.JetStreamContext {
		js, err := us.JetStream(nats.Domain(name), nats.MaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	create := func(name string, cfg nats.KeyValueConfig) (kv nats.KeyValue) {
		proc.Until(t, heals, func() (err error) { // the domain is heard of
			kv, err = domain(name).CreateKeyValue(&cfg)
			return err
		})
		return kv
	}
	put := func(kv nats.KeyValue, key, value string) {
		t.Helper()
		proc.Until(t, heals, func() error {
			_, err := kv.PutString(key, value)
			return err
		})
	}
	holds := func(kv nats.KeyValue, key, want string) {
		t.Helper()
		proc.Until(t, heals, func() error {
			e, err := kv.Get(key)
			if err == nil && string(e.Value()) != want {
				err = fmt.Errorf("%s = %q, want %q", key, e.Value(), want)
			}
			return err
		})
	}
	rules := create("eu", nats.KeyValueConfig{Bucket: "rules"})
	put(rules, "a", "1")
	mirror := create("us", nats.KeyValueConfig{Bucket: "mirrored", Mirror: &nats.StreamSource{Name: "rules", Domain: "eu"}})
	holds(mirror, "a", "1")
	own := create("us", nats.KeyValueConfig{Bucket: "own"})

	servers["eu"].Kill()
	holds(mirror, "a", "1")
	put(own, "b", "2")
	holds(own, "b", "2")
	if _, err := rules.Get("a"); err == nil {
		t.Error("rules of a dead JetStream were read: there is another in its domain")
	}

	servers["eu"].Restart()
	holds(rules, "a", "1") // from its disk

	// The regions' own servers have none.
	for name, site := range sites {
		var z struct{ Disabled bool }
		if err := site.Servers[0].Monitor("jsz", &z); err != nil || !z.Disabled {
			t.Errorf("JetStream of the server of %s: %+v, %v, want it disabled", name, z, err)
		}
	}
}
