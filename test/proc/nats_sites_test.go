package proc

import (
	"fmt"
	"testing"
)

func TestNATSCluster(t *testing.T) {
	s := NATSCluster(t, NewNATSUsers(t), "eu", 3)
	if len(s.URLs()) != 3 || len(s.Leafs) != 3 {
		t.Errorf("a cluster of 3 has clients at %v and leafs at %v", s.URLs(), s.Leafs)
	}
	for _, n := range s.Servers {
		var z struct{ Cluster struct{ Name string } }
		if err := n.Monitor("varz", &z); err != nil || z.Cluster.Name != "eu" {
			t.Errorf("%s is of cluster %q, %v, want eu", n.URL, z.Cluster.Name, err)
		}
	}
}

func TestNATSGatewaysAndLeafs(t *testing.T) {
	users := NewNATSUsers(t)
	regions := []string{"eu", "us", "ap"}
	sites := NATSGateways(t, users, regions...)
	eu := sites["eu"]
	NATSLeaf(t, users, "POP_AMS", eu.Leafs[0])
	NATSLeaf(t, users, "POP_FRA", eu.Leafs[0])
	js := NATSJetStream(t, users, "eu", eu.Leafs[0], t.TempDir())

	var hub struct{ Leafs []any }
	if err := eu.Servers[0].Monitor("leafz", &hub); err != nil || len(hub.Leafs) != 3 {
		t.Errorf("the hub has leafs %v, %v, want 3", hub.Leafs, err)
	}
	var jsz struct{ Config struct{ Domain string } }
	if err := js.Monitor("jsz", &jsz); err != nil || jsz.Config.Domain != "eu" {
		t.Errorf("JetStream has the domain %q, %v, want eu", jsz.Config.Domain, err)
	}
	// No link goes past its wire.
	for _, site := range sites {
		site.Gateway.Cut()
		site.Leafs[0].Cut()
	}
	Until(t, readyWithin, func() error {
		for _, site := range sites {
			if site.Servers[0].HasGateways(regions) == nil {
				return fmt.Errorf("%s has gateways without a wire", site.Region)
			}
		}
		if js.Linked() == nil {
			return fmt.Errorf("a leaf is linked without a wire")
		}
		return nil
	})
	for _, site := range sites {
		site.Gateway.Mend()
		site.Leafs[0].Mend()
	}
	Until(t, readyWithin, func() error { return eu.Servers[0].HasGateways(regions) })
	Until(t, readyWithin, js.Linked)
}
