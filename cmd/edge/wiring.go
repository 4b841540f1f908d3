package main

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/deferred"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/proxy"
)

// nodeConfig is what the settings say of the node; what it runs on is serve's.
func nodeConfig(s *configs.EdgeSettings) edge.Config {
	return edge.Config{
		Region: s.Region, Pop: s.PoP, Name: s.Name, Secret: s.Secret, Lanes: s.Lanes, MaxKeys: s.MaxKeys, MaxBytes: s.MaxBytes,
		Regions: s.ClusterRegions, Edges: s.ClusterEdges,
		Interval: s.Sync.Interval, Urgent: s.Sync.UrgentInterval, Timeout: s.Sync.Timeout, Budget: s.Sync.Budget,
	}
}

// apiConfig is what the settings say of the HTTP surface.
func apiConfig(s *configs.EdgeSettings) httpapi.Config {
	return httpapi.Config{TrustedProxies: s.TrustedProxies, DefaultNamespace: s.DefaultNamespace}
}

// proxyConfig is what the settings say of the reverse proxy.
func proxyConfig(s *configs.ProxySettings, log *slog.Logger) (cfg proxy.Config, err error) {
	if s.TLS.Cert != "" {
		if cfg.Certificate, err = proxy.LoadCertificate(s.TLS.Cert, s.TLS.Key, log); err != nil {
			return cfg, fmt.Errorf("proxy.tls: %w", err)
		}
	}
	return proxy.Config{
		Certificate: cfg.Certificate, Logger: log,
		Upstream: s.Upstream, UpstreamHost: s.Host == "upstream",
		Timeout: s.Timeout, ClientTimeout: s.ClientTimeout, MaxBody: s.MaxBody, Origins: s.Origins, Capacity: proxy.CapacityConfig(s.Capacity),
	}, nil
}

// deferredConfig is what the settings say of requests that wait.
func deferredConfig(s *configs.EdgeSettings, log *slog.Logger) deferred.Config {
	d := &s.Proxy.Defer
	c := deferred.Config{Region: s.Region, Secret: s.Secret, PerTenant: d.PerKey, Bytes: d.MaxBytes, Replicas: d.Replicas, Tries: d.Tries, Longest: limit.LongestDefer, Command: applyCommand(s), Logger: log}
	if s.Proxy.Upstream != nil { // who only makes the queue has none
		c.Upstream = s.Proxy.Upstream.String()
	}
	return c
}

// applyCommand has the queue be as the settings say, wherever they come from.
func applyCommand(s *configs.EdgeSettings) string {
	command := deferred.DefaultCommand
	if s.File != "" {
		command += " --config " + shellWord(s.File)
	}
	for _, e := range s.Effective() {
		if e.From != configs.FromFlag && e.From != configs.FromEnv {
			continue
		}
		switch e.Key {
		case "region", "proxy.defer.domain", "proxy.defer.replicas", "proxy.defer.per_key", "proxy.defer.max_bytes":
			command += " " + shellWord(e.Flag())
		}
	}
	return command
}

// shellWord is a word as a shell reads it: in quotes where it has anything that a shell has a
// meaning for.
func shellWord(word string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./@%"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// deferredFront is what the settings say of what is kept of them, and of how they are done:
// the upstream may take as long as of others to accept a connection, to take the request and
// to begin its answer, each; and none is done while it says that all its capacity is in use.
func deferredFront(s *configs.ProxySettings, trusted httpapi.Proxies, node *edge.Node, log *slog.Logger) deferred.FrontConfig {
	c := deferred.FrontConfig{TrustedProxies: trusted, Origins: s.Origins, ClientTimeout: s.ClientTimeout, Timeout: 3 * s.Timeout, Logger: log}
	if name := s.Capacity.Name; name != "" {
		c.Room = func() bool {
			used, _, known := node.Capacity(time.Now(), name)
			return !known || used < 1
		}
	}
	return c
}
