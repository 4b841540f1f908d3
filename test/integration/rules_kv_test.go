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

// operator runs `aggregator rules` as an operator does, of a region.
type operator struct {
	t    *testing.T
	nats []string // by which she reaches NATS
	asks []string // by which an aggregator, and who she is
}

// rules runs a command, which must exit with code, and returns what it says.
func (o *operator) rules(code int, args ...string) string {
	o.t.Helper()
	text, err := o.try(code, args...)
	if err != nil {
		o.t.Fatal(err)
	}
	return text
}

func (o *operator) try(code int, args ...string) (string, error) {
	with := o.asks
	if args[0] == "init" {
		with = o.nats
	}
	return aggregatorSays(code, append(append([]string{"rules"}, args...), with...)...)
}

// aggregatorSays runs a command of the aggregator, which must exit with code.
func aggregatorSays(code int, args ...string) (string, error) {
	cmd := exec.Command(daemons.AggregatorPath(), args...)
	cmd.Env = proc.Environ()
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		return "", fmt.Errorf("aggregator %q: %v, want exit code %d\n%s", args, err, code, out)
	}
	return string(out), nil
}

// newToken has somebody let in by a file of tokens, and returns the file with his.
func newToken(t *testing.T, tokens, name, role string, more ...string) string {
	t.Helper()
	secret, err := aggregatorSays(0, append([]string{"auth", "token", "--name", name, "--role", role, "--file", tokens}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRulesFromNATS: an operator changes rules by the aggregators of one region or another, as far as her
// token goes; edges and aggregators of all have them within a second; a bad version changes nothing, and
// without NATS an edge starts with the last good ones. What was done, and tried, is in the audit log.
func TestRulesFromNATS(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGateways(t, users, "eu", "us")
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	ada, ci := newToken(t, tokens, "ada", "admin"), newToken(t, tokens, "ci", "editor", "--namespaces", "other")
	streams, operators := map[string]*proc.NATSServer{}, map[string]*operator{}
	for region, peer := range map[string]string{"eu": "us", "us": "eu"} {
		urls := sites[region].URLs()[0]
		streams[region] = proc.NATSJetStream(t, users, region, sites[region].Leafs[0], t.TempDir())
		agg := daemons.Aggregator(t, nil, "--region", region, "--name", "a1", "--peers", peer, "--nats-urls", urls,
			"--nats-nkey", users.SeedFile(t, "AGG_"+strings.ToUpper(region)), "--rules-source", "kv", "--rules-kv-domain", region, "--admin-tokens", tokens)
		operators[region] = &operator{t, []string{"--rules-kv-domain", region, "--nats-urls", urls, "--nats-nkey", users.SeedFile(t, "OPERATOR")}, []string{"--server", agg.Admin, "--token-file", ada}}
	}
	eu := operators["eu"]
	proc.Until(t, time.Minute, func() error { // NATS is heard of
		said, err := eu.try(4, "list")
		if err == nil && !strings.Contains(said, "aggregator rules init makes it") {
			err = fmt.Errorf("without a bucket it says %s", said)
		}
		return err
	})
	proc.Until(t, time.Minute, func() error { // the domains are heard of
		if _, err := operators["eu"].try(0, "init"); err != nil {
			return err
		}
		_, err := operators["us"].try(0, "init", "--origin", "eu")
		return err
	})
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "rules.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	start := func(region, pop, file string) *proc.EdgeServer {
		return daemons.Edge(t, []string{"SPILLGATE_SECRET=" + secret}, "--region", region, "--pop", pop, "--name", pop+"-1", "--default-namespace", "test",
			"--nats-urls", sites[region].URLs()[0], "--nats-nkey", users.SeedFile(t, "POP_"+strings.ToUpper(pop)),
			"--rules-source", "kv", "--rules-kv-domain", region, "--rules-kv-file", file)
	}
	if said := eu.rules(1, "apply", write(limited(10))); !strings.Contains(said, "+    rates: [{name: hour, limit: 10, per: 1h}]") || !strings.Contains(said, "nothing is changed") {
		t.Errorf("without --yes it says %s", said)
	}
	eu.rules(0, "apply", write(limited(10)), "--yes", "-m", "the first")
	kept := filepath.Join(t.TempDir(), "ams")
	ams, iad := start("eu", "ams", kept), start("us", "iad", "")
	limit := func(e *proc.EdgeServer, want uint64) {
		t.Helper()
		c := newClient(t, e.URL)
		proc.Until(t, 30*time.Second, func() error {
			r, err := c.check(call{Attributes: map[string]string{"user": "u1"}, Peek: true})
			if err == nil && r.Limit != want {
				err = fmt.Errorf("the limit is %d, want %d", r.Limit, want)
			}
			return err
		})
	}
	limit(ams, 10)
	limit(iad, 10)
	eu.rules(0, "apply", write(limited(20)), "--yes", "-m", "more")
	began := time.Now()
	limit(ams, 20)
	limit(iad, 20)
	t.Logf("a change was in force in both regions after %v", time.Since(began))

	// What has mistakes is written by nobody but who does without the command, and changes nothing.
	if said := eu.rules(3, "apply", write(strings.Replace(limited(30), "limit: 30", "limit: many", 1)), "--yes"); !strings.Contains(said, "rules.yaml:6:") {
		t.Errorf("of a mistake it says %s", said)
	}
	other := strings.Replace(limited(5), "namespace: test", "namespace: other", 1)
	eu.rules(0, "apply", write("# both\n---\n"+limited(30)+"---\n"+other), "--yes", "-m", "two")
	limit(iad, 30)
	awaitMetric(t, 30*time.Second, iad.Admin, `spillgate_rules_namespaces{state="in_force"}`, 2)
	eu.rules(0, "rollback", "test", "--yes")
	limit(ams, 20)
	limit(iad, 20)
	eu.rules(0, "remove", "other", "--yes", "-m", "not needed")
	awaitMetric(t, 30*time.Second, ams.Admin, `spillgate_rules_namespaces{state="in_force"}`, 1)
	operators["us"].rules(0, "apply", write(limited(25)), "--yes") // at a mirror it is written where that is from
	limit(ams, 25)
	limit(iad, 25)
	if said := eu.rules(0, "history", "test"); !strings.Contains(said, "the first") || !strings.Contains(said, "back to version 2") || strings.Count(said, "ada") != 5 {
		t.Errorf("the history is %s", said)
	}
	if said := eu.rules(0, "get", "test", "--version", "1"); said != limited(10) {
		t.Errorf("version 1 is %q", said)
	}
	if said := eu.rules(0, "list", "-o", "json"); !strings.Contains(said, `"namespace": "other"`) || !strings.Contains(said, `"deleted": true`) {
		t.Errorf("the list is %s", said)
	}
	if said := eu.rules(0, "list", "-o", "yaml"); !strings.Contains(said, "namespace: other") || !strings.Contains(said, "deleted: true") {
		t.Errorf("the list as YAML is %s", said)
	}
	if said := eu.rules(0, "apply", write(limited(25)), "--yes"); said != "Nothing differs.\n" {
		t.Errorf("where nothing differs it says %s", said)
	}

	// In one region first, where it is compared with what was there.
	eu.rules(0, "apply", write(limited(50)), "--regions", "us", "--yes")
	limit(iad, 50)
	limit(ams, 25)
	if said := eu.rules(1, "apply", write(limited(60)), "--yes"); !strings.Contains(said, "is rolled out in us") {
		t.Errorf("while it is rolled out it says %s", said)
	}
	if said := eu.rules(0, "list"); !strings.Contains(said, " us ") {
		t.Errorf("the list is %s", said)
	}
	for range 30 { // of which 25 had passed before
		if _, err := newClient(t, iad.URL).check(call{Attributes: map[string]string{"user": "many"}}); err != nil {
			t.Fatal(err)
		}
	}
	awaitMetric(t, 30*time.Second, iad.Admin, `spillgate_candidate_decisions_total{candidate="deny",live="allow",namespace="test",rule="per-user"}`, 5)
	eu.rules(0, "revert", "test", "--yes")
	limit(iad, 25)
	eu.rules(0, "apply", write(limited(55)), "--regions", "us", "--yes")
	limit(iad, 55)
	eu.rules(0, "promote", "test", "--yes")
	limit(ams, 55)
	eu.rules(0, "apply", write(limited(25)), "--yes")
	limit(ams, 25)

	if said := eu.rules(1, "apply", write(limited(2))); !strings.Contains(said, `2 of rule "per-user" is a tenth of what it was, 25, or less`) {
		t.Errorf("of a zero too few it says %s", said)
	}
	if said := eu.rules(0, "rollback", "test", "--yes"); !strings.Contains(said, "test: version") { // and back
		t.Errorf("it says %s", said)
	}
	eu.rules(0, "apply", write(limited(25)), "--yes")
	regions, err := aggregatorSays(0, append([]string{"regions"}, eu.asks...)...)
	if err != nil || !strings.Contains(regions, "self") {
		t.Errorf("the regions are %s, %v", regions, err)
	}

	// Who may do what.
	asks := eu.asks
	eu.asks = []string{"--server", asks[1], "--token-file", ci}
	if said := eu.rules(1, "apply", write(limited(1)), "--yes"); !strings.Contains(said, "ci may touch") {
		t.Errorf("ci, who may not, is told %s", said)
	}
	eu.rules(0, "apply", write(other), "--yes", "-m", "from CI")
	if said := eu.rules(1, "remove", "other", "--yes"); !strings.Contains(said, "takes the role admin") {
		t.Errorf("ci, who may not take it away, is told %s", said)
	}
	eu.asks = []string{"--server", asks[1]}
	if said := eu.rules(1, "list"); !strings.Contains(said, "a token is wanted") {
		t.Errorf("nobody is told %s", said)
	}
	eu.asks = asks
	if said := eu.rules(0, "audit", "--who", "ci"); !strings.Contains(said, "from CI") || !strings.Contains(said, "done") || strings.Contains(said, "ada") {
		t.Errorf("the audit log is %s", said)
	}

	// Without NATS.
	streams["eu"].Kill()
	if said := operators["us"].rules(4, "apply", write(limited(30)), "--yes"); !strings.Contains(said, "the rules cannot be reached") {
		t.Errorf("without the bucket it says %s", said)
	}
	ams.Kill()
	ams.Restart()
	limit(ams, 25)
	streams["eu"].Restart()
	proc.Until(t, time.Minute, func() error {
		_, err := eu.try(0, "apply", write(limited(40)), "--yes")
		return err
	})
	limit(ams, 40)
}
