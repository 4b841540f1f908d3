package configs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzSettings: whatever stands in a settings file makes settings that are within their
// bounds, of an edge or of an aggregator, or mistakes that stand in it; and neither shows
// the secret, nor lets the admin listener off this machine.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{
		"", "{}", "region: eu\npop: fra\nname: e1\nrules: {path: r}\nnats: {urls: [\"nats://u:p@h:1\"]}\n", "region: e u\nlanes: 65\nview: {max_bytes: 3}\nadmin: {listen: \"0.0.0.0:6070\"}\n",
		"region: eu\npop: fra\nrules: {path: r}\nnats: {urls: \"nats://h\"}\nadmin: {listen: \"192.0.2.1:6070\"}\n", "region: eu\npop: fra\nrules: {path: r}\nnats: {urls: \"nats://h\"}\nlanes: 65\n",
		"secret: " + testSecret + "x\nsecert: " + testSecret + "\n", "region: eu\n---\nregion: us\n", "proxy: {upstream: \"h2c://h\", capacity: {name: api, latency: 1d}}\n",
		"sync: {interval: 9999999999w, urgent_interval: -1s}\ntrusted_proxies: [10.0.0.0/33, ::/0]\n", "redis: {url: \"redis://:p@h:1/0\"}\npeers: [us, us]\n", "lanes: *a\nname: &a [x]\n", "max_bytes: 1e3\nmax_keys: 0x10\n", "grpc: {listen: }\nlog: {level: ~}\n",
	} {
		f.Add([]byte(text))
	}
	cleanEnv(f)
	f.Setenv("SPILLGATE_SECRET", testSecret)
	file := filepath.Join(f.TempDir(), "settings.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		edge, err := loadEdge(t, "-c", file)
		if edge != nil { // config effective shows it, be there mistakes or none
			checkShown(t, text, edge.Effective())
		}
		if err != nil {
			checkRefused(t, text, err)
		} else {
			if edge.Lanes < 1 || edge.Lanes > 64 || edge.Region == "" || string(edge.Secret) != testSecret || edge.Sync.UrgentInterval > edge.Sync.Interval {
				t.Fatalf("taken: %+v", edge)
			}
			checkOnLoopback(t, edge.AdminListen)
		}
		aggregator, err := loadAggregator(t, "-c", file)
		if aggregator != nil {
			checkShown(t, text, aggregator.Effective())
		}
		if err != nil {
			checkRefused(t, text, err)
			return
		}
		if aggregator.Lanes < 1 || aggregator.Lanes > 64 || aggregator.Region == "" {
			t.Fatalf("taken: %+v", aggregator)
		}
		if aggregator.Admin.Tokens == "" {
			checkOnLoopback(t, aggregator.Admin.Listen)
		}
	})
}

func checkRefused(t *testing.T, text []byte, err error) {
	t.Helper()
	var wrong *SettingsError
	if !errors.As(err, &wrong) || len(wrong.Mistakes) == 0 || len(wrong.Mistakes) > 2*maxMistakes {
		t.Fatalf("error %v, want a *SettingsError", err)
	}
	checkMistakes(t, text, wrong.Mistakes)
	checkShown(t, text, err)
}

func checkOnLoopback(t *testing.T, listens string) {
	t.Helper()
	if at, err := netip.ParseAddrPort(strings.Replace(listens, "localhost", "127.0.0.1", 1)); err != nil || !at.Addr().IsLoopback() {
		t.Fatalf("admin.listen %q is taken", listens)
	}
}

func checkShown(t *testing.T, text []byte, shown any) {
	t.Helper()
	if all := fmt.Sprint(shown); strings.Contains(all, testSecret) && !strings.Contains(string(text), testSecret) {
		t.Fatalf("the secret is shown: %s", all)
	}
}

// FuzzTopology: whatever stands in a topology makes one within its bounds, or mistakes.
func FuzzTopology(f *testing.F) {
	for _, text := range []string{
		"regions: {eu: 2, us: 10}\ndelay: {region: 80ms, edge: 5ms}\nsync: {interval: 100ms, urgent_interval: 20ms}\n", "", "regions: {\"\": 2}", "regions: {eu: 1e5, us: 1.5}", "regions: {eu: 1}\n---\nx: 1",
		"regions: {eu: NaN}", "regions: {eu: 1}\ndelay: {region: 11s, edge: -0s}", "regions: {a: 100000, b: 100000}\nsync: {interval: 1w}", "regions: &a {eu: 1}\ndelay: *a",
	} {
		f.Add([]byte(text))
	}
	file := filepath.Join(f.TempDir(), "topology.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, warnings, err := ReadTopology(file)
		if err != nil {
			checkMistakes(t, text, mistakesOf(t, err))
			return
		}
		checkMistakes(t, text, warnings)
		if got.Regions < 1 || got.Regions > maxTopologyRegions || got.Largest < 1 || got.Largest > maxTopologyEdges || got.Edges < got.Largest || got.Edges > got.Regions*got.Largest ||
			got.Between < 0 || got.Between > maxTopologyDelay || got.Within < 0 || got.Within > maxTopologyDelay || got.Interval <= 0 || got.UrgentGap <= 0 || got.UrgentGap > got.Interval {
			t.Fatalf("taken: %+v", got)
		}
	})
}
