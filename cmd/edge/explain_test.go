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
		{Name: "plans", Group: "plans", Match: limit.MatchSpec{Has: []string{"plan"}}, TierFrom: "plan", Rates: []limit.RateSpec{{Name: "minute", Limit: 2, Per: time.Minute}}},
		{Name: "posts", Match: limit.MatchSpec{Methods: []string{"POST"}}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}},
		{Name: "spam", Group: "lists", Match: limit.MatchSpec{CIDR: []string{"192.0.2.0/24"}}, Deny: true},
	}, Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}}, Keys: map[string]limit.KeySource{"plan": {From: []string{"header.X-Plan"}}}})
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
		{at + "user=u header.X-Plan=gold", 0, "  tenant \"gold\": tier gold, limits times 10, by the document\n  plans.minute: 20 per 1m", ""},
		{at + "user=u header.X-Plan=iron", 0, "  tenant \"iron\": the rule's own limits\n  plans.minute: 2 per 1m", ""},
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

// What a tenant has is told with where it is from.
func TestTenantTold(t *testing.T) {
	until := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for want, tenant := range map[string]httpapi.ExplainedTenant{
		`tenant "a": tier gold, limits times 10, by the store until 2026-12-01T00:00:00Z`:         {Name: "a", Tier: "gold", Multiply: 10, From: "store", Until: &until},
		`tenant "a": limits times 3.5, by the store`:                                              {Name: "a", Multiply: 3.5, From: "store"},
		`tenant "a": tier "golf" by the store, which the document has not: the rule's own limits`: {Name: "a", Tier: "golf", Multiply: 1, From: "store", Unknown: true},
		`tenant "a": a multiplier by the store that the rule cannot have: its own limits`:         {Name: "a", Multiply: 1, From: "store", Unknown: true},
		`no tenant: the rule's own limits`:                                                        {Multiply: 1},
	} {
		if got := tenantTold(&tenant); got != want {
			t.Errorf("%+v is told as %s, want %s", tenant, got, want)
		}
	}
}
