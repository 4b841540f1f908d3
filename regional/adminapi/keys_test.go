package adminapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// keyRules are rules of shop, and of another namespace.
func keyRules(t testing.TB) *limit.Set {
	t.Helper()
	set, problems := limit.Compile(
		limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{
			{Name: "api", Key: []string{"user"}, MinGap: time.Millisecond, Rates: []limit.RateSpec{{Name: "minute", Limit: 5, Per: time.Minute}, {Name: "daily", Limit: 500, Per: 24 * time.Hour}}},
			{Name: "exact", Group: "exact", Key: []string{"user"}, Consistency: "strict", Rates: []limit.RateSpec{{Name: "r", Limit: 5, Per: time.Minute}}, Match: limit.MatchSpec{Has: []string{"exact"}}},
			{Name: "big", Group: "big", Match: limit.MatchSpec{Has: []string{"big"}}, Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "r", Limit: 5, Per: time.Minute}}, Margin: limit.MarginSpec{Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"}}},
		}},
		limit.Document{Namespace: "other", Rules: []limit.RuleSpec{{Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}}}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

// keyDesk is a desk before an aggregator that knows these rules.
func keyDesk(t *testing.T) *desk {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	set := keyRules(t)
	d.keys.cfg.Rules = func() *limit.Set { return set }
	return d
}

// in reads an answer.
func in[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestExceptions(t *testing.T) {
	d := keyDesk(t)
	const u1 = `"rule": "api", "key": {"user": "u1"}`
	for _, tc := range []struct {
		status     int
		says, path string
		body       string
	}{
		{400, "cannot be read", "/keys/grant", `{`},
		{400, "unknown field", "/keys/grant", `{` + u1 + `, "more": 5}`},
		{400, "one object", "/keys/grant", `{` + u1 + `} {}`},
		{413, "16384", "/keys/grant", `{"rule": "` + strings.Repeat("x", maxKeyBody) + `"}`},
		{422, "E331", "/keys/grant", `{"rule": "nope", "key": {"user": "u1"}, "add": 5, "ttl": "1h"}`},
		{422, "E332", "/keys/grant", `{"rule": "api", "add": 5, "ttl": "1h"}`},
		{422, "E332", "/keys/grant", `{"rule": "api", "key": {"usr": "u1"}, "add": 5, "ttl": "1h"}`},
		{422, "E332", "/keys/grant", `{"rule": "api", "key": {"user": "u1", "ip": "x"}, "add": 5, "ttl": "1h"}`},
		{422, "E332", "/keys/grant", `{"rule": "api", "key": {"user": ""}, "add": 5, "ttl": "1h"}`},
		{422, "E332", "/keys/grant", `{"rule": "api", "name": "12", "add": 5, "ttl": "1h"}`},
		{422, "E332", "/keys/grant", `{` + u1 + `, "name": "0123456789abcdef", "add": 5, "ttl": "1h"}`},
		{422, "add is missing", "/keys/grant", `{` + u1 + `, "ttl": "1h"}`},
		{422, "not of a grant", "/keys/grant", `{` + u1 + `, "add": 5, "limit": 5, "ttl": "1h"}`},
		{422, "E335", "/keys/grant", `{` + u1 + `, "add": 0, "ttl": "1h"}`},
		{422, "E336", "/keys/grant", `{` + u1 + `, "add": 5}`},
		{422, "E336", "/keys/grant", `{` + u1 + `, "add": 5, "ttl": "soon"}`},
		{422, "E336", "/keys/grant", `{` + u1 + `, "add": 5, "ttl": "-1h"}`},
		{422, "longer than a year", "/keys/grant", `{` + u1 + `, "add": 5, "ttl": "53w"}`},
		{422, "ended already", "/keys/grant", `{` + u1 + `, "add": 5, "until": "2020-01-01T00:00:00Z"}`},
		{422, "both given", "/keys/grant", `{` + u1 + `, "add": 5, "ttl": "1h", "until": "2220-01-01T00:00:00Z"}`},
		{422, "E337", "/keys/override", `{` + u1 + `, "limit": 5, "ttl": "1h"}`},
		{422, "E337", "/keys/override", `{` + u1 + `, "rate": "hourly", "limit": 5, "ttl": "1h"}`},
		{422, "E338", "/keys/override", `{"rule": "exact", "key": {"user": "u1"}, "limit": 5, "ttl": "1h"}`},
		{422, "has no end", "/keys/reset", `{` + u1 + `, "ttl": "1h"}`},
		{422, "not of a reset", "/keys/reset", `{` + u1 + `, "limit": 5}`},
		{422, "E334", "/keys/reset", `{` + u1 + `, "rate": "minute"}`},
		{400, "changes nothing", "/keys/get", `{` + u1 + `, "limit": 5}`},
	} {
		d.want(tc.status, tc.says, "ed", "POST", shop+tc.path, tc.body)
	}
	d.want(422, "E330", "ed", "POST", "/admin/v1/namespaces/nope/keys/reset", `{`+u1+`}`)
	d.want(403, "takes the role editor", "vi", "POST", shop+"/keys/reset", `{`+u1+`}`)
	d.want(403, "may touch", "ci", "POST", "/admin/v1/namespaces/other/keys/reset", `{`+u1+`}`)
	d.want(401, "", "", "POST", shop+"/keys/reset", `{`+u1+`}`)

	dry := d.want(200, `"dry_run":true`, "ed", "POST", shop+"/keys/grant?dry_run=1", `{`+u1+`, "rate": "api.minute", "add": 5, "ttl": "1h"}`)
	d.want(200, `"exceptions":[]`, "vi", "GET", shop+"/exceptions", "")
	grant := in[ExceptionChange](t, d.want(201, `"changed":true`, "ci", "POST", shop+"/keys/grant?message=a+launch", `{`+u1+`, "rate": "minute", "add": 5, "ttl": "1h"}`).Body.String())
	if was := in[ExceptionChange](t, dry.Body.String()); was.ID != grant.ID || was.ETag != "" || len(grant.Key) > 0 || len(grant.Name) != 16 || grant.Rate != "minute" || grant.Until == nil || grant.Author != "ci" {
		t.Errorf("a dry run says %+v, and then it is %+v", was, grant)
	}
	d.want(400, "no parameter", "ed", "GET", shop+"/exceptions/"+grant.ID+"?x=1", "")
	d.want(200, grant.ID, "vi", "GET", shop+"/exceptions/"+grant.ID, "")
	d.want(409, "5 more than the limit of minute", "ed", "POST", shop+"/keys/grant", `{`+u1+`, "rate": "minute", "add": 50, "ttl": "1h"}`)
	d.want(412, "", "ed", "POST", shop+"/keys/grant", `{`+u1+`, "rate": "minute", "add": 50, "ttl": "1h"}`, "If-Match", `"1-x"`)
	second := in[ExceptionChange](t, d.want(200, `"add":50`, "ed", "POST", shop+"/keys/grant", `{`+u1+`, "rate": "minute", "add": 50, "ttl": "1h"}`, "If-Match", grant.ETag).Body.String())
	if second.ID != grant.ID || second.ETag == grant.ETag {
		t.Errorf("replaced it is %+v, was %+v", second, grant)
	}
	d.want(409, "", "ed", "POST", shop+"/keys/grant", fmt.Sprintf(`{"rule": "api", "name": %q, "rate": "minute", "add": 50, "ttl": "1h"}`, grant.Name))
	d.want(201, "", "ed", "POST", shop+"/keys/override", `{`+u1+`, "rate": "daily", "limit": 0, "ttl": "7d"}`)
	first := in[ExceptionChange](t, d.want(201, `"kind":"reset"`, "ed", "POST", shop+"/keys/reset", `{`+u1+`}`).Body.String())
	d.want(200, first.ID, "ed", "POST", shop+"/keys/reset", `{`+u1+`}`) // once more
	d.want(201, "", "ed", "POST", "/admin/v1/namespaces/other/keys/reset", `{`+u1+`}`)
	list := in[struct {
		Exceptions []ExceptionInfo
		After      uint64
	}](t, d.want(200, "", "ci", "GET", shop+"/exceptions?rule=api&limit=2", "").Body.String())
	if len(list.Exceptions) != 2 || list.After == 0 {
		t.Errorf("two of three are %+v", list)
	}
	d.want(200, `"kind":"reset"`, "ci", "GET", fmt.Sprintf("%s/exceptions?after=%d", shop, list.After), "")
	d.want(200, `"exceptions":[]`, "vi", "GET", shop+"/exceptions?rule=exact", "")
	d.want(403, "", "ci", "GET", "/admin/v1/namespaces/other/exceptions", "")
	d.want(400, "1 to 1000", "vi", "GET", shop+"/exceptions?limit=1001", "")

	d.want(428, "", "ed", "DELETE", shop+"/exceptions/"+grant.ID, "")
	d.want(412, "", "ed", "DELETE", shop+"/exceptions/"+grant.ID, "", "If-Match", grant.ETag)
	d.want(200, `"removed":true`, "ed", "DELETE", shop+"/exceptions/"+grant.ID+"?dry_run=1", "", "If-Match", second.ETag)
	d.want(200, `"removed":true`, "ed", "DELETE", shop+"/exceptions/"+grant.ID, "", "If-Match", second.ETag)
	d.want(404, "has ended", "vi", "GET", shop+"/exceptions/"+grant.ID, "")
	d.want(404, "has ended", "ed", "DELETE", shop+"/exceptions/"+grant.ID, "", "If-Match", "*")
	d.want(201, "", "ed", "POST", shop+"/keys/grant", `{`+u1+`, "rate": "minute", "add": 5, "ttl": "1h"}`)

	audit := d.want(200, "50 more than the limit of minute for key "+grant.Name, "ada", "GET", "/admin/v1/audit", "").Body.String()
	for _, says := range []string{`"action":"grant key"`, `"action":"reset key"`, `"action":"remove exception"`, "a launch", "refused: "} {
		if !strings.Contains(audit, says) {
			t.Errorf("the audit log lacks %s: %s", says, audit)
		}
	}
	if strings.Contains(audit, "u1") {
		t.Errorf("the audit log tells the key: %s", audit)
	}
	d.keys.cfg.Keyer = nil // and an aggregator without the secret keeps what it was told
	d.want(201, `"key":["u9"]`, "ed", "POST", shop+"/keys/reset", `{"rule": "api", "key": {"user": "u9"}}`)
	d.want(409, "secret_file", "vi", "POST", shop+"/keys/get", `{"rule": "api", "key": {"user": "u9"}}`)
	d.nats.Shutdown()
	d.want(503, "", "ed", "POST", shop+"/keys/reset", `{`+u1+`}`)
}

// An edge counts, and its aggregator tells of its keys by the names that operators' keys have.
func TestKeysOfAnEdge(t *testing.T) {
	d := keyDesk(t)
	node, err := edge.New(edge.Config{Region: "eu", Pop: "fra", Name: "e1", Secret: []byte(testSecret), Lanes: 8})
	if err != nil {
		t.Fatal(err)
	}
	if err := node.SetRules(keyRules(t)); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ask := func(user string, times int) {
		for range times {
			req := node.Rules().Namespace("shop").NewRequest()
			req.Set("user", user)
			node.Check(now, req)
			req.Release()
			now = now.Add(2 * time.Millisecond)
		}
		now = now.Add(2 * time.Second)
		for range 3 {
			for _, f := range node.Flush(now) {
				if reply := d.agg.Handle(t.Context(), now, f.Subject, f.Payload); reply != nil {
					if err := node.Receive(now, f.Lane, reply); err != nil {
						t.Fatal(err)
					}
				}
			}
			now = now.Add(time.Second)
		}
	}
	d.keys.cfg.Now = func() time.Time { return now }
	ask("u1", 4)
	ask("u2", 1)
	const u1 = `{"rule": "api", "key": {"user": "u1"}}`
	key := in[KeyInfo](t, d.want(200, "", "vi", "POST", shop+"/keys/get", u1).Body.String())
	if len(key.Rates) != 3 || key.Rates[0].Rate != "minute" || key.Rates[0].Used != 4 || key.Rates[0].Limit != 5 || key.Rates[0].Basis != "memory" || key.Rates[1].Used != 4 {
		t.Errorf("u1 is %+v", key)
	}
	if by := key.Rates[0].By; len(by) != 1 || by[0].Who != "edge" || by[0].PoP != "fra" || by[0].Region != "eu" || by[0].Used != 4 {
		t.Errorf("u1 was counted by %+v", by)
	}
	d.want(200, `"counter"`, "vi", "POST", shop+"/keys/get", fmt.Sprintf(`{"rule": "api", "rate": "daily", "name": %q}`, key.Name))
	d.want(422, "E337", "vi", "POST", shop+"/keys/get", `{"rule": "api", "rate": "x", "key": {"user": "u1"}}`)
	top := func(query string) []TopKey {
		return in[struct{ Keys []TopKey }](t, d.want(200, `"lanes":8,"owned_lanes":8`, "vi", "GET", "/admin/v1/keys/top?"+query, "").Body.String()).Keys
	}
	if keys := top("by=cost&namespace=shop&rule=api&limit=1"); len(keys) != 1 || keys[0].Name != key.Name || keys[0].Used != 4 {
		t.Errorf("by cost the first is %+v", keys)
	}
	if keys := top("by=allowed"); len(keys) < 4 || keys[0].Name != key.Name || keys[0].Rate != "minute" || keys[0].Limit != 5 {
		t.Errorf("by what is allowed the first is %+v", keys)
	}
	if keys := top(""); len(keys) != 0 {
		t.Errorf("by what was denied there are %+v", keys)
	}
	for range 5 {
		ask("u2", 30)
	}
	if keys := top("by=denied"); len(keys) == 0 || keys[0].Name == key.Name || keys[0].Denied < 20 {
		t.Errorf("by what was denied the first is %+v", keys)
	}
	d.want(400, "denied, allowed", "vi", "GET", "/admin/v1/keys/top?by=x", "")
	d.want(400, "1 to 1000", "vi", "GET", "/admin/v1/keys/top?limit=2000", "")
	d.want(404, "", "vi", "GET", "/admin/v1/keys/top?namespace=x", "")
	d.want(403, "", "ci", "GET", "/admin/v1/keys/top", "")
	d.want(200, "", "ci", "GET", "/admin/v1/keys/top?namespace=shop", "")

	// It is reset, at the edge by what stands in the bucket.
	d.want(201, "", "ed", "POST", shop+"/keys/reset", u1)
	d.want(201, "", "ed", "POST", shop+"/keys/grant", `{"rule": "api", "rate": "minute", "key": {"user": "u1"}, "add": 7, "ttl": "1h"}`)
	store, _, err := d.keys.cfg.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, _, _, err := store.List(t.Context(), limit.EntryException, "shop", 0, 100)
	if err != nil || len(found) != 2 {
		t.Fatalf("%d entries, %v", len(found), err)
	}
	var list []limit.Exception
	for i := range found {
		x, err := exceptionOf(&found[i])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
	if problems := node.SetExceptions(now, list); len(problems) > 0 {
		t.Fatal(problems)
	}
	ask("u1", 2)
	after := in[KeyInfo](t, d.want(200, "", "vi", "POST", shop+"/keys/get", u1).Body.String())
	if after.Name != key.Name || after.CountedAs == "" || after.Rates[0].Used != 2 || after.Rates[0].Limit != 12 || len(after.Exceptions) != 2 {
		t.Errorf("after a reset and a grant u1 is %+v", after)
	}
	if keys := top("by=cost&rule=api&limit=100"); len(keys) < 4 || keys[len(keys)-1].Used == 0 {
		t.Errorf("by cost there are %+v", keys)
	} else {
		found := false
		for _, k := range keys {
			found = found || k.CountedAs == after.CountedAs && k.Name == key.Name && k.Used == 2
		}
		if !found {
			t.Errorf("by cost there is no key that is called %s since it was reset: %+v", after.CountedAs, keys)
		}
	}
}

// What was admitted beyond a limit is told of the key that it was of.
func TestKeysOverTheirLimit(t *testing.T) {
	d := keyDesk(t)
	set, problems := limit.Compile(limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "burst", Limit: 10, Per: time.Second}, {Name: "hour", Limit: 1000, Per: time.Hour}}}}})
	if set == nil {
		t.Fatal(problems)
	}
	d.keys.cfg.Rules, d.keys.cfg.Keys = func() *limit.Set { return set }, overspentOf(t, 1, 1003, 120)
	d.keys.cfg.Now = func() time.Time { return time.Date(2026, 1, 1, 0, 2, 0, 0, time.UTC) }
	d.want(200, `"over_admitted":3}`, "vi", "GET", "/admin/v1/keys/top?by=over_admitted", "")
}

