package natsbus

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// Config says which NATS to use and as whom. The zero value lacks a server.
type Config struct {
	// URLs are the servers of the local region, any of which will do:
	// "nats://host:4222", or "tls://host:4222" to insist on TLS. User and
	// password may stand in them.
	URLs []string
	// InProcess is a server in the same process; then URLs must be empty.
	// natsbus/embedded has one.
	InProcess nats.InProcessConnProvider
	// Name is what the server's monitoring shows for this connection.
	Name string
	// InboxPrefix is where replies are sent: "_INBOX" unless set. With one of
	// its own, "_INBOX_eu.pop1.edge1", an edge needs no permission to read
	// what others are told. It must begin with "_INBOX".
	InboxPrefix string

	// CAFile is the authority that signed the servers' certificates, in PEM;
	// empty: those that the system trusts. CertFile and KeyFile are this
	// client's own, for servers that ask. Any of them insists on TLS.
	CAFile, CertFile, KeyFile string
	// CredsFile is a user's JWT and seed, as `nsc` writes it; NKeySeedFile a
	// user's bare seed. They are read again with each connection.
	CredsFile, NKeySeedFile string

	// Logger hears of connections found and lost, and of what the server
	// refuses; nil: nobody does.
	Logger *slog.Logger
}

// Validate returns every mistake in c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case len(c.URLs) == 0 && c.InProcess == nil:
		bad("urls: none given; want at least one, such as nats://127.0.0.1:4222")
	case len(c.URLs) > 0 && c.InProcess != nil:
		bad("urls: given beside a server in the same process; want one or the other")
	}
	for i, s := range c.URLs {
		u, err := url.Parse(s)
		switch {
		case err != nil: // may quote a password, so it is not shown
			bad("urls[%d]: not a URL; want nats://host:port", i)
		case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
			bad("urls[%d]: scheme %q; want nats or tls, as in nats://host:port", i, u.Scheme)
		case u.Hostname() == "":
			bad("urls[%d]: no host; want nats://host:port", i)
		case strings.Contains(s, ","):
			bad("urls[%d]: a comma; want one server an entry", i)
		}
	}
	if p := c.InboxPrefix; p != "" && (!strings.HasPrefix(p, inboxPrefix) || strings.ContainsAny(p, "*> \t\r\n") || strings.HasSuffix(p, ".") || strings.Contains(p, "..")) {
		bad("inbox_prefix: %q; want %s or a subject that begins with it", p, inboxPrefix)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		bad("cert_file, key_file: one without the other; want both or neither")
	}
	if c.CredsFile != "" && c.NKeySeedFile != "" {
		bad("creds_file, nkey_seed_file: both given; want one")
	}
	return errors.Join(errs...)
}

// inboxPrefix begins the subjects of all replies, so that what subscribes to
// everything can leave them out.
const inboxPrefix = "_INBOX"

// options are c's own; those that are the same for every bus are in Connect.
func (c Config) options() ([]nats.Option, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	opts := []nats.Option{nats.Name(c.Name)}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	if c.InProcess != nil {
		opts = append(opts, nats.InProcessServer(c.InProcess))
	}
	// Files are opened now: else a wrong path would look like a server that
	// refuses us, again and again.
	for _, f := range []struct{ setting, path string }{
		{"tls.ca", c.CAFile}, {"tls.cert", c.CertFile}, {"tls.key", c.KeyFile}, {"creds", c.CredsFile}, {"nkey", c.NKeySeedFile},
	} {
		if f.path == "" {
			continue
		}
		if _, err := os.ReadFile(f.path); err != nil {
			return nil, fmt.Errorf("%s: %w", f.setting, err)
		}
	}
	if c.CAFile != "" {
		if pem, err := os.ReadFile(c.CAFile); err != nil || !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.ca: no certificate in %s", c.CAFile)
		}
		opts = append(opts, nats.RootCAs(c.CAFile))
	}
	if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			return nil, fmt.Errorf("tls.cert %s, tls.key %s: %w", c.CertFile, c.KeyFile, err)
		}
		opts = append(opts, nats.Secure()) // Bus.certificates shows it
	}
	if c.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(c.CredsFile))
	}
	return opts, nil
}
