package configs

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// ProxySettings is how the edge stands in front of an upstream.
type ProxySettings struct {
	Listen        string
	TLS           ProxyTLS
	Upstream      *url.URL      // nil: no proxy
	Host          string        // that is sent to it: client | upstream
	Timeout       time.Duration // of the upstream, until it begins to answer
	ClientTimeout time.Duration // of a client's pauses
	MaxBody       int64         // negative: any
	Origins       []string      // whose pages may read what is the edge's own answer
	Capacity      ProxyCapacity
	Defer         ProxyDefer
}

// ProxyTLS is the listener's certificate; without it there is no TLS.
type ProxyTLS struct{ Cert, Key string } // files

// ProxyDefer is how what rules let wait is kept.
type ProxyDefer struct {
	Enabled  bool
	Domain   string // of JetStream; "": the servers' own
	Replicas int
	PerKey   int // requests of a key
	MaxBytes int64
	Tries    int
	Workers  int
}

// ProxyCapacity is how the upstream tells what part of its capacity is in use.
type ProxyCapacity struct {
	Name    string // as rules read it; "": it does not
	Header  string
	Latency time.Duration
	TTL     time.Duration
}

func (p *ProxySettings) table() []setting {
	c, d := &p.Capacity, &p.Defer
	return []setting{
		{key: "proxy.upstream", usage: "`URL` that requests to proxy.listen go to, which may pass: http://, https:// (calls of gRPC over HTTP/2, all else over HTTP/1) or h2c:// (all over HTTP/2) (default: there is no proxy)", parse: ifSet(asUpstream(&p.Upstream))},
		{key: "proxy.listen", fallback: ":8082", usage: "`address` of the reverse proxy's listener", parse: asListen(&p.Listen)},
		{key: "proxy.tls.cert", usage: "`file` with the certificate of proxy.listen, and of those that signed it (default: no TLS)", path: true, parse: asText(&p.TLS.Cert)},
		{key: "proxy.tls.key", usage: "`file` with its key", path: true, parse: asText(&p.TLS.Key)},
		{key: "proxy.host", fallback: "client", usage: "Host that the upstream is sent: the client's, or the upstream's own; client or upstream", parse: asWord(&p.Host, "client", "upstream")},
		{key: "proxy.timeout", fallback: "30s", usage: "time that the upstream may take to accept a connection, and to begin its answer", parse: asDuration(&p.Timeout, 10*time.Millisecond, time.Hour)},
		{key: "proxy.client_timeout", fallback: "1m", usage: "longest pause of a client in sending its body while it is waited for, or in taking the answer", parse: asDuration(&p.ClientTimeout, time.Second, time.Hour)},
		{key: "proxy.max_body", fallback: "10MiB", usage: "largest body of a request; off: any", parse: asMost(&p.MaxBody)},
		{key: "proxy.origins", usage: "`origins` whose pages may read the edge's own answers, as denials (CORS), separated by commas: https://app.example, or * for all (default: what is the site's own)", list: true, parse: asOrigins(&p.Origins)},
		{key: "proxy.capacity.name", usage: "`name` of the capacity that the upstream tells of, for elastic margins: api for capacity.api", parse: ifSet(asSignal(&c.Name))},
		{key: "proxy.capacity.header", usage: "`field` of the upstream's answers with the part that is in use, 0.7 or 70%", parse: ifSet(asField(&c.Header))},
		{key: "proxy.capacity.latency", usage: "or the time to the beginning of an answer at which all is in use", parse: ifSet(asDuration(&c.Latency, time.Millisecond, time.Hour))},
		{key: "proxy.defer.enabled", fallback: "false", usage: "true: what rules deny and let wait (on_limit: {defer: ...}) is kept in JetStream, and done later", parse: asBool(&d.Enabled)},
		{key: "proxy.defer.domain", usage: "`name` of JetStream's domain, as of a leaf node in the region (default: the servers' own)", parse: asToken(&d.Domain, false)},
		{key: "proxy.defer.replicas", fallback: "1", usage: "servers that it is kept on; 1, 3 or 5", parse: asReplicas(&d.Replicas)},
		{key: "proxy.defer.per_key", fallback: "1000", usage: "requests of one key of a rule that wait at once", parse: asInt(&d.PerKey, 1, 1_000_000)},
		{key: "proxy.defer.max_bytes", fallback: "1GiB", usage: "what all that wait may take", parse: asSize(&d.MaxBytes, 1<<20)},
		{key: "proxy.defer.tries", fallback: "5", usage: "times that a request is sent to an upstream that fails, until it is a dead letter", parse: asInt(&d.Tries, 1, 100)},
		{key: "proxy.defer.workers", fallback: "16", usage: "requests that this edge does at once of those that waited", parse: asInt(&d.Workers, 1, 1000)},
		{key: "proxy.capacity.ttl", fallback: "10s", usage: "time that what was told is good for", parse: asDuration(&c.TTL, time.Second, time.Hour)},
	}
}

