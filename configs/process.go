package configs

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/sync"
)

// minSecret is the least length of the cluster secret, in bytes: that of the
// SipHash key that it becomes.
const minSecret = 16

// EdgeSettings is what `edge serve` is told.
type EdgeSettings struct {
	Listen           string        // HTTP, for everybody
	TLS              ListenTLS     // of that
	GRPCListen       string        // our limiter, Envoy's rate limit and quota services; "": none
	GRPCTLS          ListenTLS     // of that
	AdminListen      string        // health and metrics; loopback or a unix socket only
	DrainDelay       time.Duration // how long it serves on once it is told to stop, unready
	Region, PoP      string
	Name             string // unique in the PoP
	Rules            RulesSettings
	DefaultNamespace string // of requests that name none; "": the only one there is
	TrustedProxies   []netip.Prefix
	Secret           []byte // the cluster's; the same on every edge
	Lanes            int    // the same on every edge and aggregator
	ClusterRegions   int    // that there are, for who has not heard of others yet; 0: it takes itself to be alone
	ClusterEdges     int    // of each of them, likewise
	MaxKeys          int    // 0: 1,000,000, or what MaxBytes holds
	MaxBytes         int64  // of keys, what waits to be sent, and what is known of keys that were forgotten; 0: MaxKeys alone bounds it
	ViewMaxBytes     int64
	Proxy            ProxySettings
	NATS             NATSSettings
	Sync             SyncSettings
	Log              LogSettings
	File             string // that they stand in; "": none

	effective []Effective
}

// AggregatorSettings is what `aggregator serve` is told.
type AggregatorSettings struct {
	Admin     AdminSettings
	Region    string
	Name      string        // unique in the region
	Peers     []string      // the other regions
	Redis     RedisSettings // not set: counts live in memory alone
	RedisLong RedisSettings // of windows of more than 10 minutes; not set: Redis has them too
	Lanes     int
	Targets   string        // whom a key's counts are told: auto | mesh | homes
	Rules     RulesSettings // those of the edges; not set: the truth of limits is not told
	Secret    []byte        // the cluster's, as edges have it; nil: keys cannot be named by what they are made of
	MaxBytes  int64         // of keys, and of what waits to be told to other regions
	NATS      NATSSettings
	Sync      SyncSettings
	Log       LogSettings

	effective []Effective
}

// NATSSettings is how to reach and enter the NATS servers.
type NATSSettings struct {
	URLs                   []string
	Creds                  string // file with a JWT and its key
	NKey                   string // file with a seed
	TLSCA, TLSCert, TLSKey string // files
}

// SyncSettings is the pace of the exchange.
type SyncSettings struct {
	Interval       time.Duration // between flushes of changed keys
	UrgentInterval time.Duration // the least time between flushes of keys near their limit
	Timeout        time.Duration // a frame without a reply is sent again
	Budget         int64         // bytes a second, replies included: of an edge, or of a link to another region
}

// LogSettings is what is logged, and how.
type LogSettings struct {
	Level  slog.Level
	Format string // text | json
}

// Effective is every setting with where it came from, secrets masked.
func (s *EdgeSettings) Effective() []Effective { return s.effective }

// Effective is every setting with where it came from, secrets masked.
func (s *AggregatorSettings) Effective() []Effective { return s.effective }

// BindEdgeFlags defines a flag for each of the edge's settings, and --config.
func BindEdgeFlags(fs *pflag.FlagSet) {
	bindFlags(fs, edgeTable(&EdgeSettings{}, new(secretFrom)), "edge")
}

// BindAggregatorFlags defines a flag for each of the aggregator's settings,
// and --config.
func BindAggregatorFlags(fs *pflag.FlagSet) {
	bindFlags(fs, aggregatorTable(&AggregatorSettings{}, &secretFrom{}), "aggregator")
}

// LoadEdge reads the edge's settings from flags bound with BindEdgeFlags, the
// environment and the file. What is wrong with them is one *SettingsError.
func LoadEdge(flags *pflag.FlagSet) (*EdgeSettings, error) {
	s, secret := &EdgeSettings{}, &secretFrom{}
	l, err := s.load(flags, edgeTable(s, secret))
	if err != nil {
		return nil, err
	}
	s.Secret = secret.read(l)
	s.TLS.check(l, "tls")
	if s.GRPCTLS.check(l, "grpc.tls") && s.GRPCTLS.Set() && s.GRPCListen == "" {
		l.mistake("grpc.tls.cert", "E203", "drop it", "grpc.listen is off")
	}
	s.Rules.check(l, true)
	s.Proxy.check(l, s.Rules.Format)
	s.Sync.check(l)
	return s, l.err()
}

