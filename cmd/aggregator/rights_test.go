package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
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
	if _, err := log.Take(t.Context(), 0, 1, nil); err != nil {
		t.Fatal(err)
	}
	do("show "+url, 0, `(?m)^0 +\d+s +0 +nothing yet$`, "")
	do("trust --yes "+url+" --lanes 4", 1, "", "the log is of 8 lanes, and 4 are configured")
	do("trust --yes "+url, 0, "The log of all 8 lanes of eu is trusted", "")
	do("show "+url, 0, `(?m)^7 +trusted +0 +all windows$`, "")
	if origin, err := log.Take(t.Context(), 7, 2, nil); err != nil || origin.Age < longAgo {
		t.Errorf("Take: %v old, %v; want it trusted", origin.Age, err)
	}
}

// An operator sees who holds rights, and takes them back: no more than she consents to is
// exceeded.
func TestRightsAreTakenBack(t *testing.T) {
	cleanEnv(t)
	server := proc.Redis(t)
	url := " --region eu --redis-url redis://" + server.Addr
	do := func(line string, code int, stdout, stderr string) {
		t.Helper()
		var out, errs bytes.Buffer
		if got := run(strings.Fields("rights "+line+url), strings.NewReader(""), &out, &errs); got != code {
			t.Errorf("rights %s: exit code %d, want %d; %s", line, got, code, &errs)
		}
		for _, w := range []struct{ got, want string }{{out.String(), stdout}, {errs.String(), stderr}} {
			if !regexp.MustCompile(w.want).MatchString(w.got) {
				t.Errorf("rights %s: %q, want it to match %q", line, w.got, w.want)
			}
		}
	}
	do("list", 0, "^EDGE +REGION +KEYS +RIGHTS", "")
	do("revoke --yes --edge eu/ams/e1", 1, "", "no log of the lane yet")
	log, err := redisstore.NewRights(redisstore.Config{Addrs: []string{server.Addr}, Prefix: "sg-eu"}, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	const key = deltasync.Key(0x1234_5678_9abc_def1)
	lane := key.Lane(8)
	for l := range 8 {
		if _, err := log.Take(t.Context(), l, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	node := func(pop, name string) uint64 { return deltasync.NodeID("eu", pop, name) }
	if err := log.Commit(t.Context(), lane, 1, []escrow.Deposit{{Key: key, Version: 1, Holdings: []escrow.Holding{
		{Holder: 1, Node: node("ams", "e1"), Granted: 50, Returned: 8, Limit: 100, Lasts: time.Hour, Region: "eu"},
		{Holder: 2, Node: node("ams", "e2"), Granted: 7, Limit: 100, Lasts: time.Minute, Region: "eu"},
		{Holder: 3, Node: node("fra", "e1"), Granted: 20, Limit: 100, Lasts: time.Minute, Region: "eu"}}}}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"--edge ams", "--edge eu/ams/e1/x", "--edge eu/ams/e1 --key 12", "", "--edge eu/ams/e1 --undo --over 1", "--edge eu/*/e1"} {
		do("revoke --yes "+bad, 1, "", "want")
	}
	do("list --lanes 4", 1, "", "the log is of 8 lanes, and 4 are configured")
	do("list", 0, fmt.Sprintf(`(?m)^%016x +eu +1 +42 +1h0m0s +$`, node("ams", "e1")), "")
	do("list --edge eu/ams/e1", 0, fmt.Sprintf(`(?m)^%016x +%016x +100 +42 +1h0m0s +$`, node("ams", "e1"), uint64(key)), "")
	do("revoke --edge eu/ams/e1", 1, "", `nothing is changed: eu/ams/e1 holds 42 rights in 1 keys; say --yes to have them free 1h0m51s after .* --over 42 --yes`)
	if _, err := log.Load(t.Context(), lane, 1, nil); err != nil {
		t.Errorf("nothing is changed, but that the lane is another's: %v", err)
	}
	do("revoke --yes --edge eu/ams/e1", 0, "42 rights in 1 keys, is free in 1h0m51s", "")
	do("list", 0, fmt.Sprintf(`(?m)^%016x +eu +1 +42 +1h0m0s +revoked$`, node("ams", "e1")), "")
	do("revoke --yes --undo --edge eu/ams/e1", 0, "granted rights again", "")
	do("list", 0, fmt.Sprintf(`(?m)^%016x +eu +1 +42 +1h0m0s +$`, node("ams", "e1")), "")
	do("revoke --yes --over 48 --edge eu/ams", 1, "", "it holds 49 rights, and they stay its own until they run out: say --over 49")
	do("revoke --yes --over 49 --edge eu/ams", 0, "The 49 rights that it held are free", "")
	do("list", 0, fmt.Sprintf(`(?s)^[^\n]*\n%016x +eu +1 +20 +1m0s +\n%016x +revoked: all keys, all edges of the PoP\n$`, node("fra", "e1"), deltasync.PopOf(node("ams", ""))), "")
	do(fmt.Sprintf("revoke --yes --edge %016x --key %016x", node("fra", "e1"), uint64(key)), 0, "20 rights in 1 keys, is free in 1m16s", "")
	if o, err := log.Take(t.Context(), lane, 2, nil); err != nil || len(o.Revoked) != 2 || !o.Revoked[1].Of(node("fra", "e1"), key) {
		t.Errorf("Take: %+v, %v, want that two are revoked", o, err)
	}
}
