package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestRulesPathLeadsElsewhere deploys rules as operators do, by a link that is
// swapped and by a directory that is made again, with the edge's log and its
// rules side by side: each change holds, and the next does too.
func TestRulesPathLeadsElsewhere(t *testing.T) {
	t.Parallel()
	const successes, failures = `spillgate_config_reloads_total{result="ok"}`, `spillgate_config_reloads_total{result="error"}`
	root := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(dir string, limit int) {
		t.Helper()
		must(os.MkdirAll(filepath.Join(root, dir), 0o700))
		file := filepath.Join(root, dir, "rules.yaml")
		must(os.WriteFile(file+"~", []byte(limited(limit)), 0o600)) // so that none is read half-written
		must(os.Rename(file+"~", file))
	}
	link := func(to string) {
		t.Helper()
		must(os.Symlink(to, filepath.Join(root, "new")))
		must(os.Rename(filepath.Join(root, "new"), filepath.Join(root, "current"))) // mv -T
	}
	put("v1", 10)
	link("v1")
	put("plain", 10)
	nobody := "nats://" + proc.FreeAddr(t)
	linked := startEdge(t, "eu", "eu-1", nobody, filepath.Join(root, "current", "rules.yaml"))
	plain := startEdge(t, "eu", "eu-2", nobody, filepath.Join(root, "plain", "rules.yaml"))
	ask := func(e *edge, limit uint64) {
		t.Helper()
		if r, err := e.check(call{Attributes: map[string]string{"user": "u1"}}); err != nil || r.Limit != limit {
			t.Errorf("check = %+v, %v, want limit %d", r, err, limit)
		}
	}
	for i, limit := range []int{20, 30} {
		version := "v" + strconv.Itoa(i+2)
		put(version, limit)
		link(version)
		awaitMetric(t, 5*time.Second, linked.Admin, successes, float64(2*i+1))
		ask(linked, uint64(limit))
		put(version, limit+1)
		awaitMetric(t, 5*time.Second, linked.Admin, successes, float64(2*i+2))
		ask(linked, uint64(limit+1))
	}

	must(os.RemoveAll(filepath.Join(root, "plain")))
	awaitMetric(t, 5*time.Second, plain.Admin, failures, 1)
	put("plain", 20)
	awaitMetric(t, 5*time.Second, plain.Admin, successes, 1)
	ask(plain, 20)
	put("plain", 30)
	awaitMetric(t, 5*time.Second, plain.Admin, successes, 2)
	ask(plain, 30)
}

// TestBusyLogBesideTheRules: what is written in the same directory neither
// keeps the rules from being read, nor is their absence told again and again.
func TestBusyLogBesideTheRules(t *testing.T) {
	t.Parallel()
	const successes, failures = `spillgate_config_reloads_total{result="ok"}`, `spillgate_config_reloads_total{result="error"}`
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	write := func(limit int) {
		t.Helper()
		if err := os.WriteFile(rules+"~", []byte(limited(limit)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(rules+"~", rules); err != nil {
			t.Fatal(err)
		}
	}
	write(10)
	e := startEdge(t, "eu", "eu-1", "nats://"+proc.FreeAddr(t), rules)
	log, err := os.Create(filepath.Join(dir, "edge.log"))
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	// Ended and waited for below.
	go func() {
		defer close(stopped)
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-stop:
				return
			case <-pace.C:
				_, _ = log.WriteString("a line\n")
			}
		}
	}()
	write(20)
	awaitMetric(t, 5*time.Second, e.Admin, successes, 1)
	if err := os.Remove(rules); err != nil {
		t.Fatal(err)
	}
	awaitMetric(t, 5*time.Second, e.Admin, failures, 1)
	write(30)
	awaitMetric(t, 5*time.Second, e.Admin, successes, 2)
	awaitMetric(t, 5*time.Second, e.Admin, failures, 1)
	close(stop)
	<-stopped
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}