func TestCapacityForAllEdges(t *testing.T) {
	d := keyDesk(t)
	const api = "/admin/v1/capacity/api"
	d.want(403, "takes the role admin", "ed", "PUT", api, "0.5")
	d.want(403, "", "ci", "PUT", api, "0.5")
	d.want(400, "0.7 or 70%", "ada", "PUT", api, "much")
	d.want(400, "70%", "ada", "PUT", api, "70")
	d.want(400, "up to 1h", "ada", "PUT", api+"?ttl=2h", "0.5")
	d.want(413, "", "ada", "PUT", api, strings.Repeat("1", 100))
	d.want(404, "they read api", "ada", "PUT", "/admin/v1/capacity/apo", "0.5")
	d.want(422, "no name", "ada", "PUT", "/admin/v1/capacity/a%20b", "0.5")
	d.want(200, `"used":0.5`, "ada", "PUT", api+"?dry_run=1", "50%")
	d.want(200, `"capacities":[]`, "vi", "GET", "/admin/v1/capacity", "")
	d.want(200, `"used":0.5`, "ada", "PUT", api+"?ttl=1m&message=a+sale", "50%")
	d.want(200, `"used":0.6`, "ada", "PUT", api, "0.6")
	c := in[struct{ Capacities []Capacity }](t, d.want(200, "", "vi", "GET", "/admin/v1/capacity", "").Body.String()).Capacities
	if len(c) != 1 || c[0].Name != "api" || c[0].Used != 0.6 || c[0].Author != "ada" || !c[0].Until.After(time.Now()) {
		t.Errorf("capacity is %+v", c)
	}
	d.want(200, "api: 0.5 in use, for 1m0s: a sale", "ada", "GET", "/admin/v1/audit", "")
	d.want(200, `"dry_run":true`, "ada", "DELETE", api+"?dry_run=1", "")
	d.want(200, "api", "ada", "DELETE", api, "")
	d.want(404, "", "ada", "DELETE", api, "")
	d.want(200, `"capacities":[]`, "vi", "GET", "/admin/v1/capacity", "")
}
