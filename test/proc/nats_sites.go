package proc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
)

// peerURL begins the URLs of routes and gateways.
const (
	peerPassword = "between-servers"
	peerURL      = "nats://server:" + peerPassword + "@"
)

// NATSUsers has a key of this test's own for each user of
// deploy/nats/users.conf.
type NATSUsers struct {
	env   []string          // the public halves, as that file asks for them
	seeds map[string]string // by the name in that file, "POP_AMS"
	dir   string
}

// NewNATSUsers makes the keys.
func NewNATSUsers(t testing.TB) *NATSUsers {
	t.Helper()
	text, err := os.ReadFile(natsFile("users.conf"))
	if err != nil {
		t.Fatalf("NATS users: %v", err)
	}
	u := &NATSUsers{seeds: map[string]string{}, dir: t.TempDir()}
	for _, m := range regexp.MustCompile(`\$SG_NATS_KEY_(\w+)`).FindAllStringSubmatch(string(text), -1) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatalf("NATS users: %v", err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			t.Fatalf("NATS users: %v", err)
		}
		seed, err := pair.Seed()
		if err != nil {
			t.Fatalf("NATS users: %v", err)
		}
		u.env = append(u.env, "SG_NATS_KEY_"+m[1]+"="+public)
		u.seeds[m[1]] = string(seed)
		if err := os.WriteFile(filepath.Join(u.dir, m[1]), seed, 0o600); err != nil {
			t.Fatalf("NATS users: %v", err)
		}
	}
	return u
}

// SeedFile is the seed of a user, for a client's settings.
func (u *NATSUsers) SeedFile(t testing.TB, user string) string {
	t.Helper()
	u.seed(t, user)
	return filepath.Join(u.dir, user)
}

func (u *NATSUsers) seed(t testing.TB, user string) string {
	t.Helper()
	seed, ok := u.seeds[user]
	if !ok {
		t.Fatalf("deploy/nats/users.conf has no user %s", user)
	}
	return seed
}

// NATSSite is a region's cluster, of which each server may also be a gateway.
type NATSSite struct {
	Region  string
	Servers []*NATSServer
	// Leafs are the wires by which leaf nodes join, one to each server. Leafs
	// know no other.
	Leafs []*Proxy
	// Gateway is the wire by which other regions reach this one; nil without
	// gateways, and where each of several servers is one.
	Gateway *Proxy
}

// URLs are where clients connect.
func (s *NATSSite) URLs() []string {
	var urls []string
	for _, n := range s.Servers {
		urls = append(urls, n.URL)
	}
	return urls
}

// NATSCluster starts a region of n servers from deploy/nats/cluster.conf and
// returns when each has a route to each other.
func NATSCluster(t testing.TB, users *NATSUsers, region string, n int) *NATSSite {
	t.Helper()
	s := natsCluster(t, users, "cluster.conf", region, n, func(int) []string { return nil })
	s.AwaitRoutes(t)
	return s
}

// NATSGateways starts regions of one server each from deploy/nats/gateway.conf
// and returns when each has gateways to and from each other.
func NATSGateways(t testing.TB, users *NATSUsers, regions ...string) map[string]*NATSSite {
	t.Helper()
	wires := map[string]*Proxy{}
	var remotes []string
	for _, r := range regions {
		wires[r] = NewProxy(t, FreeAddr(t))
		remotes = append(remotes, fmt.Sprintf("{name: %s, urls: [%s%s]}", r, peerURL, wires[r].Addr))
	}
	sites := map[string]*NATSSite{}
	for _, r := range regions {
		sites[r] = natsCluster(t, users, "gateway.conf", r, 1, func(int) []string {
			return []string{
				"SG_NATS_GATEWAY_LISTEN=" + wires[r].target,
				"SG_NATS_GATEWAY_ADVERTISE=" + wires[r].Addr,
				"SG_NATS_GATEWAYS=[" + strings.Join(remotes, ", ") + "]",
			}
		})
		sites[r].Gateway = wires[r]
	}
	for _, s := range sites {
		Until(t, readyWithin, func() error { return s.Servers[0].HasGateways(regions) })
	}
	return sites
}

