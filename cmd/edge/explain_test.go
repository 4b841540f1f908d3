package main

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// explain asks a real node over its admin listener.
func TestExplainCommand(t *testing.T) {
	cleanEnv(t)
	node := limitertest.Node(t, limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{
		{Name: "per-user", Priority: 10, Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "minute", Limit: 2, Per: time.Minute}}},
		{Name: "posts", Match: limit.MatchSpec{Methods: []string{"POST"}}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}},
		{Name: "spam", Group: "lists", Match: limit.MatchSpec{CIDR: []string{"192.0.2.0/24"}}, Deny: true},
	}})
	api, err := httpapi.New(node, httpapi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.Admin(prometheus.NewRegistry()))
	t.Cleanup(server.Close)
	socket, err := httpapi.Listen("unix:" + filepath.Join(t.TempDir(), "admin"))
	if err != nil {
		t.Fatal(err)
	}
	local := httptest.NewUnstartedServer(httpapi.Local(api.Admin(prometheus.NewRegistry())))
	local.Listener.Close()
	local.Listener = socket
	local.Start()
	t.Cleanup(local.Close)
	at := "explain --server " + server.URL + " "
	for _, c := range []commandLine{
		{at + "user=u method=GET", 0, "ALLOW by per-user.minute\n\nper-user (priority 10, enforce)  user=u\n  per-user.minute: 2 per 1m, global, adaptive\n    would admit\n    used 0 here, 0 elsewhere; 2 left; this edge had not seen the key\n", ""},
		{at + "user=u method=GET", 0, "  posts  match.methods  method is \"GET\"; want POST\n", ""},
		{at + "--cost 3 user=u", 5, "denies: the limit is used up; try again in", ""},
		{at + "--namespace shop -o json user=u", 0, `"allowed": true`, ""},
		{at + "user=u client_ip=192.0.2.9", 5, "DENY by rule spam\n", ""},
		{at + "--namespace nobody user=u", 1, "", "404 Not Found: namespace: there are no rules for \"nobody\""},
		{"explain --server unix:" + socket.Addr().String() + " user=u method=GET", 0, "ALLOW by per-user.minute", ""},
		{"explain --server unix:/nowhere user=u", 4, "", "/nowhere"},
		{at + "user", 2, "", `"user" is no attribute: want NAME=VALUE, such as client_ip=192.0.2.1`},
		{"explain --server " + server.URL + "/metrics user=u", 1, "", "it is no admin listener of an edge"},
		{"explain --server http://127.0.0.1:1 user=u", 4, "", "--server says where that is"},
	} {
		t.Run(c.line, c.run)
	}
}
