package configs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

const proxyFile = "region: eu\nrules: {path: r}\nsecret: 01234567890123456\n"

func TestProxySettings(t *testing.T) {
	cleanEnv(t)
	s, err := loadEdge(t, "-c", settingsFile(t, proxyFile))
	if err != nil || s.Proxy.Upstream != nil {
		t.Errorf("without any: %+v, %v; want no proxy", s.Proxy, err)
	}
	s, err = loadEdge(t, "-c", settingsFile(t, proxyFile+"proxy: {upstream: \"http://127.0.0.1:9000/base\"}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Proxy; p.Upstream.String() != "http://127.0.0.1:9000/base" || p.Listen != ":8082" || p.Host != "client" || p.Timeout != 30*time.Second ||
		p.ClientTimeout != time.Minute || p.MaxBody != 10<<20 || p.Capacity != (ProxyCapacity{TTL: 10 * time.Second}) {
		t.Errorf("the defaults are %+v", p)
	}
	s, err = loadEdge(t, "-c", settingsFile(t, proxyFile), "--proxy-upstream", "h2c://[::1]:9000", "--proxy-max-body", "off", "--proxy-host", "upstream", "--proxy-capacity-name", "api", "--proxy-capacity-latency", "200ms")
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Proxy; p.MaxBody >= 0 || p.Host != "upstream" || p.Capacity.Name != "api" || p.Capacity.Latency != 200*time.Millisecond {
		t.Errorf("the flags say %+v", p)
	}
}

// Each mistake is told once, at its place.
func TestProxySettingsMistakes(t *testing.T) {
	cleanEnv(t)
	const at = `upstream: "http://127.0.0.1:9000", `
	for text, want := range map[string]string{
		`timeout: 1s`:                                      "4:18: E203 proxy.timeout: there is no proxy without proxy.upstream (hint: set proxy.upstream, or drop this)",
		`upstream: "127.0.0.1:9000"`:                       "proxy.upstream: not a URL that starts with http://, https:// or h2c://; such as http://127.0.0.1:9000",
		`upstream: "http://:9000", timeout: 2s`:            "proxy.upstream: the URL has no host",
		`upstream: "http://unix:/run/app.sock"`:            "proxy.upstream: an upstream is reached over TCP",
		`upstream: "http://h:99999"`:                       "proxy.upstream: the URL's port is not 1 to 65535",
		`upstream: "http://u:hunter2@h"`:                   "proxy.upstream: the URL has a user",
		`upstream: "http://h/?a=b"`:                        "proxy.upstream: the URL has a query",
		at + `listen: ":9000"`:                             "proxy.upstream: this is proxy.listen",
		`upstream: "http://localhost", listen: ":80"`:      "proxy.upstream: this is proxy.listen",
		at + `listen: "9000"`:                              "proxy.listen: \"9000\" is not an address",
		at + `tls: {cert: a.pem}`:                          "proxy.tls.cert: proxy.tls.key is not set",
		at + `tls: {key: a.key}`:                           "proxy.tls.key: proxy.tls.cert is not set",
		at + `timeout: 1ms`:                                "proxy.timeout: 1ms is out of range; 10ms to 1h",
		at + `client_timeout: soon`:                        "proxy.client_timeout: \"soon\" is not a duration",
		at + `max_body: 0`:                                 "proxy.max_body: 0 bytes are too few; at least 1",
		at + `origins: [app.example]`:                      `proxy.origins: "app.example" is no origin; such as https://app.example`,
		at + `origins: ["https://*.app.example"]`:          `proxy.origins: "https://*.app.example" is no origin`,
		at + `origins: ["null"]`:                           `proxy.origins: "null" is no origin`,
		at + `origins: ["https://app.example/"]`:           `proxy.origins: "https://app.example/" is more than an origin, which browsers write as https://app.example`,
		at + `origins: ["https://app.example:443"]`:        `proxy.origins: "https://app.example:443" names its scheme's own port, which browsers leave out; https://app.example`,
		at + `origins: ["http://app.example:"]`:            `proxy.origins: "http://app.example:" is no origin`,
		at + `origins: ["https://bücher.example"]`:         `proxy.origins: "https://bücher.example" has letters that browsers write otherwise`,
		at + `origins: ["*", "https://app.example"]`:       `proxy.origins: * is every origin; drop the others, or it`,
		at + `defer: {enabled: true, replicas: 2}`:         "proxy.defer.replicas: 2 is even",
		at + `host: mine`:                                  "proxy.host: \"mine\": one of client, upstream",
		at + `capacity: {name: api}`:                       "proxy.capacity.name: nothing says how much of it is in use",
		at + `capacity: {header: X-Used}`:                  "proxy.capacity.name: is missing",
		at + `capacity: {name: "a b", header: X-Used}`:     `proxy.capacity.name: "a b" is no name of a capacity`,
		at + `capacity: {name: a, header: "X Used"}`:       `proxy.capacity.header: "X Used" is no name of a field`,
		at + `capacity: {name: a, header: X, latency: 1s}`: "proxy.capacity.latency: proxy.capacity.header is set too",
		at + `capacity: {name: a, latency: 0s}`:            "proxy.capacity.latency: 0s is out of range",
		at + `capacity: {name: a, header: X, ttl: 2h}`:     "proxy.capacity.ttl: 2h0m0s is out of range; 1s to 1h",
	} {
		_, err := loadEdge(t, "-c", settingsFile(t, proxyFile+"proxy: {"+text+"}\n"))
		var e *SettingsError
		if !errors.As(err, &e) || len(e.Mistakes) != 1 || !strings.Contains(err.Error(), want) || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: %v, want one mistake: %s", text, err, want)
		}
	}
	_, err := loadEdge(t, "-c", settingsFile(t, proxyFile+"proxy: {"+at+"}\n"), "--rules-format", "envoy")
	if err == nil || !strings.Contains(err.Error(), "rules in envoy's format limit no requests of a proxy") {
		t.Errorf("with envoy's rules: %v", err)
	}
}
