package configs

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// RedisSettings is how to reach and enter a Redis: by a URL, or by addresses
// and what goes with them.
type RedisSettings struct {
	URL        string
	Addrs      []string // of a server, of nodes of a cluster, or of sentinels
	Cluster    bool     // one address is a node of a cluster too
	MasterName string   // as sentinels know it; with it Addrs are sentinels

	Username, Password                 string
	PasswordFile                       string // instead of Password, read for each connection
	SentinelUsername, SentinelPassword string
	DB                                 int
	TLS                                bool
	TLSCA, TLSCert, TLSKey             string // files
}

// Set says that there is a Redis.
func (r *RedisSettings) Set() bool { return r.URL != "" || len(r.Addrs) > 0 }

// table is the settings under a key such as "redis". absent is what happens
// where there are none.
func (r *RedisSettings) table(at, absent string) []setting {
	return []setting{
		{key: at + ".url", usage: "Redis `URL` of one server; " + absent, mask: maskURLs, parse: asURL(&r.URL, "redis", "rediss")},
		{key: at + ".addrs", usage: "instead of a URL, `host:port` of one server, of nodes of a cluster, or of sentinels, separated by commas", list: true, parse: asAddrs(&r.Addrs)},
		{key: at + ".cluster", fallback: "false", usage: "true: a single address is a node of a cluster, as several are", parse: asBool(&r.Cluster)},
		{key: at + ".master_name", usage: "`name` under which sentinels know the master; with it the addresses are sentinels", parse: asText(&r.MasterName)},
		{key: at + ".username", usage: "`user` of Redis", parse: asText(&r.Username)},
		{key: at + ".password", usage: "password of Redis; better in the environment", secret: true, parse: asText(&r.Password)},
		{key: at + ".password_file", usage: "`file` that holds the password of Redis; it may be replaced at any time", path: true, parse: asText(&r.PasswordFile)},
		{key: at + ".sentinel_username", usage: "`user` of the sentinels", parse: asText(&r.SentinelUsername)},
		{key: at + ".sentinel_password", usage: "password of the sentinels; better in the environment", secret: true, parse: asText(&r.SentinelPassword)},
		{key: at + ".db", fallback: "0", usage: "`number` of the database; a cluster has only 0", parse: asInt(&r.DB, 0, 1<<31-1)},
		{key: at + ".tls.enabled", fallback: "false", usage: "true: connections are encrypted; any file below says so too", parse: asBool(&r.TLS)},
		{key: at + ".tls.ca", usage: "`file` with the certificates that sign Redis's", path: true, parse: asText(&r.TLSCA)},
		{key: at + ".tls.cert", usage: "`file` with this client's certificate", path: true, parse: asText(&r.TLSCert)},
		{key: at + ".tls.key", usage: "`file` with this client's key", path: true, parse: asText(&r.TLSKey)},
	}
}

// check finds what contradicts itself among settings that are good by themselves.
func (r *RedisSettings) check(l *loader, at string) {
	mistake := func(key, hint, format string, args ...any) {
		l.mistake(at+key, "E203", hint, format, args...)
	}
	if (r.TLSCert == "") != (r.TLSKey == "") {
		key, other := ".tls.cert", ".tls.key"
		if r.TLSCert == "" {
			key, other = other, key
		}
		mistake(key, "a client certificate is both", "%s%s is not set", at, other)
	}
	if r.URL != "" {
		r.checkURL(mistake, at)
		return
	}
	if len(r.Addrs) == 0 {
		for _, s := range r.given() {
			mistake(s.key, "where the Redis is, "+at+".addrs says", "there is neither %s.url nor %s.addrs", at, at)
		}
		return
	}
	cluster := r.MasterName == "" && (r.Cluster || len(r.Addrs) > 1)
	if r.MasterName != "" && r.Cluster {
		mistake(".cluster", "sentinels watch over a master, a cluster over itself: one of the two", "%s.master_name is set too", at)
	}
	if cluster && r.DB != 0 {
		mistake(".db", fmt.Sprintf("0, or, if the addresses are sentinels, %s.master_name too", at), "%d, but a cluster has only 0", r.DB)
	}
	if r.MasterName == "" {
		for _, s := range r.given() {
			if strings.HasPrefix(s.key, ".sentinel_") {
				mistake(s.key, "with a master's name the addresses are sentinels, else none is", "%s.master_name is not set", at)
			}
		}
	}
	if r.Password != "" && r.PasswordFile != "" {
		mistake(".password_file", "one of the two", "%s.password is set too", at)
	}
	if r.Username != "" && r.Password+r.PasswordFile == "" {
		mistake(".username", "Redis is entered with a password alone, or with both", "%s.password is not set", at)
	}
	if r.SentinelUsername != "" && r.SentinelPassword == "" {
		mistake(".sentinel_username", "", "%s.sentinel_password is not set", at)
	}
}

// checkURL finds what has no place beside a URL, which says all but the files
// of TLS.
func (r *RedisSettings) checkURL(mistake func(key, hint, format string, args ...any), at string) {
	encrypted := strings.HasPrefix(r.URL, "rediss:")
	for _, s := range r.given() {
		switch {
		case s.hint != "tls":
			mistake(s.key, s.hint, "%s.url is set too", at)
		case !encrypted:
			mistake(s.key, "a URL says by rediss:// that connections are encrypted", "%s.url begins with redis://", at)
		}
	}
}

// given is what is set besides the URL: the key, and where a URL says that;
// "tls" where it stands beside one.
func (r *RedisSettings) given() (out []struct{ key, hint string }) {
	for _, s := range []struct {
		key, hint string
		set       bool
	}{
		{".addrs", "one of the two", len(r.Addrs) > 0},
		{".cluster", "a URL is of one server; a cluster has .addrs", r.Cluster},
		{".master_name", "a URL is of one server; sentinels have .addrs", r.MasterName != ""},
		{".username", "it belongs into the URL", r.Username != ""},
		{".password", "it belongs into the URL", r.Password != ""},
		{".password_file", "it belongs into the URL; a server that has a file for it has .addrs", r.PasswordFile != ""},
		{".sentinel_username", "a URL is of one server; sentinels have .addrs", r.SentinelUsername != ""},
		{".sentinel_password", "a URL is of one server; sentinels have .addrs", r.SentinelPassword != ""},
		{".db", "it belongs into the URL", r.DB != 0},
		{".tls.enabled", "tls", r.TLS},
		{".tls.ca", "tls", r.TLSCA != ""},
		{".tls.cert", "tls", r.TLSCert != ""},
		{".tls.key", "tls", r.TLSKey != ""},
	} {
		if s.set {
			out = append(out, struct{ key, hint string }{s.key, s.hint})
		}
	}
	return out
}

func asAddrs(dst *[]string) parseFunc {
	return func(value string) error {
		*dst = splitList(value)
		if len(*dst) == 0 && value != "" {
			// What was to stand between the commas is missing. Without a word it would be as if
			// no Redis was meant, and counts would be gone with the process.
			return errors.New("has no address in it: a list of host:port, such as 10.0.0.7:6379, or, if there is no Redis, nothing")
		}
		for _, s := range *dst {
			host, port, err := net.SplitHostPort(s)
			if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
				// It is not shown: it may be a URL, with a password.
				return fmt.Errorf("not a list of host:port, such as 10.0.0.7:6379")
			}
		}
		return nil
	}
}

func asBool(dst *bool) parseFunc {
	return func(value string) error {
		*dst = value == "true"
		if value != "true" && value != "false" {
			return fmt.Errorf("%q: true or false", clip(value))
		}
		return nil
	}
}
