package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestKeysByCommand: a user at its limit is denied in two regions. An operator resets his key by the
// aggregator of one, and he passes in both within a second; a grant gives him more, in both; an override
// ends by itself. Nobody else is let in by any of that.
func TestKeysByCommand(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGateways(t, users, "eu", "us")
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	ada, vi := newToken(t, tokens, "ada", "admin"), newToken(t, tokens, "vi", "viewer")
	operators, servers := map[string]*operator{}, map[string]string{}
	for region, peer := range map[string]string{"eu": "us", "us": "eu"} {
		urls := sites[region].URLs()[0]
		proc.NATSJetStream(t, users, region, sites[region].Leafs[0], t.TempDir())
		agg := daemons.Aggregator(t, []string{"SPILLGATE_SECRET=" + secret}, "--region", region, "--name", "a1", "--peers", peer, "--nats-urls", urls,
			"--nats-nkey", users.SeedFile(t, "AGG_"+strings.ToUpper(region)), "--rules-source", "kv", "--rules-kv-domain", region, "--admin-tokens", tokens)
		servers[region] = agg.Admin
		operators[region] = &operator{t, []string{"--rules-kv-domain", region, "--nats-urls", urls, "--nats-nkey", users.SeedFile(t, "OPERATOR")}, []string{"--server", agg.Admin, "--token-file", ada}}
	}
	proc.Until(t, time.Minute, func() error { // the domains are heard of
		if _, err := operators["eu"].try(0, "init"); err != nil {
			return err
		}
		_, err := operators["us"].try(0, "init", "--origin", "eu")
		return err
	})
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(limited(10)), 0o600); err != nil {
		t.Fatal(err)
	}
	operators["eu"].rules(0, "apply", file, "--yes")
	start := func(region, pop string, more ...string) *proc.EdgeServer {
		return daemons.Edge(t, []string{"SPILLGATE_SECRET=" + secret}, append([]string{"--region", region, "--pop", pop, "--name", pop + "-1", "--default-namespace", "test",
			"--nats-urls", sites[region].URLs()[0], "--nats-nkey", users.SeedFile(t, "POP_"+strings.ToUpper(pop)),
			"--rules-source", "kv", "--rules-kv-domain", region}, more...)...)
	}
	kept := filepath.Join(t.TempDir(), "ams")
	edges := map[string]client{"ams": newClient(t, start("eu", "ams", "--rules-kv-file", kept).URL), "iad": newClient(t, start("us", "iad").URL)}
	peek := func(pop, user string) (reply, error) {
		return edges[pop].check(call{Attributes: map[string]string{"user": user}, Peek: true})
	}
	// both waits until a user stands so in both regions.
	both := func(user string, within time.Duration, want func(reply) bool, what string) time.Duration {
		t.Helper()
		began := time.Now()
		for pop := range edges {
			proc.Until(t, within, func() error {
				r, err := peek(pop, user)
				if err == nil && !want(r) {
					err = fmt.Errorf("at %s %s stands at %+v, want %s", pop, user, r, what)
				}
				return err
			})
		}
		return time.Since(began)
	}
	spend := func(pop, user string, times int) (passed int) {
		t.Helper()
		for range times {
			r, err := edges[pop].check(call{Attributes: map[string]string{"user": user}})
			if err != nil {
				t.Fatal(err)
			}
			if r.Allowed {
				passed++
			}
		}
		return passed
	}
	limitOf := func(n uint64) func(reply) bool { return func(r reply) bool { return r.Limit == n } }
	denied := func(r reply) bool { return !r.Allowed }
	fresh := func(r reply) bool { return r.Allowed && r.Remaining == 10 }
	keys := func(region string, code int, args ...string) string {
		t.Helper()
		said, err := aggregatorSays(code, append(append([]string{"keys"}, args...), operators[region].asks...)...)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	both("u1", 30*time.Second, limitOf(10), "a limit of 10")
	for _, user := range []string{"u1", "u2"} {
		proc.Until(t, 30*time.Second, func() error {
			spend("ams", user, 3)
			spend("iad", user, 3)
			for pop := range edges {
				if r, err := peek(pop, user); err != nil || r.Allowed {
					return fmt.Errorf("at %s %s stands at %+v, %v; want denied", pop, user, r, err)
				}
			}
			return nil
		})
	}

	var key struct {
		Name  string
		Rates []struct {
			Used uint64
			By   []struct{ Who, Region string }
		}
	}
	proc.Until(t, 30*time.Second, func() error {
		said, err := aggregatorSays(0, append([]string{"keys", "get", "test", "per-user", "user=u1", "-o", "json"}, operators["us"].asks...)...)
		if err != nil { // it may have no rules yet
			return err
		}
		if err := json.Unmarshal([]byte(said), &key); err != nil {
			return err
		}
		if len(key.Rates) != 1 || key.Rates[0].Used < 10 || len(key.Rates[0].By) < 2 {
			return fmt.Errorf("keys get says %+v", key)
		}
		return nil
	})
	proc.Until(t, 30*time.Second, func() error { // eu's has rules, too
		_, err := aggregatorSays(0, append([]string{"keys", "top"}, operators["eu"].asks...)...)
		return err
	})
	if said := keys("us", 0, "top", "--by", "allowed"); !strings.Contains(said, key.Name) {
		t.Errorf("keys top says %s, want %s in it", said, key.Name)
	}
	if said, err := aggregatorSays(1, "keys", "reset", "test", "per-user", "user=u1", "--server", servers["us"], "--token-file", vi); err != nil || !strings.Contains(said, "takes the role editor") {
		t.Errorf("a viewer's reset says %s, %v", said, err)
	}
	if said := keys("eu", 3, "grant", "test", "per-user", "usr=u1", "--add", "5", "--for", "1h"); !strings.Contains(said, "E332") {
		t.Errorf("of another part of the key it says %s", said)
	}

	keys("us", 0, "reset", "test", "per-user", "user=u1", "-m", "ticket 4711")
	t.Logf("a reset was in force in both regions after %v", both("u1", 10*time.Second, fresh, "10 of 10 left"))
	both("u2", time.Second, denied, "denied")

	keys("eu", 0, "grant", "test", "per-user", "user=u2", "--add", "30", "--for", "1h")
	both("u2", 10*time.Second, limitOf(40), "a limit of 40")
	proc.Until(t, 30*time.Second, func() error {
		if passed := spend("iad", "u2", 1); passed == 0 {
			return fmt.Errorf("with 30 more u2 does not pass")
		}
		return nil
	})
	if said := keys("us", 1, "grant", "test", "per-user", "--name", keyName(t, keys("us", 0, "exceptions", "test", "-o", "json"), "grant"), "--add", "30", "--for", "1h"); !strings.Contains(said, "--replace") {
		t.Errorf("the same grant once more says %s", said)
	}

	keys("eu", 0, "override", "test", "per-user", "user=u3", "--limit", "2", "--for", "5s")
	both("u3", 4*time.Second, limitOf(2), "a limit of 2")
	both("u3", 30*time.Second, limitOf(10), "a limit of 10, as the override has ended")

	// What is told of it afterwards has the key by its name.
	for _, line := range strings.Split(keys("eu", 0, "exceptions", "test"), "\n") {
		if strings.Contains(line, "reset") && (strings.Contains(line, "u1") || !strings.Contains(line, key.Name) || !strings.Contains(line, "ticket 4711")) {
			t.Errorf("exceptions has %s, want the key by its name alone, and why", line)
		}
	}
	said := operators["us"].rules(0, "audit")
	if !strings.Contains(said, "reset key") || strings.Contains(said, "u1") {
		t.Errorf("the audit log says %s", said)
	}
}

// keyName is the name of the key that has an exception of a kind.
func keyName(t *testing.T, text, kind string) string {
	t.Helper()
	var told struct {
		Exceptions []struct{ Kind, Name string }
	}
	if err := json.Unmarshal([]byte(text), &told); err != nil {
		t.Fatal(err)
	}
	for _, e := range told.Exceptions {
		if e.Kind == kind {
			return e.Name
		}
	}
	t.Fatalf("there is no %s in %s", kind, text)
	return ""
}
