package adminapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// tenantDesk is a desk whose aggregator knows rules of shop with tiers.
func tenantDesk(t testing.TB) *desk {
	t.Helper()
	d := newDesk(t, configs.FormatSpillgate)
	rules := limit.RuleSpec{Name: "api", Key: []string{"user"}, TierFrom: "user", Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute}}}
	set, problems := limit.Compile(
		limit.Document{Namespace: "shop", Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 10}}, Rules: []limit.RuleSpec{rules}},
		limit.Document{Namespace: "bank", Tenants: map[string]limit.TenantSpec{}, Rules: []limit.RuleSpec{rules}})
	if set == nil {
		t.Fatal(problems)
	}
	d.keys.cfg.Rules = func() *limit.Set { return set }
	return d
}

const tenants = shop + "/tenants"

func TestTenants(t *testing.T) {
	t.Parallel()
	d := tenantDesk(t)
	const gold = `{"tier": "gold"}`
	d.want(404, "has nothing", "vi", "GET", tenants+"/acme", "")
	d.want(428, "If-None-Match", "ed", "PUT", tenants+"/acme", gold)
	d.want(403, "", "vi", "PUT", tenants+"/acme", gold, "If-None-Match", "*")
	d.want(403, "may touch", "ci", "PUT", "/admin/v1/namespaces/bank/tenants/acme", gold, "If-None-Match", "*")
	d.want(200, `"dry_run":true`, "ed", "PUT", tenants+"/acme?dry_run=1", gold, "If-None-Match", "*")
	d.want(404, "has nothing", "vi", "GET", tenants+"/acme", "")
	tag := d.want(201, `"tier":"gold"`, "ci", "PUT", tenants+"/acme?message=they+pay", gold, "If-None-Match", "*").Header().Get("ETag")
	d.want(412, "ETag", "ed", "PUT", tenants+"/acme", gold, "If-None-Match", "*")
	d.want(412, "ETag", "ed", "PUT", tenants+"/acme", gold, "If-Match", `"1-x"`)
	if w := d.want(200, `"message":"they pay"`, "vi", "GET", tenants+"/acme", ""); w.Header().Get("ETag") != tag {
		t.Errorf("the ETag is %s, want %s", w.Header().Get("ETag"), tag)
	}
	tag = d.want(200, `"multiply":3.5`, "ed", "PUT", tenants+"/acme", `{"multiply": 3.5, "ttl": "24h"}`, "If-Match", tag).Header().Get("ETag")
	d.want(200, `"until":"`, "vi", "GET", tenants+"/acme", "")
	d.want(201, `"tenant":"a/b c"`, "ed", "PUT", tenants+"/a%2Fb%20c", gold, "If-None-Match", "*")
	d.want(200, `"tenant":"a/b c"`, "vi", "GET", tenants+"?prefix=a/", "")
	for _, tc := range []struct {
		status     int
		says, body string
	}{
		{422, "E342", `{"tier": "golf"}`},
		{422, "E341", `{}`},
		{422, "E341", `{"tier": "gold", "multiply": 2}`},
		{422, "E191", `{"multiply": -2}`},
		{422, "E196", `{"multiply": 0.001}`},
		{422, "E345", `{"tier": "gold", "until": "2001-01-01T00:00:00Z"}`},
		{422, "E345", `{"tier": "gold", "ttl": "never"}`},
		{400, "unknown field", `{"tiers": "gold"}`},
		{400, "more than one", `{"tier": "gold"} {}`},
		{400, "another tenant", `{"tenant": "other", "tier": "gold"}`},
		{413, "at most", `{"tier": "` + strings.Repeat("a", maxTenantBody) + `"}`},
	} {
		d.want(tc.status, tc.says, "ed", "PUT", tenants+"/acme", tc.body, "If-Match", "*")
	}
	d.want(422, "E343", "ed", "PUT", "/admin/v1/namespaces/none/tenants/acme", gold, "If-None-Match", "*")
	d.want(200, `"removed":true`, "ed", "DELETE", tenants+"/acme", "", "If-Match", tag)
	d.want(404, "has nothing", "ed", "DELETE", tenants+"/acme", "", "If-Match", tag)
	d.want(404, "has nothing", "vi", "GET", tenants+"/acme", "")
	d.want(201, "", "ed", "PUT", tenants+"/acme", gold, "If-None-Match", "*")
	log := d.want(200, "they pay", "ada", "GET", "/admin/v1/audit?namespace=shop&limit=1000", "").Body.String()
	for _, want := range []string{`tenant \"acme\": tier gold`, `multiply 3.5 for 24h`, `"action":"remove tenant"`, `refused: `} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log lacks %s: %s", want, log)
		}
	}
	d.keys.cfg.Rules = func() *limit.Set { return nil }
	d.want(503, "no rules yet", "ed", "PUT", tenants+"/acme", gold, "If-Match", "*")
}