// check lists what is wrong with the settings together.
func (p *ProxySettings) check(l *loader, format Format) {
	c := &p.Capacity
	if p.Upstream == nil {
		for _, s := range p.table() {
			if s.key != "proxy.upstream" && l.values["proxy.upstream"] == "" && l.origins[s.key] != FromDefault {
				l.mistake(s.key, "E203", "set proxy.upstream, or drop this", "there is no proxy without proxy.upstream")
			}
		}
		return
	}
	if format == FormatEnvoy {
		l.mistake("proxy.upstream", "E203", "rules.format: spillgate, with what `edge import envoy` writes", "rules in envoy's format limit no requests of a proxy: all would pass")
	}
	if leadsBack(p.Upstream, p.Listen) {
		l.mistake("proxy.upstream", "E203", "name the upstream's own address", "this is proxy.listen: each request would come back without end")
	}
	if (p.TLS.Cert == "") != (p.TLS.Key == "") {
		key, other := "proxy.tls.cert", "proxy.tls.key"
		if p.TLS.Cert == "" {
			key, other = other, key
		}
		l.mistake(key, "E203", "set both, or drop it", "%s is not set", other)
	}
	told := c.Header != "" || c.Latency != 0
	switch {
	case c.Header != "" && c.Latency != 0:
		l.mistake("proxy.capacity.latency", "E203", "drop one", "proxy.capacity.header is set too")
	case c.Name == "" && told && l.values["proxy.capacity.name"] == "":
		l.mistake("proxy.capacity.name", "E203", "api, for rules that read capacity.api", "is missing")
	case c.Name != "" && !told && l.values["proxy.capacity.header"] == "" && l.values["proxy.capacity.latency"] == "":
		l.mistake("proxy.capacity.name", "E203", "set proxy.capacity.header, or latency", "nothing says how much of it is in use")
	}
}

// leadsBack says that an upstream is a listener of this process.
func leadsBack(u *url.URL, listen string) bool {
	host, port, err := net.SplitHostPort(listen)
	toPort := cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
	if err != nil || port == "0" || toPort != port {
		return false
	}
	to, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && (to.IsLoopback() || to.IsUnspecified())
	at, err := netip.ParseAddr(host)
	everywhere := host == "" || err == nil && at.IsUnspecified()
	return strings.EqualFold(host, u.Hostname()) || local && (everywhere || host == "localhost")
}

// asUpstream reads where a proxy's requests go. It names no part of a URL that may hold
// a password.
func asUpstream(dst **url.URL) parseFunc {
	return func(value string) error {
		const such = "such as http://127.0.0.1:9000"
		u, err := url.Parse(value)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
			return errors.New("not a URL that starts with http://, https:// or h2c://; " + such)
		case u.Hostname() == "" || u.Opaque != "":
			return errors.New("the URL has no host; " + such)
		case u.Host == "unix:":
			return errors.New("an upstream is reached over TCP, not over a unix socket; " + such)
		case !isPort(u.Port()):
			return errors.New("the URL's port is not 1 to 65535; " + such)
		case u.User != nil:
			return errors.New("the URL has a user, who would not be sent; leave him out")
		case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
			return errors.New("the URL has a query or a fragment; it is a host, and a path at the most")
		}
		*dst = u
		return nil
	}
}

// isPort says that a URL's port is one, or that it has none.
func isPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// asOrigins reads whose pages may read something, as browsers write it in Origin.
func asOrigins(dst *[]string) parseFunc {
	return func(value string) error {
		*dst = splitList(value)
		for i, o := range *dst {
			u, err := url.Parse(o)
			switch {
			case o == "*" && len(*dst) > 1:
				return errors.New("* is every origin; drop the others, or it")
			case o == "*":
				continue
			case err != nil || u.Scheme == "" || u.Host == "" || !isPort(u.Port()) || strings.HasSuffix(u.Host, ":") || strings.Contains(u.Host, "*"):
				return fmt.Errorf("%q is no origin; such as https://app.example, one for each, or * for all", clip(o))
			case strings.ContainsFunc(o, func(r rune) bool { return r > 127 }):
				return fmt.Errorf("%q has letters that browsers write otherwise; as https://xn--bcher-kva.example for bücher", clip(o))
			case strings.ToLower(o) != strings.ToLower(u.Scheme)+"://"+strings.ToLower(u.Host):
				return fmt.Errorf("%q is more than an origin, which browsers write as %s", clip(o), clip(u.Scheme+"://"+u.Host))
			case u.Port() != "" && map[string]string{"http": "80", "https": "443"}[u.Scheme] == u.Port():
				return fmt.Errorf("%q names its scheme's own port, which browsers leave out; %s://%s", clip(o), u.Scheme, u.Hostname())
			}
			(*dst)[i] = strings.ToLower(o)
		}
		return nil
	}
}

// asReplicas reads how many servers of JetStream's keep something: an odd number, as of an even one no
// more may fail than of one less.
func asReplicas(dst *int) parseFunc {
	return func(value string) error {
		if err := asInt(dst, 1, 5)(value); err != nil {
			return err
		}
		if *dst%2 == 0 {
			return fmt.Errorf("%d is even, by which not one more may fail than of %d; 1, 3 or 5", *dst, *dst-1)
		}
		return nil
	}
}

// asMost reads a size of which there may be any: off is -1.
func asMost(dst *int64) parseFunc {
	return func(value string) error {
		if *dst = -1; value == off {
			return nil
		}
		return asSize(dst, 1)(value)
	}
}

func asSignal(dst *string) parseFunc {
	return func(value string) error {
		*dst = value
		return limit.ValidSignal(value)
	}
}

// asField reads the name of a header field.
func asField(dst *string) parseFunc {
	return func(value string) error {
		*dst = value
		for _, r := range value {
			if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
				return fmt.Errorf("%q is no name of a field; such as X-Capacity-Used", clip(value))
			}
		}
		return nil
	}
}
