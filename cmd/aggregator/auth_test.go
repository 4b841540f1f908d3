package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What `auth init` writes is what deploy/nats/users.conf has, for other regions and keys.
func TestUsersAreThoseOfDeploy(t *testing.T) {
	users := &natsUsers{Operator: "$SG_NATS_KEY_OPERATOR"}
	for _, pop := range []string{"eu/ams", "eu/fra", "us/iad", "ap/sin"} {
		if err := users.add(pop, func(user string) (string, error) {
			kind, rest, _ := strings.Cut(user, "-")
			if kind == "pop" {
				_, rest, _ = strings.Cut(rest, "_")
			}
			return "$SG_NATS_KEY_" + strings.ToUpper(kind+"_"+rest), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := users.render()
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := os.ReadFile("../../deploy/nats/users.conf")
	if err != nil {
		t.Fatal(err)
	}
	if _, want, _ := bytes.Cut(shipped, []byte("\nSG_USERS:")); string(got) != "SG_USERS:"+string(want) {
		t.Errorf("the template of users, cmd/aggregator/users.conf.tmpl, makes\n%s\nand deploy/nats/users.conf has\nSG_USERS:%s", got, want)
	}
}

func TestAuthInit(t *testing.T) {
	cleanEnv(t)
	dir := filepath.Join(t.TempDir(), "users")
	says := func(code int, want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		if got := run(append(append([]string{"auth"}, args...), "--dir", dir), strings.NewReader(""), &out, &out); got != code || !strings.Contains(out.String(), want) {
			t.Errorf("aggregator auth %q: exit code %d, %s, want %d with %q", args, got, &out, code, want)
		}
	}
	says(3, "auth init makes it", "add-pop", "eu/ams")
	says(1, "is no PoP", "init", "--pops", "eu")
	says(1, "is no PoP", "init", "--pops", "eu/AMS")
	says(1, "already", "init", "--pops", "eu/ams,eu/ams")
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("what is refused has left %q, %v", left, err)
	}
	says(0, "agg-eu.nk, js-eu.nk, operator.nk, pop-eu_ams.nk", "init", "--pops", "eu/ams")
	says(1, "auth add-pop adds to it", "init", "--pops", "eu/ams")
	seed, err := os.ReadFile(filepath.Join(dir, "pop-eu_ams.nk"))
	if err != nil || !bytes.HasPrefix(seed, []byte("SU")) {
		t.Errorf("the seed is %s, %v", seed, err)
	}
	before, err := os.ReadFile(filepath.Join(dir, usersConf))
	if err != nil || bytes.Contains(before, bytes.TrimSpace(seed)) {
		t.Errorf("users.conf has the seed in it, or is not there: %v", err)
	}
	says(0, "agg-us.nk, js-us.nk, pop-eu_fra.nk, pop-us_iad.nk", "add-pop", "eu/fra", "us/iad")
	says(1, "already", "add-pop", "us/iad")
	says(0, "pop-us-a_b.nk, pop-us_a-b.nk", "add-pop", "us-a/b", "us/a-b")
	after, err := os.ReadFile(filepath.Join(dir, usersConf))
	if err != nil || bytes.Count(after, []byte("{ nkey: U")) != 12 || bytes.Count(before, []byte("{ nkey: U")) != 4 {
		t.Errorf("users.conf is %s, %v", after, err)
	}
	for line := range bytes.Lines(before) {
		if bytes.Contains(line, []byte("{ nkey: U")) && !bytes.Contains(after, line) {
			t.Errorf("who was there before is gone, or another: %s", line)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 14 {
		t.Errorf("there are %q, %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want it for its owner alone", file, info.Mode(), err)
		}
	}
}

// What is empty, as a variable of a script may be, does not stand for all.
func TestEmptyFlagsAreNotAll(t *testing.T) {
	cleanEnv(t)
	for _, line := range [][]string{
		{"auth", "token", "--name", "x", "--role", "admin", "--namespaces", ""}, {"auth", "token", "--name", "x", "--role", "admin", "--expires-in", "-1h"}, {"auth", "token", "--name", "x", "--role", "admin", "--expires-in", "0s"},
		{"rules", "apply", "../../configs/rules.yaml", "--regions", ""},
	} {
		var out bytes.Buffer
		if code := run(line, strings.NewReader(""), &out, &out); code != 3 || strings.Contains(out.String(), "sgt_") {
			t.Errorf("aggregator %q: exit code %d, %s, want 3", line, code, &out)
		}
	}
}
