package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

const (
	defaultTimeout       = 30 * time.Second
	defaultClientTimeout = time.Minute
	defaultMaxBody       = 10 << 20
	defaultTTL           = 10 * time.Second
)

// Config is where requests go, and what they may take. Upstream alone is needed.
type Config struct {
	// Upstream is where requests go: http://host:port, https:// (calls of gRPC over
	// HTTP/2, all else over HTTP/1), or h2c:// for HTTP/2 without TLS, as gRPC has it. A path in it is put before
	// that of each request.
	Upstream *url.URL

	// UpstreamHost sends the upstream its own name as Host, and not the one that the
	// client asked for. Default: the client's, which what makes links, or serves several
	// sites, needs; another's API wants its own.
	UpstreamHost bool

	// Namespace has the rules. Default: the API's own, or the only one.
	Namespace string

	// Timeout is how long the upstream may take to accept a connection, to take what it
	// is sent, and, once it has the request, to begin its answer. Default: 30 s.
	Timeout time.Duration

	// ClientTimeout is the longest pause of a client, in sending its body while the
	// upstream waits for it, and in taking the answer. Default: 1 min. Shorter frees sooner
	// what slow clients hold; those on bad lines are cut off.
	ClientTimeout time.Duration

	// MaxBody is the largest body of a request, in bytes. Default (0): 10 MiB. Negative:
	// any.
	MaxBody int64

	// Origins are those whose pages may read what is the edge's own answer, as a denial is.
	// Default: none, and browsers tell a page of another origin than the site's of a network
	// error in its place. Preflights are the upstream's to answer; what a limit denies of
	// them no page can read.
	Origins httpapi.Origins

	// Capacity is the signal for elastic margins. Default: none.
	Capacity CapacityConfig

	// Admitted is asked of each request that may pass, as its turn has come: where it
	// fails the upstream is not asked, and the client gets a 503. Default: it may.
	Admitted func(r *http.Request) error

	// Enter is asked for a place for each request over HTTP/2, with its peer's address, as a
	// connection has many at a time: without one it gets a 503. leave gives the place back,
	// once the answer is taken. Default: there are as many as come.
	Enter func(peer string) (leave func(), ok bool)

	// Certificate is the listener's. Default: it speaks no TLS.
	Certificate *Certificate

	// Logger gets the upstream's faults, once a second, and panics. Default: nowhere.
	Logger *slog.Logger

	// Metrics counts. Default: counted, and not exported.
	Metrics *Metrics

	// Now is the clock of capacity signals. Default: time.Now.
	Now func() time.Time

	sessions tls.ClientSessionCache // of TLS to the upstream
}

// CapacityConfig says how the upstream tells how much of its capacity is in use.
type CapacityConfig struct {
	// Name is the capacity that rules read: "api" for capacity.api. Default: no signal.
	Name string

	// Header is the field of its answers that tells it: 0.7, or 70%. Clients do not see
	// it. Of several within some 0.1 s the highest counts, as several instances may
	// stand behind one address.
	Header string

	// Latency, in place of Header, is the time to the beginning of an answer at which all
	// of the capacity is taken to be in use; half of that is half, by a mean that forgets
	// within seconds. It is for upstreams whose answers all take about as long: a
	// request that is answered late on purpose (long polling) counts as one that had to wait.
	Latency time.Duration

	// TTL is how long what was told is good: after that nothing is known, and elastic
	// margins are closed. Default: 10 s.
	TTL time.Duration
}

// Validate reports every mistake, each by its field.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Upstream == nil {
		bad("Upstream: is missing (such as http://127.0.0.1:9000)")
	} else if err := ValidUpstream(c.Upstream); err != nil {
		bad("Upstream: %w", err)
	}
	if c.Timeout < 0 {
		bad("Timeout: %v is negative (30s is the default)", c.Timeout)
	}
	if c.ClientTimeout < 0 {
		bad("ClientTimeout: %v is negative (1m is the default)", c.ClientTimeout)
	}
	for _, o := range c.Origins {
		if o != "*" && !strings.Contains(o, "://") {
			bad("Origins: %q is none (such as https://app.example)", o)
		}
	}
	s := &c.Capacity
	switch {
	case s.Name == "" && (s.Header != "" || s.Latency != 0):
		bad("Capacity.Name: is missing (api, for rules that read capacity.api)")
	case s.Name == "":
	case s.Header == "" && s.Latency == 0:
		bad("Capacity: neither Header nor Latency is set (one of them tells how much is in use)")
	case s.Header != "" && s.Latency != 0:
		bad("Capacity: Header and Latency are both set (drop one)")
	case limit.ValidSignal(s.Name) != nil:
		bad("Capacity.Name: %w", limit.ValidSignal(s.Name))
	case s.Latency < 0 || s.TTL < 0:
		bad("Capacity: Latency %v, TTL %v: a time is negative", s.Latency, s.TTL)
	}
	return errors.Join(errs...)
}

// ValidUpstream says what is wrong with the URL of an upstream.
func ValidUpstream(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return errors.New("is no URL that starts with http://, https:// or h2c:// (such as http://127.0.0.1:9000)")
	case u.Hostname() == "" || u.Opaque != "":
		return errors.New("has no host (such as http://127.0.0.1:9000)")
	case u.User != nil:
		return errors.New("has a user, who is not sent (leave him out)")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("has a query or a fragment (it is a host, and a path at the most)")
	case u.Path != "" && !strings.HasPrefix(u.Path, "/"):
		return errors.New("has a path without a slash before it")
	}
	return nil
}

// withDefaults is c with what is not set.
func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.ClientTimeout == 0 {
		c.ClientTimeout = defaultClientTimeout
	}
	if c.MaxBody == 0 {
		c.MaxBody = defaultMaxBody
	}
	if c.Capacity.TTL == 0 {
		c.Capacity.TTL = defaultTTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Upstream.Scheme == "https" {
		c.sessions = tls.NewLRUClientSessionCache(0)
	}
	return c
}
