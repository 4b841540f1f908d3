package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// limited is a rules file with one limit for each user.
func limited(limit int) string {
	return fmt.Sprintf(`schema: spillgate/v1
namespace: test
rules:
  - name: per-user
    key: user
    rates: [{name: hour, limit: %d, per: 1h}]
`, limit)
}

// TestRulesReload: bad rules change nothing, good ones hold at once, and what
// was counted stays counted.
func TestRulesReload(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	rewrite := func(text string) {
		t.Helper()
		next := rules + ".next" // the watch would read one that is written in its place while it is empty, and count that
		if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
			t.Fatalf("rewrite rules: %v", err)
		}
		if err := os.Rename(next, rules); err != nil {
			t.Fatalf("rewrite rules: %v", err)
		}
	}
	rewrite(limited(10))
	nobody := "nats://" + proc.FreeAddr(t)
	e := startEdge(t, "eu", "eu-1", nobody, rules)
	ask := func(allowed bool, limit, remaining uint64) {
		t.Helper()
		r, err := e.check(call{Attributes: map[string]string{"user": "u1"}})
		if err != nil || r.Allowed != allowed || r.Limit != limit || r.Remaining != remaining {
			t.Errorf("check = %+v, %v, want allowed %v, limit %d, remaining %d", r, err, allowed, limit, remaining)
		}
	}
	const failures, successes = `spillgate_config_reloads_total{result="error"}`, `spillgate_config_reloads_total{result="ok"}`
	for i := range uint64(6) {
		ask(true, 10, 9-i)
	}

	rewrite("schema: spillgate/v1\nnamespace: test\nrules:\n  - name: per-user\n    key: user\n    rates: [{limit: many, per: 1h}]\n")
	e.Signal(syscall.SIGHUP)
	awaitMetric(t, 2*time.Second, e.Admin, failures, 1)
	awaitMetric(t, 2*time.Second, e.Admin, successes, 0)
	ask(true, 10, 3)

	rewrite(limited(8))
	e.Signal(syscall.SIGHUP)
	awaitMetric(t, 2*time.Second, e.Admin, successes, 1)
	ask(true, 8, 0)
	ask(false, 8, 0)

	// Without a signal too: the file is watched.
	rewrite(limited(9))
	proc.Until(t, 5*time.Second, func() error { // the watch may have read the file before once more
		r, err := e.check(call{Attributes: map[string]string{"user": "u1"}, Peek: true})
		if err == nil && r.Limit != 9 {
			err = fmt.Errorf("the limit is %d, want 9", r.Limit)
		}
		return err
	})
	ask(true, 9, 0)
	ask(false, 9, 0)
	awaitMetric(t, 2*time.Second, e.Admin, failures, 1)

	// A file that is gone is bad rules, and no reason to let everybody pass.
	if err := os.Remove(rules); err != nil {
		t.Fatalf("remove rules: %v", err)
	}
	awaitMetric(t, 2*time.Second, e.Admin, failures, 2)
	ask(false, 9, 0)
	heedsNoPage(t, e.Admin)
}

// TestAggregatorFollowsRules: it tells the truth of the rules that it is given, and of
// others when they change; bad ones change nothing.
func TestAggregatorFollowsRules(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	rewrite := func(text string) {
		t.Helper()
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatalf("rewrite rules: %v", err)
		}
	}
	rewrite(limited(10))
	a := daemons.Aggregator(t, nil, "--region", "eu", "--name", "a1", "--nats-urls", "nats://"+proc.FreeAddr(t), "--rules-path", rules)
	tells := func(limit string) func() error {
		return func() error {
			res, err := http.Get(a.Admin + "/admin/v1/rules/per-user/truth")
			if err != nil {
				return err
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err == nil && !strings.Contains(string(text), `"limit":`+limit+`,`) {
				err = fmt.Errorf("%d %s, want a limit of %s", res.StatusCode, text, limit)
			}
			return err
		}
	}
	proc.Until(t, 5*time.Second, tells("10"))
	rewrite("schema: spillgate/v1\nnamespace: test\nrules:\n  - name: per-user\n    key: user\n    rates: [{limit: many, per: 1h}]\n")
	a.Signal(syscall.SIGHUP)
	awaitMetric(t, 5*time.Second, a.Admin, `spillgate_config_reloads_total{result="error"}`, 1)
	proc.Until(t, 5*time.Second, tells("10"))
	rewrite(limited(8))
	a.Signal(syscall.SIGHUP)
	proc.Until(t, 5*time.Second, tells("8"))
	heedsNoPage(t, a.Admin)
}

// heedsNoPage asks an admin listener as a page does whose name was made to lead there.
func heedsNoPage(t *testing.T, admin string) {
	t.Helper()
	for _, path := range []string{"/metrics", "/healthz", "/admin/v1/regions", "/debug/pprof/"} {
		r, err := http.NewRequest("GET", admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example"
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden {
			t.Errorf("%s for evil.example: %s, want 403", path, res.Status)
		}
	}
}

// TestEnvoyRulesAreWarnedOf: what edge validate tells of files of envoyproxy/ratelimit an
// edge that serves them tells too, as it starts and when they change.
func TestEnvoyRulesAreWarnedOf(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	rewrite := func(slip string) {
		t.Helper()
		text := "domain: test\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 5}}]\n" + slip + ": 1\n"
		if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
			t.Fatalf("rewrite rules: %v", err)
		}
	}
	rewrite("requests_per_unit")
	e := startEdge(t, "eu", "eu-1", "nats://"+proc.FreeAddr(t), rules, "--rules-format", "envoy")
	told := func(slip string) func() error {
		return func() error {
			for line := range strings.Lines(e.Log()) {
				if strings.Contains(line, "W241") && strings.Contains(line, slip+" has no meaning here") && strings.Contains(line, rules) {
					return nil
				}
			}
			return fmt.Errorf("%s is not warned of:\n%s", slip, e.Log())
		}
	}
	proc.Until(t, 5*time.Second, told("requests_per_unit"))
	rewrite("share_threshold")
	e.Signal(syscall.SIGHUP)
	proc.Until(t, 5*time.Second, told("share_threshold"))
}