// Many are changed at once, or none; what is there is written over, in pages it is listed.
func TestManyTenants(t *testing.T) {
	t.Parallel()
	d := tenantDesk(t)
	lines := ""
	for i := range 3000 {
		lines += fmt.Sprintf(`{"tenant": "t%d", "tier": "gold"}`+"\n", i)
	}
	d.want(422, `"pointer":"/3000/tier"`, "ed", "PATCH", tenants, lines+`{"tenant": "bad", "tier": "golf"}`)
	d.want(422, "E346", "ed", "PATCH", tenants, lines+`{"tenant": "t7", "tier": "gold"}`)
	d.want(200, `"changed":3000,"removed":0,"unchanged":0,"dry_run":true`, "ed", "PATCH", tenants+"?dry_run=1", lines)
	d.want(200, `"tenants":[]`, "vi", "GET", tenants, "")
	d.want(200, `"changed":3000,"removed":0,"unchanged":0`, "ed", "PATCH", tenants, lines)
	d.want(200, `"changed":2,"removed":1,"unchanged":2999`, "ed", "PATCH", tenants, strings.Replace(lines, `"t0", "tier": "gold"`, `"t0", "remove": true`, 1)+`{"tenant": "u", "multiply": 2}`)
	var names []string
	for after := uint64(0); ; {
		var page struct {
			Tenants []TenantInfo
			After   uint64
		}
		w := d.want(200, "", "vi", "GET", fmt.Sprintf("%s?limit=700&prefix=t29&after=%d", tenants, after), "")
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		for _, info := range page.Tenants {
			names = append(names, info.Tenant)
		}
		if after = page.After; after == 0 {
			break
		}
	}
	if len(names) != 111 { // t29, t290 to t299, t2900 to t2999
		t.Errorf("%d tenants begin with t29: %q", len(names), names)
	}
	many := "["
	for i := range limit.MaxOwnMultipliers {
		many += fmt.Sprintf(`{"tenant": "own%d", "multiply": %d},`, i, i+2)
	}
	d.want(200, `"changed":64`, "ed", "PATCH", tenants, many[:len(many)-1]+"]")
	d.want(409, "make tiers", "ed", "PUT", tenants+"/one", `{"multiply": 999}`, "If-None-Match", "*")
	d.want(409, "make tiers", "ed", "PATCH", tenants, `[{"tenant": "one", "multiply": 999}]`)
	d.want(200, "", "ed", "PUT", tenants+"/own1", `{"multiply": 999}`, "If-Match", "*")
	d.want(400, "says nothing", "ed", "PATCH", tenants, "[]")
	d.want(400, "entry 2", "ed", "PATCH", tenants, `{"tenant": "a", "tier": "gold"} {"tier": `)
	d.want(413, "tenants", "ed", "PATCH", tenants, strings.Repeat(`{"tenant":"a"}`, MostTenants+1))

	// What cannot be read is written over.
	if err := d.put("$KV.rules_entries.tenant.shop.YmFk", "{"); err != nil {
		t.Fatal(err)
	}
	d.want(200, "tenant.shop.YmFk", "vi", "GET", tenants+"?limit=10000&prefix=bad", "")
	d.want(200, `"changed":1`, "ed", "PATCH", tenants, `{"tenant": "bad", "tier": "gold"}`)
}

func FuzzManyTenants(f *testing.F) {
	for _, text := range []string{`[{"tenant":"a","tier":"gold"}]`, `{"tenant":"a","remove":true}` + "\n" + `{"tenant":"b","multiply":3.5,"ttl":"1h"}`, `{"until":"2030-01-01T00:00:00Z"}`, "[", "{}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		asks, err := manyAsks(text)
		if err != nil {
			return
		}
		for i := range asks {
			e, _, p := asks[i].entry("shop", time.Now())
			if p == nil && e.Deleted != asks[i].Remove {
				t.Errorf("%+v is %+v", asks[i], e)
			}
			_, _ = tenantInfo(&natsentries.Entry{Name: e.Name, Body: e.Body, Deleted: e.Deleted})
		}
	})
}
