package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// What tenants ask, and are denied, is told at the admin listener by their names, and in metrics by tier.
func TestTenantsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	node := limitertest.Node(t, limit.Document{Namespace: "shop", Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 2}},
		Rules: []limit.RuleSpec{{Name: "api", Key: []string{"org"}, TierFrom: "org", Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}}}},
		limit.Document{Namespace: "plain", Rules: []limit.RuleSpec{{Name: "api", Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}}}})
	api, err := New(node, Config{Metrics: NewMetrics(reg)})
	if err != nil {
		t.Fatal(err)
	}
	server, admin := httptest.NewServer(api), httptest.NewServer(api.Admin(reg))
	t.Cleanup(server.Close)
	t.Cleanup(admin.Close)
	ask := func(namespace, org string, times int) {
		t.Helper()
		for range times {
			send(t, "POST", server.URL+"/v1/check", fmt.Sprintf(`{"namespace":%q,"attributes":{"org":%q}}`, namespace, org))
		}
	}
	ask("shop", "gold", 6)
	ask("shop", "acme", 3)
	ask("shop", "umbrella", 1)
	ask("shop", "", 1)
	ask("plain", "acme", 5)
	send(t, "POST", server.URL+"/v1/check", `{"namespace":"shop","peek":true,"attributes":{"org":"acme"}}`)
	for query, want := range map[string]string{
		"":                   `{"by":"requests","namespaces":[{"namespace":"shop","tenants":[{"tenant":"gold","requests":6,"denied":2},{"tenant":"acme","requests":3,"denied":1},{"tenant":"umbrella","requests":1,"denied":0}]}]}`,
		"?by=denied&limit=1": `{"by":"denied","namespaces":[{"namespace":"shop","tenants":[{"tenant":"gold","denied":2}]}]}`,
		"?namespace=plain":   `{"by":"requests","namespaces":[]}`,
		"?by=names":          `want requests or denied`,
		"?limit=51":          `want 1 to 50`,
	} {
		var got bytes.Buffer
		if err := json.Compact(&got, []byte(send(t, "GET", admin.URL+"/admin/v1/tenants"+query, "").text)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q: %s, want %s", query, &got, want)
		}
	}
	want := `# HELP spillgate_tenant_decisions_total Decisions in namespaces whose rules have tier_from, by the tenant's tier and by result, as spillgate_decisions_total has it: a tier of the document, none, own (a multiplier of the tenant's own), unknown (by the store it has a tier that the document has not), other (the document has more tiers than 50). Peeks are included.
# TYPE spillgate_tenant_decisions_total counter
spillgate_tenant_decisions_total{namespace="shop",result="allow",tier="gold"} 4
spillgate_tenant_decisions_total{namespace="shop",result="allow",tier="none"} 3
spillgate_tenant_decisions_total{namespace="shop",result="deny",tier="gold"} 2
spillgate_tenant_decisions_total{namespace="shop",result="deny",tier="none"} 2
spillgate_tenant_decisions_total{namespace="shop",result="none",tier="none"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "spillgate_tenant_decisions_total"); err != nil {
		t.Error(err)
	}
}

// Of many tenants those that ask most are known, whatever others do, and what is told of them is too high by
// no more than it says.
func TestTopOfManyTenants(t *testing.T) {
	top := newTop()
	asked := map[string]uint64{}
	add := func(name string) { asked[name]++; top.add(name, false) }
	for round := range 3000 {
		for heavy := range 20 {
			add(fmt.Sprintf("heavy-%d", heavy))
		}
		for light := range 10 {
			add(fmt.Sprintf("light-%d", round*10+light))
		}
	}
	list := top.list(20, func(s *topSlot) TopTenant {
		return TopTenant{Tenant: string(s.name), Requests: s.count, Excess: s.excess}
	})
	if len(list) != 20 {
		t.Fatalf("%d are told of, want 20", len(list))
	}
	for _, of := range list {
		if real := asked[of.Tenant]; !strings.HasPrefix(of.Tenant, "heavy") || of.Requests < real || of.Requests-of.Excess > real {
			t.Errorf("%+v, of %d requests", of, real)
		}
	}
	even := newTop() // who is forgotten and comes again is not told of as less than it asked
	for range 5 {
		for i := range 2000 {
			even.add(fmt.Sprint(i), false)
		}
	}
	for _, of := range even.list(topParts*topTenants, func(s *topSlot) TopTenant {
		return TopTenant{Tenant: string(s.name), Requests: s.count, Excess: s.excess}
	}) {
		if of.Requests < 5 || of.Requests-of.Excess > 5 {
			t.Errorf("%+v, of 5 requests", of)
		}
	}
	if n := testing.AllocsPerRun(100, func() { top.add("heavy-1", true); top.add("light-1", true); top.add("light-2", true) }); n > 0 {
		t.Errorf("counting allocates %v times", n)
	}
}
