package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/deferred"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limiterapi"
	"github.com/spillgate/spillgate/edge/proxy"
	"github.com/spillgate/spillgate/edge/rlqs"
	"github.com/spillgate/spillgate/edge/rls"
	"github.com/spillgate/spillgate/edge/telling"
	"github.com/spillgate/spillgate/sync/natsbus"
)

func newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run an edge",
		Long: `Run an edge: decide over HTTP and over gRPC (spillgate.v1.Limiter, and Envoy's
rate limit and quota services), and as a reverse proxy (proxy.upstream), publish
counts over NATS, follow the rules: files, or a JetStream bucket (rules.source: kv).

It starts without NATS and says so: it decides from its own counts until the
servers appear. SIGHUP reads the rules again. SIGTERM drains: unready, finish
calls, send what is left, exit.`,
		Example: "  SPILLGATE_SECRET=... edge serve --config configs/edge.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := configs.LoadEdge(cmd.Flags())
			if err != nil {
				return err
			}
			ctx, stop := cli.UntilSignal(cmd.Context())
			defer stop()
			return serve(ctx, settings, cli.Logger(cmd.ErrOrStderr(), settings.Log))
		},
	}
	configs.BindEdgeFlags(cmd.Flags())
	return cmd
}

// serve runs an edge until ctx ends.
//
//	listeners ──► httpapi, rls, rlqs, limiterapi, proxy ──► node ◄── rules
//	                                                         │ ▲
//	                                                   bus ◄─┘ └── bus
//
// Teardown, last in first out: unready, for drain_delay; listeners and calls, rules watcher;
// then the node's last flush; then bus and view.
func serve(ctx context.Context, s *configs.EdgeSettings, log *slog.Logger) (err error) {
	// From the first moment to the last: a SIGHUP that nobody listens for kills,
	// with counts that were not sent yet.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	reg := cli.Registry(cli.Version())
	var bus *natsbus.Bus // who reads rules from it does so once it is there
	rules, err := cli.OpenRules(ctx, s.Rules, s.Region, func() *natsbus.Bus { return bus }, reg, log)
	if err != nil {
		return err
	}
	tenants := limit.NewTenants(func(err error) { log.Warn("tenants", "err", fmt.Sprint(err)) })
	view, err := edge.NewCacheView(s.ViewMaxBytes)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	defer view.Close()
	nodeConfig := nodeConfig(s)
	nodeConfig.View, nodeConfig.Logger, nodeConfig.Registerer, nodeConfig.Tenants = view, log, reg, tenants
	node, err := edge.New(nodeConfig)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	reloads := cli.NewReloads(reg)
	if set := rules.Set(); set != nil {
		if err := node.SetRules(set); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
		cli.TellWarnings(rules.Warnings(), log)
	}
	entries, err := cli.OpenEntries(s.Rules, func() *natsbus.Bus { return bus }, reg, log, map[string]cli.ApplyEntries{
		cli.KindTenant:       cli.ApplyTenants(tenants),
		limit.EntryException: cli.ApplyExceptions(node, log),
		limit.EntryCapacity:  cli.ApplyCapacity(node),
	})
	if err != nil {
		return err
	}
	if s.Rules.Format == configs.FormatEnvoy {
		for _, w := range configs.EnvoyVariables(os.Environ()) {
			log.Warn("rules: what envoyproxy/ratelimit does by its environment is not done here", "variable", w.File, "detail", w.Detail, "hint", w.Hint)
		}
	}
	apiConfig := apiConfig(s)
	apiConfig.Logger, apiConfig.Metrics = log, httpapi.NewMetrics(reg)
	refusals := httpapi.NewRefusals(reg, log)
	apiConfig.Room = httpapi.NewRoom(httpapi.DefaultRoom, refusals)
	apiConfig.Denied, apiConfig.Replayed = deferred.Denied, deferred.Replayed
	var waiting *deferred.Front // nil: nothing waits
	if s.Proxy.Upstream != nil && s.Proxy.Defer.Enabled {
		apiConfig.Waits = func() error { return waiting.Trouble() }
	}
	api, err := httpapi.New(node, apiConfig)
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	envoys := rls.New(api)
	quotas, err := rlqs.New(node, rlqs.Config{Logger: log, Registerer: reg})
	if err != nil {
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	warnNoDefault(api, s.DefaultNamespace, log)
	var upstream *proxy.Proxy
	if s.Proxy.Upstream != nil {
		proxyConfig, err := proxyConfig(&s.Proxy, log)
		if err != nil {
			return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
		}
		proxyConfig.Metrics, proxyConfig.Admitted = proxy.NewMetrics(reg), deferred.Admitted
		proxyConfig.Enter = newPlaces(listenerProxy, s.TrustedProxies, refusals).take // beside those of connections
		if upstream, err = proxy.New(api, node, proxyConfig); err != nil {
			return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
		}
		warnUnreadSignal(rules.Set(), s.Proxy.Capacity.Name, log)
	}
	if upstream != nil && s.Proxy.Defer.Enabled {
		frontConfig := deferredFront(&s.Proxy, s.TrustedProxies, node, log)
		frontConfig.Metrics = deferred.NewMetrics(reg)
		waiting = deferred.NewFront(upstream, frontConfig)
	} else {
		warnNothingWaits(rules.Set(), log)
	}
	bus, err = natsbus.Connect(cli.NATS(s.NATS, "edge "+s.Region+"/"+s.PoP+"/"+s.Name, s.Region+"."+s.PoP+"."+s.Name, log))
	if err != nil { // a server that is away is none
		return fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	defer func() { err = errors.Join(err, bus.Close()) }()
	cli.NATSMetrics(reg, bus.Status)

	private, err := cli.ListenerTLS(s.TLS, "http/1.1", tls.RequireAndVerifyClientCert, log)
	if err != nil {
		return fmt.Errorf("%w: tls: %w", cli.ErrInvalidConfig, err)
	}
	callsPrivate, err := cli.ListenerTLS(s.GRPCTLS, "h2", tls.RequireAndVerifyClientCert, log)
	if err != nil {
		return fmt.Errorf("%w: grpc.tls: %w", cli.ErrInvalidConfig, err)
	}
	var listeners listeners
	data, err := listeners.open(s.Listen)
	if err != nil {
		return err
	}
	admin, err := listeners.open(s.AdminListen)
	if err != nil {
		return err
	}
	var calls net.Listener
	grpcAddress := "off"
	if s.GRPCListen != "" {
		if calls, err = listeners.open(s.GRPCListen); err != nil {
			return err
		}
		grpcAddress = calls.Addr().String()
	}
	var requests net.Listener
	proxyAddress := "off"
	if upstream != nil {
		if requests, err = listeners.open(s.Proxy.Listen); err != nil {
			return err
		}
		proxyAddress = requests.Addr().String()
	}
	log.Info("edge serves", "listen", data.Addr().String(), "grpc", grpcAddress, "proxy", proxyAddress, "admin", admin.Addr().String(),
		"region", s.Region, "pop", s.PoP, "name", s.Name, "rules", written(rules.Set()))

	// The node outlives the listeners: calls under way still count.
	nodes := cli.NewStage(context.WithoutCancel(ctx))
	nodes.Go("sync", func(ctx context.Context) error { return node.Run(ctx, bus) })
	tells := telling.New(telling.Config{
		Region: s.Region, Pop: s.PoP, Name: s.Name, Incarnation: uint64(time.Now().UnixMilli()), Rules: node.Rules, Decided: apiConfig.Metrics.Decided, Seen: node.Seen, Logger: log,
	})
	nodes.Go("telling", func(ctx context.Context) error {
		tells.Run(ctx, bus)
		return nil
	})
	nodes.Go("admin listener", func(ctx context.Context) error {
		return httpapi.NewServer(httpapi.Local(adminHandler(api.Admin(reg), waiting)), httpapi.ServerConfig{DrainTimeout: adminDrain, Logger: log}).Serve(ctx, admin)
	})
	nodes.Go("watch degraded", func(ctx context.Context) error {
		return tellDegraded(ctx, node, nodeConfig.Regions > 0 || nodeConfig.Edges > 0, log)
	})
	draining, unready := context.WithCancel(context.WithoutCancel(ctx))
	defer unready()
	front := cli.NewStage(context.WithoutCancel(ctx)) // ends below
	front.Go("listener", func(ctx context.Context) error {
		return httpapi.NewServer(httpapi.Ends(draining, envoys.HTTP(api.Ready, api)), httpapi.ServerConfig{Unready: func() { api.SetDraining(true) }, Logger: log}).Serve(ctx, encrypted(newPlaces(listenerHTTP, s.TrustedProxies, refusals).bound(data), private))
	})
	if calls != nil {
		front.Go("gRPC listener", func(ctx context.Context) error {
			return serveGRPC(ctx, draining, calls, envoys, quotas, limiterapi.New(api), newCalls(apiConfig.Room, s.TrustedProxies, refusals), callsPrivate)
		})
		front.Go("quotas", func(ctx context.Context) error {
			quotas.Run(ctx)
			return nil
		})
	}
	if upstream != nil {
		before := http.Handler(upstream)
		if waiting != nil {
			before = waiting
			js, err := bus.JetStream(s.Proxy.Defer.Domain)
			if err != nil {
				return errors.Join(fmt.Errorf("%w: proxy.defer: %w", cli.ErrInvalidConfig, err), front.Stop(), nodes.Stop())
			}
			front.Go("deferred requests", func(ctx context.Context) error {
				waiting.Run(ctx, js, deferredConfig(s, log), s.Proxy.Defer.Workers)
				return nil
			})
		}
		front.Go("proxy listener", func(ctx context.Context) error {
			return upstream.Serve(ctx, newPlaces(listenerProxy, s.TrustedProxies, refusals).bound(requests), httpapi.Ends(draining, before))
		})
	}
	front.Go("rules", func(ctx context.Context) error {
		rules.Run(ctx, func(set *limit.Set, warnings []configs.Mistake) error {
			if node.Rules() == nil { // who is judged by them without what he has beside them may be punished for long
				entries.Await(ctx)
			}
			if err := takeOver(node, api, upstream, set, log); err != nil {
				return err
			}
			reloads.OK(set.Written(), log)
			cli.TellWarnings(warnings, log)
			return nil
		}, func(err error) { reloads.Failed(err, log) })
		return nil
	})
	if entries != nil {
		front.Go("entries", func(ctx context.Context) error {
			entries.Run(ctx)
			return nil
		})
		front.Go("tenants", func(ctx context.Context) error { return cli.SweepTenants(ctx, tenants) })
	}
	front.Go("SIGHUP", func(ctx context.Context) error { return cli.ReloadOnHangup(ctx, hangups, rules) })
	select {
	case <-ctx.Done():
		unready()
		api.SetDraining(true)
		if s.DrainDelay > 0 {
			log.Info("edge is to stop: it is not ready, and serves on for drain_delay", "delay", s.DrainDelay)
		}
		delay := time.NewTimer(s.DrainDelay)
		defer delay.Stop()
		select {
		case <-delay.C:
		case <-front.Done():
		case <-nodes.Done():
		}
	case <-front.Done():
	case <-nodes.Done():
	}
	log.Info("edge drains")
	return errors.Join(front.Stop(), nodes.Stop())
}

// takeOver puts changed rules in force, unless all that comes to the reverse proxy would pass.
// upstream is nil where there is none.
func takeOver(node *edge.Node, api *httpapi.API, upstream *proxy.Proxy, set *limit.Set, log *slog.Logger) error {
	if upstream != nil {
		if err := upstream.Fits(set); err != nil {
			return fmt.Errorf("rules: %w", err)
		}
	}
	if api.Serves("") == nil { // what names a namespace is asked about as ever
		if err := api.ServesBy(set, ""); err != nil {
			log.Warn("rules: questions that name no namespace, as proxies ask them, are not limited by these: set default_namespace", "err", err)
		}
	}
	if err := node.SetRules(set); err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	return nil
}

// warnNoDefault tells of a default namespace that has no rules, as one that is misspelt. Where there are none
// at all yet, takeOver does so once they come.
func warnNoDefault(api *httpapi.API, name string, log *slog.Logger) {
	if err := api.Serves(""); name != "" && err != nil {
		log.Warn("rules: questions that name no namespace, as proxies ask them, are not limited: default_namespace has no rules", "err", err)
	}
}

// written is how many rules were written; none where there are none yet.
func written(set *limit.Set) int {
	if set == nil {
		return 0
	}
	return set.Written()
}

// warnUnreadSignal tells that no rule reads what the upstream tells of its capacity.
func warnUnreadSignal(set *limit.Set, name string, log *slog.Logger) {
	if set != nil && name != "" && !slices.ContainsFunc(set.Rules(), func(r *limit.Rule) bool { return r.Elastic != nil && r.Elastic.Signal == name }) {
		log.Warn("no rule reads what the upstream tells of its capacity: it opens nothing", "capacity", name,
			"hint", "margin: {elastic: {up_to: 50%, while: capacity."+name+" < 70%}}")
	}
}

// warnNothingWaits tells of rules by which what they deny may wait, where nobody keeps it.
func warnNothingWaits(set *limit.Set, log *slog.Logger) {
	if set == nil {
		return
	}
	for _, r := range set.Rules() {
		if r.Defer.For > 0 {
			log.Warn("a rule lets what it denies wait, and nothing keeps it: it is denied", "rule", r.Name, "hint", "proxy.upstream, and proxy.defer.enabled: true")
		}
	}
}

// adminHandler is the admin listener's, with what is asked of requests that wait.
func adminHandler(api http.Handler, waiting *deferred.Front) http.Handler {
	if waiting == nil {
		return api
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/admin/v1/deferred", waiting.Admin())
	mux.Handle("/admin/v1/deferred/", waiting.Admin())
	return mux
}

// encrypted is a listener whose connections are, or as it is where private is nil.
func encrypted(l net.Listener, private *tls.Config) net.Listener {
	if private == nil {
		return l
	}
	return tls.NewListener(l, private)
}

// listeners are those opened so far: where one cannot be, all are closed again.
type listeners []net.Listener

func (l *listeners) open(address string) (net.Listener, error) {
	listener, err := httpapi.Listen(address)
	if err != nil {
		for _, open := range *l {
			err = errors.Join(err, open.Close())
		}
		return nil, err
	}
	*l = append(*l, listener)
	return listener, nil
}

// adminDrain is how long the admin listener waits for calls under way, such as a
// profile: no longer than the node takes for its last counts.
const adminDrain = 2 * time.Second

// tellDegraded logs when the edge begins to decide on less than it should, and
// when that ends; and what follows where it starts cut off and does not expect others.
func tellDegraded(ctx context.Context, node *edge.Node, expects bool, log *slog.Logger) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			reason := node.Degraded(now)
			if reason == last {
				continue
			}
			last = reason
			if reason == "" {
				log.Info("in step with the region")
			} else {
				log.Warn("degraded: deciding from own counts and what was last heard", "reason", reason)
			}
			if reason == "sync" && !expects && node.Stats(now).ViewAge < 0 && shares(node.Rules()) {
				log.Warn("started cut off: this edge knows of no others, and admits all of each adaptive limit until its region answers; " +
					"with cluster.regions and cluster.edges in its settings it keeps to its part")
			}
		}
	}
}

// shares says that some limit is shared, and is to stay so while the edge is cut off.
func shares(set *limit.Set) bool {
	return set != nil && slices.ContainsFunc(set.Rules(), func(r *limit.Rule) bool {
		return slices.ContainsFunc(r.Rates, func(rate *limit.Rate) bool {
			return rate.OnPartition == limit.PartitionShare && rate.Scope != limit.ScopeEdge
		})
	})
}