// LoadDeferred is LoadEdge of who makes the queue of deferred requests that edges with these
// settings share: it needs no secret, rules or upstream.
func LoadDeferred(flags *pflag.FlagSet) (*EdgeSettings, error) {
	s := &EdgeSettings{}
	l, err := s.load(flags, edgeTable(s, &secretFrom{}))
	if err != nil {
		return nil, err
	}
	return s, l.err()
}

func (s *EdgeSettings) load(flags *pflag.FlagSet, table []setting) (*loader, error) {
	l, err := load(flags, table)
	if err != nil {
		return nil, err
	}
	if s.PoP == "" {
		s.PoP = s.Region
		l.show("pop", s.PoP)
	}
	s.NATS.check(l)
	s.effective, s.File = l.effective, l.file
	return l, nil
}

// LoadAggregator reads the aggregator's settings from flags bound with
// BindAggregatorFlags, the environment and the file. What is wrong with them
// is one *SettingsError.
func LoadAggregator(flags *pflag.FlagSet) (*AggregatorSettings, error) {
	s := &AggregatorSettings{}
	secret := &secretFrom{}
	l, err := load(flags, aggregatorTable(s, secret))
	if err != nil {
		return nil, err
	}
	for _, p := range s.Peers {
		if p == s.Region && p != "" {
			l.mistake("peers", "E203", "name the other regions only", "%q is this region", p)
		}
	}
	if secret.value != "" || secret.file != "" {
		s.Secret = secret.read(l)
	}
	s.Admin.check(l)
	s.Rules.check(l, false)
	s.Redis.check(l, "redis")
	s.RedisLong.check(l, "redis.long")
	if s.RedisLong.Set() && !s.Redis.Set() {
		key := "redis.long.url"
		if s.RedisLong.URL == "" {
			key = "redis.long.addrs"
		}
		l.mistake(key, "E203", "all windows can live in one: then it is redis.url or redis.addrs", "there is no Redis for windows of up to 10 minutes")
	}
	s.NATS.check(l)
	s.Sync.check(l)
	s.effective = l.effective
	return s, l.err()
}

// LoadOperator is LoadAggregator of who writes the rules that aggregators with these settings
// read: it needs no name.
func LoadOperator(flags *pflag.FlagSet) (*AggregatorSettings, error) {
	s := &AggregatorSettings{}
	table := aggregatorTable(s, &secretFrom{})
	for i := range table {
		switch table[i].key {
		case "region":
			table[i].parse = asToken(&s.Region, false)
		case "name":
			table[i].parse = asToken(&s.Name, false)
		}
	}
	l, err := load(flags, table)
	if err != nil {
		return nil, err
	}
	s.NATS.check(l)
	return s, l.err()
}

