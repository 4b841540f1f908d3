package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/regional/redisstore"
	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsbus/embedded"
	"github.com/spillgate/spillgate/test/sim/world"
)

const (
	lanes     = 1       // one process serves them all
	viewBytes = 4 << 20 // an edge, for some ten thousand idle keys
	// drain is how long calls under way may take when the demo stops.
	drain = 2 * time.Second
)

// cluster is regions with their edges, all in this process and over one
// embedded nats-server.
type cluster struct {
	cfg     Config
	log     *slog.Logger
	secret  []byte
	regions []*region
	global  *world.Oracle
	begun   time.Time // of the run; set before anything runs
	nats    *embedded.Server
	closers []func() error // of what is open, in order of opening
}

// region is an aggregator with its store, and its edges.
type region struct {
	name       string
	aggregator *regional.Aggregator
	bus        deltasync.Bus
	oracle     *world.Oracle
	edges      []*edgeSite
}

// edgeSite is a site with what serves it.
type edgeSite struct {
	*site
	name     string
	url      string
	api      *httpapi.API
	listener net.Listener
	bus      deltasync.Bus
}

// newCluster opens everything and runs nothing.
func newCluster(ctx context.Context, cfg Config, rules rulesText, log *slog.Logger) (_ *cluster, err error) {
	c := &cluster{cfg: cfg, log: log, secret: make([]byte, deltasync.MinSecret), global: world.NewOracle()}
	_, _ = rand.Read(c.secret) // it never fails: the process ends where there is no randomness
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.nats, err = embedded.Start(embedded.Options{Logger: log}); err != nil {
		return nil, err
	}
	c.closers = append(c.closers, func() error { c.nats.Shutdown(); return nil })
	for _, name := range regionNames[:cfg.Regions] {
		r, err := c.newRegion(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("region %s: %w", name, err)
		}
		c.regions = append(c.regions, r)
	}
	for i, r := range c.regions {
		for k := range cfg.Edges {
			s, err := c.newEdge(r, i*cfg.Edges+k, rules)
			if err != nil {
				return nil, err
			}
			r.edges = append(r.edges, s)
		}
	}
	return c, nil
}

func (c *cluster) newRegion(ctx context.Context, name string) (*region, error) {
	peers := slices.Clone(regionNames[:c.cfg.Regions])
	peers = slices.DeleteFunc(peers, func(p string) bool { return p == name })
	store, err := c.openStore(ctx, name)
	if err != nil {
		return nil, err
	}
	agg, err := regional.New(regional.Config{
		Region: name, Name: "aggregator", Peers: peers, Lanes: lanes,
		Timeout: max(time.Second, 4*c.cfg.Delay), Logger: c.log,
		Rights: memstore.NewRights(time.Time{}, nil), // there was none before: edges live and die with it
	}, store)
	if err != nil {
		return nil, err
	}
	bus, err := c.connect("aggregator "+name, name+".aggregator")
	if err != nil {
		return nil, err
	}
	far := membus.Impair(bus, membus.Faults{Link: c.linkOf(name)})
	c.closers[len(c.closers)-1] = far.Close // it closes bus too
	return &region{name: name, aggregator: agg, bus: far, oracle: world.NewOracle()}, nil
}

// openStore is memory, or a Redis that the regions share under names of their
// own. A Redis that does not answer is said now: the demo was asked to show it.
func (c *cluster) openStore(ctx context.Context, region string) (regional.Store, error) {
	if c.cfg.RedisURL == "" {
		store := memstore.New(memstore.Config{})
		c.closers = append(c.closers, store.Close)
		return store, nil
	}
	cfg, err := redisstore.ParseURL(c.cfg.RedisURL, "sgdemo-"+region)
	if err != nil {
		return nil, fmt.Errorf("--redis-url: %w", err)
	}
	store, err := redisstore.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("--redis-url: %w", err)
	}
	c.closers = append(c.closers, store.Close)
	if _, err := store.Epoch(ctx); err != nil {
		return nil, fmt.Errorf("--redis-url: %w: %w", cli.ErrUnreachable, err)
	}
	return store, nil
}

