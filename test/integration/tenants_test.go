package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestTenantsByCommand: an operator gives a tenant a tier by the aggregators of one region or another, and
// edges of both judge what it has counted by the other limit within a second; many are imported at once;
// what is wrong is refused before an edge hears of it; and an edge that starts without NATS knows them yet.
func TestTenantsByCommand(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGateways(t, users, "eu", "us")
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	ada := newToken(t, tokens, "ada", "admin")
	streams, operators := map[string]*proc.NATSServer{}, map[string]*operator{}
	for region, peer := range map[string]string{"eu": "us", "us": "eu"} {
		urls := sites[region].URLs()[0]
		streams[region] = proc.NATSJetStream(t, users, region, sites[region].Leafs[0], t.TempDir())
		agg := daemons.Aggregator(t, nil, "--region", region, "--name", "a1", "--peers", peer, "--nats-urls", urls,
			"--nats-nkey", users.SeedFile(t, "AGG_"+strings.ToUpper(region)), "--rules-source", "kv", "--rules-kv-domain", region, "--admin-tokens", tokens)
		operators[region] = &operator{t, []string{"--rules-kv-domain", region, "--nats-urls", urls, "--nats-nkey", users.SeedFile(t, "OPERATOR")}, []string{"--server", agg.Admin, "--token-file", ada}}
	}
	proc.Until(t, time.Minute, func() error { // the domains are heard of
		if _, err := operators["eu"].try(0, "init"); err != nil {
			return err
		}
		_, err := operators["us"].try(0, "init", "--origin", "eu")
		return err
	})
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rules := strings.Replace(limited(10), "key: user", "key: user\n    tier_from: user", 1) + "tenants: {gold: {multiply: 3}}\n"
	operators["eu"].rules(0, "apply", write("rules.yaml", rules), "--yes")
	start := func(region, pop, file string) *proc.EdgeServer {
		return daemons.Edge(t, []string{"SPILLGATE_SECRET=" + secret}, "--region", region, "--pop", pop, "--name", pop+"-1", "--default-namespace", "test",
			"--nats-urls", sites[region].URLs()[0], "--nats-nkey", users.SeedFile(t, "POP_"+strings.ToUpper(pop)),
			"--rules-source", "kv", "--rules-kv-domain", region, "--rules-kv-file", file)
	}
	kept := filepath.Join(t.TempDir(), "ams")
	edges := map[string]*proc.EdgeServer{"ams": start("eu", "ams", kept), "iad": start("us", "iad", "")}
	tenants := func(region string, code int, args ...string) string {
		t.Helper()
		said, err := aggregatorSays(code, append(append([]string{"tenants"}, args...), operators[region].asks...)...)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	has := func(e *proc.EdgeServer, user string, want uint64) {
		t.Helper()
		c := newClient(t, e.URL)
		proc.Until(t, 30*time.Second, func() error {
			r, err := c.check(call{Attributes: map[string]string{"user": user}, Peek: true})
			if err == nil && r.Limit != want {
				err = fmt.Errorf("the limit of %s is %d, want %d", user, r.Limit, want)
			}
			return err
		})
	}
	both := func(user string, want uint64) time.Duration {
		t.Helper()
		began := time.Now()
		for _, e := range edges {
			has(e, user, want)
		}
		return time.Since(began)
	}
	both("u1", 10)
	c := newClient(t, edges["ams"].URL)
	spend := func(want uint64) {
		t.Helper()
		passed := uint64(0)
		for range want + 1 {
			r, err := c.check(call{Attributes: map[string]string{"user": "u1"}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Allowed {
				passed++
			}
		}
		if passed != want {
			t.Errorf("%d passed, want %d", passed, want)
		}
	}
	spend(10)
	for region := range operators { // each knows the rules, by which it checks what tenants have
		proc.Until(t, 30*time.Second, func() error {
			_, err := aggregatorSays(0, append([]string{"tenants", "set", "test", "u1", "--tier", "gold", "--dry-run"}, operators[region].asks...)...)
			return err
		})
	}
	for _, step := range []struct {
		region string
		args   []string
		want   uint64
	}{
		{"eu", []string{"--tier", "gold", "-m", "they pay"}, 30},
		{"us", []string{"--multiply", "3.5"}, 35},
		{"eu", []string{"--tier", "gold", "--for", "1h"}, 30},
	} {
		tenants(step.region, 0, append([]string{"set", "test", "u1"}, step.args...)...)
		if took := both("u1", step.want); took > time.Second {
			t.Errorf("u1 has %d in both regions after %v, want a second", step.want, took)
		} else {
			t.Logf("u1 has %d in both regions after %v", step.want, took)
		}
	}
	spend(20) // beside the 10 that were counted
	both("u2", 10)
	if said := tenants("us", 0, "list", "test"); !strings.Contains(said, "u1") || !strings.Contains(said, "gold") || !strings.Contains(said, "ada") {
		t.Errorf("the list is %s", said)
	}
	if said := tenants("eu", 3, "set", "test", "u1", "--tier", "golf"); !strings.Contains(said, "has no tier golf") || !strings.Contains(said, "one of: gold") {
		t.Errorf("of a tier that is none it says %s", said)
	}
	if said := tenants("eu", 3, "import", "test", write("bad.ndjson", `{"tenant": "a", "tier": "gold"}`+"\n"+`{"tenant": "b", "tier": "golf"}`+"\n")); !strings.Contains(said, "entry 2, tier") {
		t.Errorf("of a file with a mistake it says %s", said)
	}
	many := ""
	for i := range 2000 {
		many += fmt.Sprintf(`{"tenant": "m%d", "tier": "gold"}`+"\n", i)
	}
	if said := tenants("us", 0, "import", "test", write("many.ndjson", many)); !strings.Contains(said, "2000 tenants changed") {
		t.Errorf("the import says %s", said)
	}
	t.Logf("2000 more were in force in both regions after %v", both("m1999", 30))
	tenants("us", 0, "remove", "test", "m7")
	both("m7", 10)
	if said := tenants("eu", 0, "list", "test", "--prefix", "m199", "-o", "json"); strings.Count(said, `"tenant"`) != 11 {
		t.Errorf("of m199 it lists %s", said)
	}
	explain := exec.Command(daemons.EdgePath(), "explain", "--server", edges["iad"].Admin, "user=m1")
	explain.Env = proc.Environ()
	if said, err := explain.CombinedOutput(); err != nil || !strings.Contains(string(said), `tenant "m1": tier gold, limits times 3, by the store`) {
		t.Errorf("explain says %s, %v", said, err)
	}

	// Without NATS.
	awaitMetric(t, 30*time.Second, edges["ams"].Admin, `spillgate_entries{state="in_force"}`, 2000)
	edges["ams"].Terminate()
	streams["eu"].Kill()
	again := start("eu", "ams", kept)
	has(again, "u1", 30)
	has(again, "m1999", 30)
	has(again, "m7", 10)
}