func edgeTable(s *EdgeSettings, secret *secretFrom) []setting {
	return append([]setting{
		{key: "listen", fallback: ":8080", usage: "`address` of the HTTP listener; as all of them, it may be unix:/path", parse: asListen(&s.Listen)},
		{key: "grpc.listen", fallback: ":8081", usage: "`address` of the gRPC listener, for spillgate.v1.Limiter and Envoy's rate limit and quota services; off: none", parse: orOff(&s.GRPCListen, asListen)},
		{key: "admin.listen", fallback: "127.0.0.1:6070", usage: "`address` of the admin listener, loopback or unix:/path only", parse: asLoopback(&s.AdminListen)},
		{key: "drain_delay", fallback: "0s", usage: "time for which an edge that is told to stop serves on and says that it is not ready, so that load balancers send it nothing more", parse: asDuration(&s.DrainDelay, 0, 10*time.Minute)},
		{key: "region", usage: "`name` of this edge's region", parse: asToken(&s.Region, true)},
		{key: "pop", usage: "`name` of this edge's PoP; the region's where none is given", parse: asToken(&s.PoP, false)},
		{key: "name", fallback: hostToken(), usage: "`name` of this edge, unique in its PoP", parse: asToken(&s.Name, true)},
		{key: "default_namespace", usage: "`namespace` of requests that name none", parse: asText(&s.DefaultNamespace)},
		{key: "trusted_proxies", fallback: "127.0.0.0/8,::1/128", usage: "`networks` whose X-Forwarded headers are believed, separated by commas", list: true, parse: asPrefixes(&s.TrustedProxies)},
		{key: "secret", usage: "the cluster's secret, 16 bytes or more; better in the environment, or a secret_file", secret: true, parse: asText(&secret.value)},
		{key: "secret_file", usage: "`file` that holds the cluster's secret", path: true, parse: asText(&secret.file)},
		{key: "cluster.regions", usage: "regions that there are: by them an edge that starts cut off keeps to its part of adaptive limits, until it is told (default: it takes itself to be alone)", parse: ifSet(asInt(&s.ClusterRegions, 1, 1<<16))},
		{key: "cluster.edges", usage: "edges of each region, likewise", parse: ifSet(asInt(&s.ClusterEdges, 1, 1<<20))},
		{key: "max_keys", usage: "most keys counted in memory (default 1000000, or what max_bytes holds)", parse: ifSet(asInt(&s.MaxKeys, 8192, 1<<31-1))},
		{key: "max_bytes", usage: "most memory for keys, under a flood of them too (default: max_keys alone bounds it); GOMEMLIMIT should be a quarter more, and view.max_bytes", parse: ifSet(asSize(&s.MaxBytes, 8<<20))},
		{key: "view.max_bytes", fallback: "64MiB", usage: "memory for what others counted of keys not live here", parse: asSize(&s.ViewMaxBytes, 1<<20)},
	}, slices.Concat(
		s.TLS.table("tls", "listen", "without which nobody is served"), s.GRPCTLS.table("grpc.tls", "grpc.listen", "without which nobody is served"),
		s.Rules.table("rules `file`, or directory of *.yaml"), s.Proxy.table(), sharedTable(&s.Lanes, &s.NATS, &s.Sync, "250ms", &s.Log),
	)...)
}

func aggregatorTable(s *AggregatorSettings, secret *secretFrom) []setting {
	return append(s.Admin.table(), append([]setting{
		{key: "region", usage: "`name` of this aggregator's region", parse: asToken(&s.Region, true)},
		{key: "name", fallback: hostToken(), usage: "`name` of this aggregator, unique in its region", parse: asToken(&s.Name, true)},
		{key: "peers", usage: "the other `regions`, separated by commas", list: true, parse: asTokens(&s.Peers)},
		{key: "sync.targets", fallback: "auto", usage: "whom a key's counts are told: mesh (all regions), homes (two of them, where the others ask), or auto (homes above 8 regions); the same everywhere", parse: asWord(&s.Targets, "auto", "mesh", "homes")},
		{key: "secret", usage: "the cluster's secret, as edges have it, by which operators may name keys as they are (aggregator keys); better in the environment, or a secret_file (default: keys are known by their names alone)", secret: true, parse: asText(&secret.value)},
		{key: "secret_file", usage: "`file` that holds the cluster's secret", path: true, parse: asText(&secret.file)},
		{key: "max_bytes", fallback: "512MiB", usage: "most memory for keys and for what waits to be told to other regions, under a flood of keys too; GOMEMLIMIT should be a third more", parse: asSize(&s.MaxBytes, 32<<20)},
	}, slices.Concat(
		s.Rules.table("rules `file` of the edges, or directory of *.yaml; without rules nothing is told of what limits admitted in truth"),
		s.Redis.table("redis", "without it, or redis.addrs, counts live in memory alone"),
		s.RedisLong.table("redis.long", "without it, or redis.long.addrs, windows of more than 10 minutes live with the others"),
		sharedTable(&s.Lanes, &s.NATS, &s.Sync, "1s", &s.Log), // regions are further away
	)...)...)
}

