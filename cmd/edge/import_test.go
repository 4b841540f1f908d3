package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// What an edge is asked by Envoy it decides by imported rules as by the files themselves, also
// of keys that it has a meaning of its own for; where it does not, the import has said so.
func TestImportedRulesAreAskedByEnvoy(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		asked []string // "key=value key=value"
		notes string
	}{
		"remote_address beside client_ip": {"descriptors:\n- {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1}}\n- {key: client_ip, rate_limit: {unit: hour, requests_per_unit: 2}}\n",
			[]string{"remote_address=192.0.2.1", "remote_address=192.0.2.1", "client_ip=192.0.2.2", "client_ip=192.0.2.2", "client_ip=192.0.2.2", "remote_address=192.0.2.2"}, "W260 W259"},
		"remote_address alone": {"descriptors:\n- {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1}}\n- {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
			[]string{"remote_address=192.0.2.1", "remote_address=192.0.2.1", "user=u", "user=u"}, ""},
		"path": {"descriptors:\n- {key: path, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
			[]string{"path=/a", "path=/a", "path=/b"}, "W259"},
		"host": {"descriptors:\n- {key: user, descriptors: [{key: host, rate_limit: {unit: hour, requests_per_unit: 1}}]}\n- {key: host, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
			[]string{"host=a.example", "host=a.example", "host=b.example", "user=u host=a.example", "user=u host=a.example"}, "W259"},
		"method": {"descriptors:\n- {key: method, rate_limit: {unit: hour, requests_per_unit: 1}}\n", []string{"method=GET", "method=GET", "method=POST"}, "W259"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "d.yaml"), []byte("domain: d\n"+c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			text, notes, err := configs.ImportEnvoy(dir)
			if err != nil {
				t.Fatal(err)
			}
			var codes []string
			for _, n := range notes {
				codes = append(codes, n.Code)
			}
			if strings.Join(codes, " ") != c.notes {
				t.Errorf("noted %v, want %q", codes, c.notes)
			}
			own := filepath.Join(t.TempDir(), "rules.yaml")
			if err := os.WriteFile(own, text, 0o600); err != nil {
				t.Fatal(err)
			}
			theirs, err := configs.FormatEnvoy.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := configs.LoadRules(own)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := decided(t, ours, c.asked), decided(t, theirs, c.asked); got != want || !strings.Contains(want, "OVER_LIMIT") {
				t.Errorf("%v by imported rules:\n%s\nby the files:\n%s\n%s", c.asked, got, want, text)
			}
		})
	}
}

// decided is what is answered to one descriptor after the other.
func decided(t *testing.T, set *limit.Set, asked []string) string {
	t.Helper()
	node := limitertest.Node(t)
	node.SetRules(set)
	client := rlsv3.NewRateLimitServiceClient(dialled(t, servingOver(t, node)))
	var out []string
	for _, text := range asked {
		d := &rlv3.RateLimitDescriptor{}
		for _, pair := range strings.Fields(text) {
			key, value, _ := strings.Cut(pair, "=")
			d.Entries = append(d.Entries, &rlv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		answer, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*rlv3.RateLimitDescriptor{d}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, answer.OverallCode.String())
	}
	return strings.Join(out, " ")
}
