package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spillgate/spillgate/cmd/edge/demo"
)

func TestDemoCommandLines(t *testing.T) {
	cleanEnv(t)
	empty := filepath.Join(t.TempDir(), "empty.log")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []commandLine{
		{"demo --help", 0, "10 % of requests roam", ""},
		{"demo --show-rules", 0, demo.Rules, ""},
		{"demo now", 2, "", "Try: edge demo --help"},
		{"demo --cut eu", 2, "", "want REGION@AFTER+LENGTH, such as eu@5s+5s"},
		{"demo --cut sa@1s+1s", 2, "", `there is no region "sa"; there are eu, us, ap`},
		{"demo --regions 0 --edges 51", 2, "", "--regions 0: want 1 to 20\n--edges 51: want 1 to 50"},
		{"demo --listen 127.0.0.1:65534", 2, "", "--listen 127.0.0.1:65534: 6 edges take the ports up to 65539"},
		{"demo --for soon", 2, "", "--for"},
		{"demo --for 0s", 2, "", "--for 0s: want a time such as 15s"},
		{"demo --for 3s --cut eu@3s+5s", 2, "", "--cut eu@3s+5s, --for 3s: it ends before the cut begins"},
		{"demo --redis-url=", 2, "", "--redis-url is empty: leave it out"},
		{"demo -o yaml", 2, "", "--output yaml: want text or json"},
		{"demo --log " + empty, 1, "", "no request in combined log format: it is empty"},
		{"demo --log none.log", 1, "", "none.log"},
		{"demo --rules " + badRules, 3, "", badRules + ":7:23: E145"},
		{"demo --rules none.yaml", 3, "", "there is no rules file at none.yaml"},
		{"demo --redis-url redis://127.0.0.1:1", 4, "", "--redis-url: unreachable"},
		{"demo --redis-url http://127.0.0.1:1", 2, "", "the scheme is \"http\""},
		{"demo --listen 127.0.0.1:0 --for 600ms --rules " + goodRules, 0, "worst over-admission", ""},
		{"demo --listen 127.0.0.1:0 --for 600ms --regions 1 --edges 1 -o json", 0, `"name": "eu"`, "http://127.0.0.1:"},
	} {
		t.Run(tc.line, tc.run)
	}
}