func sharedTable(lanes *int, n *NATSSettings, s *SyncSettings, timeout string, l *LogSettings) []setting {
	return []setting{
		{key: "lanes", fallback: "8", usage: "lanes of the key space; the same on every edge and aggregator", parse: asInt(lanes, 1, 64)},
		{key: "nats.urls", fallback: "nats://127.0.0.1:4222", usage: "NATS `URLs`, separated by commas", list: true, mask: maskURLs, parse: asURLs(&n.URLs, "nats", "tls", "ws", "wss")},
		{key: "nats.creds", usage: "`file` with NATS credentials", path: true, parse: asText(&n.Creds)},
		{key: "nats.nkey", usage: "`file` with an NKey seed", path: true, parse: asText(&n.NKey)},
		{key: "nats.tls.ca", usage: "`file` with the certificates that sign NATS servers'", path: true, parse: asText(&n.TLSCA)},
		{key: "nats.tls.cert", usage: "`file` with this client's certificate", path: true, parse: asText(&n.TLSCert)},
		{key: "nats.tls.key", usage: "`file` with this client's key", path: true, parse: asText(&n.TLSKey)},
		{key: "sync.interval", fallback: "100ms", usage: "time between flushes of changed keys", parse: asDuration(&s.Interval, 10*time.Millisecond, time.Minute)},
		{key: "sync.urgent_interval", fallback: "20ms", usage: "least time between flushes of keys near their limit", parse: asDuration(&s.UrgentInterval, time.Millisecond, time.Minute)},
		{key: "sync.timeout", fallback: timeout, usage: "time after which a frame without a reply is sent again", parse: asDuration(&s.Timeout, 10*time.Millisecond, time.Minute)},
		{key: "sync.budget", fallback: "16MiB", usage: "most bytes a second, replies included and pushes not, such as 200kB/s: of an edge, or of an aggregator to each other region", parse: asPace(&s.Budget, 4<<10)},
		{key: "log.level", fallback: "info", usage: "debug, info, warn or error", parse: asLevel(&l.Level)},
		{key: "log.format", fallback: "text", usage: "text or json", parse: asWord(&l.Format, "text", "json")},
	}
}

// ifSet leaves alone what is not set.
func ifSet(parse parseFunc) parseFunc {
	return func(value string) error {
		if value == "" {
			return nil
		}
		return parse(value)
	}
}

func (n *NATSSettings) check(l *loader) {
	if n.Creds != "" && n.NKey != "" {
		l.mistake("nats.nkey", "E203", "one of the two", "nats.creds is set too")
	}
	if (n.TLSCert == "") != (n.TLSKey == "") {
		key, other := "nats.tls.cert", "nats.tls.key"
		if n.TLSCert == "" {
			key, other = other, key
		}
		l.mistake(key, "E203", "a client certificate is both", "%s is not set", other)
	}
}

func (s *SyncSettings) check(l *loader) {
	if s.UrgentInterval > s.Interval && s.Interval > 0 {
		l.mistake("sync.urgent_interval", "E203", "make it shorter, or the interval longer", "%v is longer than sync.interval, %v", s.UrgentInterval, s.Interval)
	}
}

// secretFrom is the two ways to give the cluster's secret.
type secretFrom struct{ value, file string }

func (s *secretFrom) read(l *loader) []byte {
	const hint = "make one with: openssl rand -hex 32"
	secret, key := []byte(s.value), "secret"
	switch {
	case s.value != "" && s.file != "":
		l.mistake("secret_file", "E203", "one of the two", "secret is set too")
		return nil
	case s.file != "":
		text, err := readFile(s.file)
		if err != nil {
			l.mistake("secret_file", "E203", hint, "%v", err)
			return nil
		}
		secret, key = bytes.TrimRight(text, "\r\n"), "secret_file"
	case s.value == "":
		l.mistake(key, "E203", "set SPILLGATE_SECRET or secret_file; "+hint, "is missing")
		return nil
	}
	if len(secret) < minSecret {
		l.mistake(key, "E203", hint, "%d bytes; at least %d", len(secret), minSecret)
	}
	return secret
}

// hostToken is this machine's name, as a token of subjects.
func hostToken() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return tokenOf(host)
}

// tokenOf makes a token of a host's name; "" where nothing of it can stay. Of
// a long one the end stays: that is where pods and instances differ.
func tokenOf(host string) string {
	host, _, _ = strings.Cut(host, ".")
	token := strings.Map(func(r rune) rune {
		if r = unicode.ToLower(r); deltasync.ValidToken(string(r)) == nil {
			return r
		}
		return '-'
	}, host)
	return strings.Trim(token[max(0, len(token)-deltasync.MaxToken):], "-")
}