// NATSGatewayClusters is NATSGateways of regions that are clusters of n servers, each
// of which is a gateway. No wire stands between them.
func NATSGatewayClusters(t testing.TB, users *NATSUsers, n int, regions ...string) map[string]*NATSSite {
	t.Helper()
	listen := map[string][]string{}
	var remotes []string
	for _, r := range regions {
		for range n {
			listen[r] = append(listen[r], FreeAddr(t))
		}
		remotes = append(remotes, fmt.Sprintf("{name: %s, urls: [%s%s]}", r, peerURL, strings.Join(listen[r], ", "+peerURL)))
	}
	sites := map[string]*NATSSite{}
	for _, r := range regions {
		sites[r] = natsCluster(t, users, "gateway.conf", r, n, func(i int) []string {
			return []string{
				"SG_NATS_GATEWAY_LISTEN=" + listen[r][i],
				"SG_NATS_GATEWAY_ADVERTISE=" + listen[r][i],
				"SG_NATS_GATEWAYS=[" + strings.Join(remotes, ", ") + "]",
			}
		})
	}
	for _, s := range sites {
		s.AwaitRoutes(t)
		for _, server := range s.Servers {
			Until(t, readyWithin, func() error { return server.HasGatewaysTo(regions) })
		}
	}
	return sites
}

// HasGateways returns nil if the server has a gateway to and from each region
// but its own.
func (s *NATSServer) HasGateways(regions []string) error {
	z, err := s.gateways()
	return cmp.Or(err, z.lacks(z.Outbound, regions), z.lacks(z.Inbound, regions))
}

// HasGatewaysTo is HasGateways of a cluster's server: each has gateways of its own to
// others, and those from others come to any of them.
func (s *NATSServer) HasGatewaysTo(regions []string) error {
	z, err := s.gateways()
	return cmp.Or(err, z.lacks(z.Outbound, regions))
}

// gateways are those of a server, by the regions at their other ends.
type gateways struct {
	Name     string         // its own region
	Outbound map[string]any `json:"outbound_gateways"`
	Inbound  map[string]any `json:"inbound_gateways"`
}

func (s *NATSServer) gateways() (z gateways, err error) {
	err = s.Monitor("gatewayz", &z)
	return z, err
}

func (z *gateways) lacks(ends map[string]any, regions []string) error {
	for _, r := range regions {
		if r != z.Name && ends[r] == nil {
			return fmt.Errorf("%s has gateways to %v and from %v, want %s", z.Name, z.Outbound, z.Inbound, r)
		}
	}
	return nil
}

// natsCluster starts n servers; extra is added to the environment of the i-th.
func natsCluster(t testing.TB, users *NATSUsers, file, region string, n int, extra func(i int) []string) *NATSSite {
	t.Helper()
	s := &NATSSite{Region: region}
	var routes []string
	for range n {
		routes = append(routes, FreeAddr(t))
	}
	for i := range n {
		leafs := NewProxy(t, FreeAddr(t))
		s.Leafs = append(s.Leafs, leafs)
		env := []string{
			fmt.Sprintf("SG_NATS_NAME=%s-%d", region, i+1),
			"SG_NATS_REGION=" + region,
			"SG_NATS_ROUTE_LISTEN=" + routes[i],
			"SG_NATS_ROUTES=[" + peerURL + strings.Join(routes, ", "+peerURL) + "]",
			"SG_NATS_LEAF_LISTEN=" + leafs.target,
			"SG_NATS_LEAF_ADVERTISE=" + leafs.Addr,
			"SG_NATS_PASSWORD=" + peerPassword,
		}
		s.Servers = append(s.Servers, NATSShipped(t, file, slices.Concat(env, extra(i), users.env)...))
	}
	return s
}

