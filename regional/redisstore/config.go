package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// DefaultTimeout is Timeout where the Config says none.
	DefaultTimeout = 200 * time.Millisecond
)

// Config says which Redis to use.
type Config struct {
	// Addrs are host:port. One is a single server, or, with Cluster, a seed of a
	// cluster; several are seeds of a cluster, or, with MasterName, the sentinels.
	Addrs []string
	// Cluster says that Addrs are seeds of a cluster, be it only one: a name that
	// stands for all nodes.
	Cluster bool
	// MasterName is the name under which sentinels know the master.
	// SentinelUsername and SentinelPassword are those of the sentinels.
	MasterName                         string
	SentinelUsername, SentinelPassword string
	// Username and Password are those of Redis; empty: none are sent. PasswordNow, if set, tells
	// the password instead, for each connection, as it may be replaced.
	Username, Password string
	PasswordNow        func() (string, error)
	// DB is the number of the database; a cluster has only 0.
	DB int
	// TLS, if set, is how connections are encrypted. RootsNow, if set, tells who signs Redis's
	// certificates, for each connection.
	TLS      *tls.Config
	RootsNow func() *x509.CertPool
	// Prefix begins every name and must be the region's own ("sg-eu"): two
	// regions that share a Redis under one prefix would each take the other's
	// edges for their own, and count them again as the other's subtotal.
	// Braces are not allowed: they mark the hash tag.
	Prefix string
	// Timeout bounds dialling, each write and each wait for an answer; 0:
	// DefaultTimeout. There is one retry, so a call that meets a frozen server
	// returns after about twice as long. Nothing waits for it but the
	// write-through of counts.
	Timeout time.Duration
	// Now is the clock that says which slices are late or early, an aggregator's with
	// what others correct of it; nil: time.Now.
	Now func() time.Time
}

// Validate returns every mistake, each by the path of its field.
func (c *Config) Validate() error {
	var errs []error
	if len(c.Addrs) == 0 {
		errs = append(errs, errors.New("addrs: none; name at least one host:port"))
	}
	for i, a := range c.Addrs {
		if _, port, err := net.SplitHostPort(a); err != nil || !isPort(port) {
			errs = append(errs, fmt.Errorf("addrs[%d]: %q is not host:port", i, a))
		}
	}
	if c.DB < 0 {
		errs = append(errs, fmt.Errorf("db: %d is below 0", c.DB))
	}
	if c.Cluster && c.MasterName != "" {
		errs = append(errs, fmt.Errorf("master_name: %q, but a cluster has no sentinels", c.MasterName))
	}
	if c.DB > 0 && c.clustered() {
		errs = append(errs, fmt.Errorf("db: %d, but a cluster (several addrs and no master_name) has only 0", c.DB))
	}
	if c.Prefix == "" {
		errs = append(errs, errors.New("prefix: none; it must be the region's own, such as sg-eu"))
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("prefix: %q has a brace; those mark the hash tag", c.Prefix))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout: %v is below 0", c.Timeout))
	}
	return errors.Join(errs...)
}

func (c *Config) clustered() bool {
	return c.MasterName == "" && (c.Cluster || len(c.Addrs) > 1)
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// ParseURL reads redis://[user[:password]@]host[:port][/db], or rediss:// for
// TLS, for a store whose names begin with prefix. Its errors never show the
// URL, which may hold a password.
func ParseURL(raw, prefix string) (Config, error) {
	bad := func(format string, args ...any) (Config, error) {
		return Config{}, fmt.Errorf("redis URL: %s; want redis://[user[:password]@]host[:port][/db]", fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return bad("malformed")
	}
	c := Config{Prefix: prefix}
	switch u.Scheme {
	case "redis":
	case "rediss":
		c.TLS = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	default:
		return bad("the scheme is %q", u.Scheme)
	}
	switch {
	case u.Hostname() == "":
		return bad("no host")
	case u.RawQuery != "" || u.Fragment != "":
		return bad("parameters are not supported")
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	c.Addrs = []string{net.JoinHostPort(u.Hostname(), port)}
	c.Username = u.User.Username()
	c.Password, _ = u.User.Password()
	if db := strings.Trim(u.Path, "/"); db != "" {
		if c.DB, err = strconv.Atoi(db); err != nil {
			return bad("the database %q is not a number", db)
		}
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("redis URL: %w", err)
	}
	return c, nil
}

// silent drops what go-redis writes to stderr of its own accord, a line for each
// failed attempt to connect: the same comes back as an error, and is logged
// once by who asked.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// go-redis has one logger for the process, read without a lock.
func init() { redis.SetLogger(silent{}) }

// options are those of the client: short timeouts, one retry of what is
// idempotent anyway, and nothing sent that a Redis 6.2 or Valkey does not know.
func (c *Config) options() *redis.UniversalOptions {
	o := &redis.UniversalOptions{
		Addrs:            c.Addrs,
		IsClusterMode:    c.clustered(),
		MasterName:       c.MasterName,
		SentinelUsername: c.SentinelUsername,
		SentinelPassword: c.SentinelPassword,
		Username:         c.Username,
		Password:         c.Password,
		DB:               c.DB,
		TLSConfig:        c.TLS,

		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},

		DialTimeout:           c.Timeout,
		ReadTimeout:           c.Timeout,
		WriteTimeout:          c.Timeout,
		PoolTimeout:           c.Timeout,
		ContextTimeoutEnabled: true,
		DialerRetries:         1,
		MaxRetries:            1,
		MinRetryBackoff:       5 * time.Millisecond,
		MaxRetryBackoff:       20 * time.Millisecond,
	}
	if c.PasswordNow != nil {
		o.CredentialsProviderContext = func(context.Context) (string, string, error) {
			password, err := c.PasswordNow()
			return c.Username, password, err
		}
	}
	if c.TLS != nil && c.RootsNow != nil {
		o.Dialer = c.dial
	}
	return o
}

// dial connects as the client does, with those who sign certificates now.
func (c *Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: c.Timeout, KeepAlive: 5 * time.Minute}, Config: c.TLS.Clone()}
	d.Config.RootCAs = c.RootsNow()
	return d.DialContext(ctx, network, addr)
}
