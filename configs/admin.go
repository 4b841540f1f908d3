package configs

import (
	"fmt"
	"net"
	"net/netip"
)

// AdminTokenVariable is the variable of the environment that has the token of commands which ask an admin
// listener.
const AdminTokenVariable = EnvPrefix + "_ADMIN_TOKEN"

// AdminSettings is who reaches an aggregator's admin listener, and who is asked who he is.
type AdminSettings struct {
	Listen string
	Tokens string // file of tokens; "": nobody is asked, and nothing can be changed
	TLS    ListenTLS
}

func (a *AdminSettings) table() []setting {
	return append([]setting{
		{key: "admin.listen", fallback: "127.0.0.1:6071", usage: "`address` of the listener for health, metrics and the admin API: loopback or unix:/path, and with admin.tokens and admin.tls any", parse: asListen(&a.Listen)},
		{key: "admin.tokens", usage: "`file` that says who may do what there, with the hashes of their tokens, which `aggregator auth token` makes; without it nothing can be changed", path: true, parse: asText(&a.Tokens)},
	}, a.TLS.table("admin.tls", "the listener", "by which admin.tokens may know them in place of a token")...)
}

func (a *AdminSettings) check(l *loader) {
	if !a.TLS.check(l, "admin.tls") {
		return
	}
	switch {
	case a.TLS.ClientCA != "" && a.Tokens == "":
		l.mistake("admin.tls.client_ca", "E203", "admin.tokens", "nobody says who clients are")
	case a.Listen == "" || isLoopback(a.Listen):
	case a.Tokens == "":
		l.mistake("admin.listen", "E203", "127.0.0.1, ::1, localhost or unix:/path; or admin.tokens", "%q is not a loopback address, and nobody is asked who he is", clip(a.Listen))
	case !a.TLS.Set():
		l.mistake("admin.listen", "E203", "127.0.0.1, ::1, localhost or unix:/path; or admin.tls.cert and admin.tls.key", "%q is not a loopback address, and tokens would be sent in clear", clip(a.Listen))
	}
}

// Loopback says that only this machine reaches the listener.
func (a *AdminSettings) Loopback() bool { return isLoopback(a.Listen) }

// isLoopback says that a listener's address is one that only this machine reaches.
func isLoopback(listen string) bool {
	if isUnix(listen) {
		return true
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return true // which is told elsewhere
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// asLoopback reads the address of a listener that asks nobody who he is.
func asLoopback(dst *string) parseFunc {
	return func(value string) error {
		if err := asListen(dst)(value); err != nil {
			return err
		}
		if !isLoopback(value) {
			return fmt.Errorf("%q is not a loopback address: this listener asks nobody who he is; 127.0.0.1, ::1 or localhost, or unix:/path", clip(value))
		}
		return nil
	}
}
