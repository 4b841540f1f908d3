package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/test/proc"
)

// An operator looks at the log of rights, and vouches for it; each thing that keeps her
// from it has an exit code and a sentence.
func TestRightsCommands(t *testing.T) {
	cleanEnv(t)
	server := proc.Redis(t)
	url := "--region eu --redis-url redis://" + server.Addr
	do := func(line string, code int, stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		if got := run(strings.Fields("rights "+line), strings.NewReader(""), &out, &errs); got != code {
			t.Errorf("rights %s: exit code %d, want %d; %s", line, got, code, &errs)
		}
		for _, w := range []struct{ got, want string }{{out.String(), stdout}, {errs.String(), stderr}} {
			if !regexp.MustCompile(w.want).MatchString(w.got) {
				t.Errorf("rights %s: %q, want it to match %q", line, w.got, w.want)
			}
		}
	}
	do("", 0, "show", "")
	do("show --region eu", 3, "", "without a Redis there is no log of rights")
	do("show --region eu --redis-url redis://127.0.0.1:1", 4, "", "unreachable")
	do("show "+url, 0, `(?m)^0 +none +0 +nothing: no aggregator took it yet$`, `appendonly is "no"`)
	do("trust "+url, 1, "none", "nothing is changed: say --yes")
	do("show "+url, 0, `(?m)^0 +none `, "")

	log, err := redisstore.NewRights(redisstore.Config{Addrs: []string{server.Addr}, Prefix: "sg-eu"}, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.Take(t.Context(), 0, 1); err != nil {
		t.Fatal(err)
	}
	do("show "+url, 0, `(?m)^0 +\d+s +0 +nothing yet$`, "")
	do("trust --yes "+url+" --lanes 4", 1, "", "the log is of 8 lanes, and 4 are configured")
	do("trust --yes "+url, 0, "The log of all 8 lanes of eu is trusted", "")
	do("show "+url, 0, `(?m)^7 +trusted +0 +all windows$`, "")
	if origin, err := log.Take(t.Context(), 7, 2); err != nil || origin.Age < longAgo {
		t.Errorf("Take: %v old, %v; want it trusted", origin.Age, err)
	}
}