func (c *cluster) connect(name, inbox string) (deltasync.Bus, error) {
	bus, err := natsbus.Connect(natsbus.Config{InProcess: c.nats.InProcess(), Name: name, InboxPrefix: "_INBOX_" + inbox, Logger: c.log})
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, bus.Close)
	return bus, nil
}

func (c *cluster) newEdge(r *region, nth int, rules rulesText) (*edgeSite, error) {
	name := r.name + "-" + strconv.Itoa(len(r.edges)+1)
	set, err := rules.compile()
	if err != nil {
		return nil, err
	}
	listener, err := c.listen(nth)
	if err != nil {
		return nil, err
	}
	// Serve closes it too; that it is closed already is no fault.
	c.closers = append(c.closers, func() error { _ = listener.Close(); return nil })
	view, err := edge.NewCacheView(viewBytes)
	if err != nil {
		return nil, err
	}
	c.closers = append(c.closers, func() error { view.Close(); return nil })
	node, err := edge.New(edge.Config{
		Region: r.name, Pop: "demo", Name: name, Secret: c.secret, Lanes: lanes, View: view, Logger: c.log,
	})
	if err != nil {
		return nil, err
	}
	if err := node.SetRules(set); err != nil {
		return nil, err
	}
	s := &site{node: node, ns: mainNamespace(set), global: c.global, region: r.oracle, used: map[deltasync.Key]struct{}{}}
	api, err := httpapi.New(s, httpapi.Config{DefaultNamespace: s.ns, TrustedProxies: httpapi.Loopback, Logger: c.log})
	if err != nil {
		return nil, err
	}
	bus, err := c.connect("edge "+name, r.name+".demo."+name)
	if err != nil {
		return nil, err
	}
	far := membus.Impair(bus, membus.Faults{Link: c.linkOf(r.name)})
	c.closers[len(c.closers)-1] = far.Close // it closes bus too
	return &edgeSite{site: s, name: name, url: urlOf(listener.Addr()), api: api, listener: listener, bus: far}, nil
}

// mainNamespace is where traffic, and calls that name no namespace, are
// decided: the only one, or the first by name.
func mainNamespace(set *limit.Set) string { return set.Names()[0] }

// urlOf is where the listener is reached from this machine.
func urlOf(addr net.Addr) string {
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port} // which [::] takes too
	}
	return "http://" + addr.String()
}

// listen takes the nth port.
func (c *cluster) listen(nth int) (net.Listener, error) {
	host, port, err := splitListen(c.cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	if port > 0 {
		port += nth
	}
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	ln, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d is in use (%s); choose another first port with --listen, %d in a row are needed", port, addr, c.cfg.Regions*c.cfg.Edges)
	case err != nil:
		return nil, fmt.Errorf("--listen %s: %w", c.cfg.Listen, err)
	}
	return ln, nil
}

// linkOf is what becomes of the messages of a region's aggregator, and of its edges:
// those to other regions take their time, and a cut swallows them; all others are next door.
func (c *cluster) linkOf(from string) func(subject string) membus.Link {
	return func(subject string) membus.Link {
		to := deltasync.AuditedRegion(subject)
		if s, err := deltasync.ParseUp(subject); err == nil && s.Kind == deltasync.KindRegion {
			to = s.Region
		} else if s, err := deltasync.ParseClaim(subject); err == nil {
			to = s.Region
		} else if granted := deltasync.GrantedRegion(subject); granted != "" {
			to = granted
		}
		if to == "" || to == from {
			return membus.Link{}
		}
		at := time.Since(c.begun)
		cut := slices.ContainsFunc(c.cfg.Cuts, func(x Cut) bool {
			return (x.Region == to || x.Region == from) && x.holds(at)
		})
		return membus.Link{Delay: c.cfg.Delay, Cut: cut}
	}
}

// cuts are the regions that are cut off at the given time of the run.
func (c *cluster) cuts(at time.Duration) (names []string) {
	for _, x := range c.cfg.Cuts {
		if x.holds(at) && !slices.Contains(names, x.Region) {
			names = append(names, x.Region)
		}
	}
	return names
}

// close closes what is open, last in first out.
func (c *cluster) close() error {
	var errs []error
	for _, closer := range slices.Backward(c.closers) {
		errs = append(errs, closer())
	}
	c.closers = nil
	return errors.Join(errs...)
}
