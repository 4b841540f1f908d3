package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/test/proc"
)

// An operator makes the region's queue of deferred requests, and changes it, under the shipped
// configuration of NATS; a PoP's credentials show what is missing, and make nothing.
func TestDeferredApply(t *testing.T) {
	cleanEnv(t)
	users := proc.NewNATSUsers(t)
	hub := proc.NATSCluster(t, users, "eu", 1)
	proc.NATSJetStream(t, users, "eu", hub.Leafs[0], t.TempDir())
	as := func(user string) string {
		return fmt.Sprintf(" --region eu --pop ams --proxy-defer-domain eu --nats-urls %s --nats-nkey %s", hub.URLs()[0], users.SeedFile(t, user))
	}
	try := func(line string, code int, stdout, stderr string) error {
		var out, errs bytes.Buffer
		got := run(strings.Fields("deferred "+line), strings.NewReader(""), &out, &errs)
		if got != code || !regexp.MustCompile(stdout).MatchString(out.String()) || !regexp.MustCompile(stderr).MatchString(errs.String()) {
			return fmt.Errorf("deferred %s: exit code %d, want %d; %q, want it to match %q; %q, want it to match %q", line, got, code, &out, stdout, &errs, stderr)
		}
		return nil
	}
	do := func(line string, code int, stdout, stderr string) {
		t.Helper()
		if err := try(line, code, stdout, stderr); err != nil {
			t.Error(err)
		}
	}
	const missing = `(?m)^SG_DEFER_eu +missing *$(.|\n)*^SG_DEFER_eu > replay +missing *$`
	proc.Until(t, time.Minute, func() error { // leafs have yet to tell each other what they serve
		return try("apply"+as("POP_AMS"), 1, missing, "nothing is changed: say --yes")
	})
	do("", 0, "apply", "")
	do("apply", 3, "", "region")
	do("apply --region eu --nats-urls nats://127.0.0.1:1", 4, "", "unreachable")
	do("apply --yes"+as("POP_AMS"), 1, missing, "make SG_DEFER_eu: context deadline exceeded; done is nothing, .*--nats-nkey")
	do("apply"+as("OPERATOR"), 1, missing, "nothing is changed: say --yes")
	do("apply --yes"+as("OPERATOR"), 0, "of eu is as these settings say", "^$")
	do("apply"+as("POP_AMS"), 0, `(?m)^SG_DEFER_eu > replay +ok *$`, "^$")
	const larger = " --proxy-defer-max-bytes 1100MiB"
	do("apply"+larger+as("OPERATOR"), 1, `(?m)^SG_DEAD_eu +max_bytes +1073741824 +1153433600$`, "nothing is changed: say --yes")
	do("apply --yes"+larger+as("OPERATOR"), 0, "is as these settings say", "^$")
	do("apply --yes"+larger+as("OPERATOR"), 0, `(?m)^SG_DEAD_eu +ok *$`, "^$")
}

// What an edge tells its operator to run has the settings of that edge, wherever they come from.
func TestApplyCommand(t *testing.T) {
	cleanEnv(t)
	t.Setenv("SPILLGATE_REGION", "eu")
	fs := pflag.NewFlagSet("edge", pflag.ContinueOnError)
	configs.BindEdgeFlags(fs)
	if err := fs.Parse([]string{"--config", "../../configs/edge.yaml", "--proxy-defer-max-bytes", "2GiB", "--name", "e1"}); err != nil {
		t.Fatal(err)
	}
	s, err := configs.LoadDeferred(fs) // it misses no secret
	if err != nil {
		t.Fatal(err)
	}
	c := deferredConfig(s, nil)
	if want := "edge deferred apply --yes --config ../../configs/edge.yaml --region=eu --proxy-defer-max-bytes=2GiB"; c.Command != want || c.Region != "eu" || c.Bytes != 2<<30 {
		t.Errorf("%+v; want %s", c, want)
	}
	if s.Secret = []byte("the cluster's secret"); !bytes.Equal(deferredConfig(s, nil).Secret, s.Secret) {
		t.Error("edges make ids without the cluster's secret")
	}
}

// Whatever a word of it is, a shell reads it as it is.
func TestApplyCommandIsForAShell(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "my $HOME; it's")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "edge.yaml")
	if err := os.WriteFile(file, []byte("region: eu\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cleanEnv(t)
	fs := pflag.NewFlagSet("edge", pflag.ContinueOnError)
	configs.BindEdgeFlags(fs)
	if err := fs.Parse([]string{"--config", file, "--proxy-defer-max-bytes", "2 GiB"}); err != nil {
		t.Fatal(err)
	}
	s, err := configs.LoadDeferred(fs)
	if err != nil {
		t.Fatal(err)
	}
	command := deferredConfig(s, nil).Command
	words, err := exec.Command("sh", "-c", `printf '%s\n' `+command).Output()
	if want := "edge\ndeferred\napply\n--yes\n--config\n" + file + "\n--proxy-defer-max-bytes=2 GiB\n"; err != nil || string(words) != want {
		t.Errorf("%s: a shell reads %q, %v; want %q", command, words, err, want)
	}
	if word := shellWord(""); word != "''" {
		t.Errorf("no word is %s, want two quotes", word)
	}
}