// AwaitRoutes waits for each server to have a route to each other.
func (s *NATSSite) AwaitRoutes(t testing.TB) {
	t.Helper()
	for _, n := range s.Servers {
		Until(t, readyWithin, func() error {
			var z struct {
				Routes []struct {
					Name string `json:"remote_name"`
				}
			}
			if err := n.Monitor("routez", &z); err != nil {
				return err
			}
			others := map[string]bool{}
			for _, r := range z.Routes {
				others[r.Name] = true
			}
			if len(others) != len(s.Servers)-1 {
				return fmt.Errorf("%s has routes to %v, want %d others", n.URL, others, len(s.Servers)-1)
			}
			return nil
		})
	}
}

// NATSLeaf starts the server of a PoP from deploy/nats/leaf.conf, which joins
// its region as user at hub, one of NATSSite.Leafs. It returns when the link is
// up.
func NATSLeaf(t testing.TB, users *NATSUsers, user string, hub *Proxy) *NATSServer {
	t.Helper()
	return natsLeaf(t, users, "leaf.conf", user, hub, "SG_NATS_NAME=leaf-"+FreeAddr(t))
}

// NATSJetStream starts the JetStream of a region, whose hub is as NATSLeaf's,
// from deploy/nats/jetstream-leaf.conf, with its files in dir.
func NATSJetStream(t testing.TB, users *NATSUsers, region string, hub *Proxy, dir string) *NATSServer {
	t.Helper()
	return natsLeaf(t, users, "jetstream-leaf.conf", "JS_"+strings.ToUpper(region), hub,
		"SG_NATS_NAME="+region+"-js", "SG_NATS_REGION="+region, "SG_NATS_STORE="+dir)
}

func natsLeaf(t testing.TB, users *NATSUsers, file, user string, hub *Proxy, env ...string) *NATSServer {
	t.Helper()
	env = append(env, "SG_NATS_HUBS=[nats://"+hub.Addr+"]", "SG_NATS_LEAF_SEED="+users.seed(t, user))
	s := NATSShipped(t, file, slices.Concat(env, users.env)...)
	Until(t, readyWithin, s.Linked)
	return s
}

// Linked returns nil if the server has leaf connections, in either direction.
func (s *NATSServer) Linked() error {
	var z struct{ Leafs []any }
	if err := s.Monitor("leafz", &z); err != nil {
		return err
	}
	if len(z.Leafs) == 0 {
		return fmt.Errorf("%s has no leaf connection", s.URL)
	}
	return nil
}

// NATSShipped starts a server from a file of deploy/nats, on free ports, with
// env in its environment.
func NATSShipped(t testing.TB, file string, env ...string) *NATSServer {
	t.Helper()
	addr, monitor := FreeAddr(t), FreeAddr(t)
	p := Start(t, Command{
		Name:  "nats-server",
		Path:  natsBinary(t),
		Args:  []string{"-c", natsFile(file)},
		Env:   slices.Concat(os.Environ(), env, []string{"SG_NATS_LISTEN=" + addr, "SG_NATS_HTTP=" + monitor}),
		Dir:   t.TempDir(),
		Ready: func(ctx context.Context) error { return greets(ctx, addr) },
	})
	return &NATSServer{Process: p, URL: "nats://" + addr, monitor: "http://" + monitor}
}

// natsFile is the path of a file of deploy/nats.
func natsFile(name string) string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "..", "..", "deploy", "nats", name)
}

// Monitor reads what the server tells under path, such as "leafz?subs=1", as
// JSON into to.
func (s *NATSServer) Monitor(path string, to any) error {
	resp, err := http.Get(s.monitor + "/" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
		return fmt.Errorf("%s of %s: %w", path, s.URL, err)
	}
	return nil
}
