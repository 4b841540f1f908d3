package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/proxy"
)

// A setting that is read and not handed on is one that does nothing.
func TestSettingsReachTheNodeAndItsSurface(t *testing.T) {
	s := &configs.EdgeSettings{
		Region: "r", PoP: "p", Name: "n", Secret: []byte("0123456789abcdef"), Lanes: 3, MaxKeys: 12_345, MaxBytes: 64 << 20,
		Sync:             configs.SyncSettings{Interval: time.Second, UrgentInterval: 2 * time.Millisecond, Timeout: 3 * time.Second},
		DefaultNamespace: "shop", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
	}
	if got, want := nodeConfig(s), (edge.Config{
		Region: "r", Pop: "p", Name: "n", Secret: []byte("0123456789abcdef"), Lanes: 3, MaxKeys: 12_345, MaxBytes: 64 << 20,
		Interval: time.Second, Urgent: 2 * time.Millisecond, Timeout: 3 * time.Second,
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("nodeConfig = %+v, want %+v", got, want)
	}
	if got, want := apiConfig(s), (httpapi.Config{
		DefaultNamespace: "shop", TrustedProxies: httpapi.Proxies{netip.MustParsePrefix("10.1.0.0/16")},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("apiConfig = %+v, want %+v", got, want)
	}
	at := &url.URL{Scheme: "http", Host: "upstream"}
	front := configs.ProxySettings{
		Upstream: at, Host: "upstream", Timeout: 1, ClientTimeout: 2, MaxBody: 3, Origins: []string{"https://o"}, Capacity: configs.ProxyCapacity{Name: "n", Header: "h", Latency: 4, TTL: 5},
	}
	want := proxy.Config{
		Upstream: at, UpstreamHost: true, Timeout: 1, ClientTimeout: 2, MaxBody: 3, Origins: httpapi.Origins{"https://o"}, Capacity: proxy.CapacityConfig{Name: "n", Header: "h", Latency: 4, TTL: 5}, Logger: slog.Default(),
	}
	if got, err := proxyConfig(&front, slog.Default()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("proxyConfig = %+v, %v, want %+v", got, err, want)
	}
	front.TLS = configs.ProxyTLS{Cert: filepath.Join(t.TempDir(), "none.pem"), Key: "none.key"}
	if _, err := proxyConfig(&front, slog.Default()); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "proxy.tls") {
		t.Errorf("without the certificate's file: %v", err)
	}
}

// What waits is not done while the upstream says that all it has is in use.
func TestDeferredHeedsTheCapacity(t *testing.T) {
	node, err := edge.New(nodeConfig(&configs.EdgeSettings{Region: "r", PoP: "p", Name: "n", Secret: []byte("0123456789abcdef"), Lanes: 1, MaxKeys: 10_000, MaxBytes: 64 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	s := &configs.ProxySettings{Timeout: time.Second, ClientTimeout: 2 * time.Second, Origins: []string{"*"}}
	if c := deferredFront(s, nil, node, nil); len(c.Origins) != 1 || c.Room != nil || c.Timeout != 3*time.Second || c.ClientTimeout != 2*time.Second {
		t.Errorf("%+v, want 3s, 2s, and always room", c)
	}
	s.Capacity.Name = "api"
	room := deferredFront(s, nil, node, nil).Room
	if !room() {
		t.Error("nothing is known: want room")
	}
	for used, want := range map[float64]bool{0.99: true, 1: false, 1.5: false} {
		if err := node.SetCapacity(time.Now(), "api", used, time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := room(); got != want {
			t.Errorf("%v is in use: room %v, want %v", used, got, want)
		}
	}
}
