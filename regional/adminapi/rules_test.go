package adminapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync/natsaudit"
)

func TestNamespaces(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(404, "there is none", "vi", "GET", shop, "")
	d.want(428, "If-None-Match: *", "ed", "PUT", shop, limited(10))
	w := d.want(200, `"dry_run":true`, "ed", "PUT", shop+"?dry_run=1", limited(10), "If-None-Match", "*")
	if !strings.Contains(w.Body.String(), "+  rates: [{name: hour, limit: 10, per: 1h}]") {
		t.Errorf("a dry run says %s", w.Body)
	}
	d.want(404, "there is none", "vi", "GET", shop, "")
	first := d.want(201, `"version":1`, "ed", "PUT", shop+"?message=the+first", limited(10), "If-None-Match", "*").Header().Get("ETag")
	d.want(412, "has version 1", "ed", "PUT", shop, limited(11), "If-None-Match", "*")
	d.want(412, "of ed", "ed", "PUT", shop, limited(11), "If-Match", `"0-x"`)
	d.want(400, "not beside", "ed", "PUT", shop, limited(11), "If-Match", first, "If-None-Match", "*")
	if w := d.want(200, "", "vi", "GET", shop, ""); w.Body.String() != limited(10) || w.Header().Get("ETag") != first || w.Header().Get("Content-Type") != "application/yaml" {
		t.Errorf("GET = %v %s", w.Header(), w.Body)
	}
	d.want(200, `"author":"ed","message":"the first"`, "vi", "GET", shop, "", "Accept", "application/json")
	d.want(200, `"changed":false`, "ci", "PUT", shop, limited(10), "If-Match", first)
	second := d.want(200, `"version":2`, "ci", "PUT", shop, limited(20), "If-Match", first).Header().Get("ETag")
	d.want(412, "of ci", "ed", "PUT", shop, limited(30), "If-Match", first)
	d.want(200, `"version":3`, "ed", "PUT", shop, limited(30), "If-Match", `"other", `+second)

	// What has mistakes changes nothing, and tells where they are.
	w = d.want(422, "nothing is changed", "ed", "PUT", shop, strings.Replace(limited(1), "limit: 1,", "limit: many,", 1), "If-Match", "*")
	var p Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || len(p.Errors) != 1 || p.Errors[0].Pointer != "/rules/0/rates/0/limit" || p.Errors[0].Line != 7 || p.Errors[0].Column == 0 || p.Errors[0].Hint == "" || p.Errors[0].Excerpt == "" {
		t.Errorf("a mistake is %s", w.Body)
	}
	d.want(422, "is kept as that of shop", "ed", "PUT", shop, strings.Replace(limited(1), "namespace: shop", "namespace: other", 1), "If-Match", "*")
	d.want(400, "empty", "ed", "PUT", shop, " \n", "If-Match", "*")
	d.want(413, "at most", "ed", "PUT", shop, strings.Repeat("#", maxBody+1), "If-Match", "*")
	d.want(400, "dry_run", "ed", "PUT", shop+"?dry_run=maybe", limited(1), "If-Match", "*")
	for _, query := range []string{"?dry-run=1", "?region=us", "?regions=us;x", "?dry_run=1&dry_run=0", "?msg=x", "?message=%ff"} {
		d.want(400, "", "ed", "PUT", shop+query, limited(1), "If-Match", "*")
	}
	d.want(400, "one of: to, dry_run, message", "ed", "POST", shop+"/rollback?version=3", "", "If-Match", "*")
	d.want(422, "is not a name", "ed", "PUT", "/admin/v1/namespaces/a%20b", strings.Replace(limited(1), "namespace: shop", `namespace: "a b"`, 1), "If-None-Match", "*")
	if w := d.want(200, "", "vi", "GET", shop, ""); w.Body.String() != limited(30) {
		t.Errorf("what was refused has changed it: %s", w.Body)
	}

	// Versions.
	d.want(200, `"version":3`, "vi", "GET", shop+"/versions", "")
	d.want(200, "limit: 20", "vi", "GET", shop+"?version=2", "")
	d.want(404, "no version 9", "vi", "GET", shop+"?version=9", "")
	d.want(400, "no number", "vi", "GET", shop+"?version=x", "")
	d.want(200, "-  rates: [{name: hour, limit: 20, per: 1h}]\n+  rates: [{name: hour, limit: 30, per: 1h}]", "vi", "GET", shop+"/diff", "")
	d.want(200, "+  rates: [{name: hour, limit: 30, per: 1h}]", "vi", "GET", shop+"/diff?from=1", "")
	d.want(200, "--- /dev/null", "vi", "GET", shop+"/diff?to=1", "")
	d.want(200, `"version":4`, "ed", "POST", shop+"/rollback", "", "If-Match", "*")
	d.want(200, `"version":5`, "ed", "POST", shop+"/rollback?to=1&message=oops", "", "If-Match", "*")
	if w := d.want(200, "", "vi", "GET", shop, ""); w.Body.String() != limited(10) {
		t.Errorf("after a rollback to version 1 it is %s", w.Body)
	}
	d.want(404, "no version 77", "ed", "POST", shop+"/rollback?to=77", "", "If-Match", "*")
	d.want(200, `"code":"W266","pointer":"/rules/0/rates/0/limit"`, "ed", "PUT", shop+"?dry_run=1", limited(0), "If-Match", "*")
	d.want(200, `"deleted":true`, "ada", "DELETE", shop, "", "If-Match", "*")
	d.want(404, "was taken away by version 6", "vi", "GET", shop, "")
	d.want(412, "was taken away", "ada", "DELETE", shop, "", "If-Match", "*")
	d.want(200, `"deleted":true`, "vi", "GET", "/admin/v1/namespaces", "")
	d.want(200, `"version":7`, "ed", "PUT", shop, limited(40), "If-None-Match", "*")
}

// A document is in force in some regions first, and nothing else ends that by the way.
func TestRollout(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(400, "regions", "ed", "PUT", shop+"?regions=eu,,us", limited(10), "If-None-Match", "*")
	d.want(201, `"regions":["eu"]`, "ed", "PUT", shop+"?regions=eu", limited(10), "If-None-Match", "*") // elsewhere there is none
	d.want(200, `"deleted":true`, "ed", "POST", shop+"/revert", "", "If-Match", "*")
	d.want(200, "", "ed", "PUT", shop, limited(10), "If-None-Match", "*")
	d.want(409, "nothing is rolled out", "ed", "POST", shop+"/promote", "", "If-Match", "*")
	w := d.want(200, "# eu, us\\ndiff shop", "ed", "PUT", shop+"?regions=us,eu,us", limited(20), "If-Match", "*")
	if strings.Contains(w.Body.String(), "elsewhere") {
		t.Errorf("it says of the other regions %s", w.Body)
	}
	d.want(200, `"regions":["eu","us"]`, "vi", "GET", "/admin/v1/namespaces", "")
	var doc Document
	if w := d.want(200, "", "vi", "GET", shop, "", "Accept", "application/json"); json.Unmarshal(w.Body.Bytes(), &doc) != nil || doc.Text != limited(20) || doc.Elsewhere != limited(10) {
		t.Errorf("the document is %s", w.Body)
	}
	for _, c := range [][]string{{"PUT", shop, limited(30)}, {"POST", shop + "/rollback", ""}, {"DELETE", shop + "/rules/login", ""}, {"PUT", shop + "/rules/login", "name: login\nallow: true"}, {"DELETE", shop, ""}} {
		d.want(409, "rolled out in eu,us", "ada", c[0], c[1], c[2], "If-Match", "*")
	}
	d.want(200, "limit: 30", "ed", "PUT", shop+"?regions=eu", limited(30), "If-Match", "*") // the others are as before the first
	w = d.want(200, "# elsewhere\\ndiff shop", "ed", "POST", shop+"/promote?dry_run=1", "", "If-Match", "*")
	if !strings.Contains(w.Body.String(), "-  rates: [{name: hour, limit: 10, per: 1h}]") || strings.Contains(w.Body.String(), "# eu") {
		t.Errorf("to promote it would change %s", w.Body)
	}
	d.want(200, `"message":"reverted in eu"`, "ed", "POST", shop+"/revert", "", "If-Match", "*")
	if w := d.want(200, "", "vi", "GET", shop, ""); w.Body.String() != limited(10) {
		t.Errorf("after that it is %s", w.Body)
	}
	d.want(200, "", "ed", "PUT", shop+"?regions=eu", limited(40), "If-Match", "*")
	d.want(200, `"message":"promoted from eu"`, "ed", "POST", shop+"/promote", "", "If-Match", "*")
	d.want(200, "limit: 40", "vi", "GET", shop, "")
	d.want(409, "version 7 was in force in eu alone", "ed", "POST", shop+"/rollback?to=7", "", "If-Match", "*")
	d.want(200, `"message":"back to version 6"`, "ed", "POST", shop+"/rollback", "", "If-Match", "*") // which was in force everywhere
	d.want(200, "limit: 10", "vi", "GET", shop, "")
	d.want(200, "", "ed", "PUT", shop+"?regions=us", limited(50), "If-Match", "*")
	w = d.want(200, "# eu\\ndiff", "ed", "PUT", shop+"?regions=eu,us&dry_run=1", limited(50), "If-Match", "*") // wider
	if strings.Contains(w.Body.String(), "# us") {
		t.Errorf("of what stays in us it says %s", w.Body)
	}
	w = d.want(200, "# eu\\ndiff", "ed", "PUT", shop+"?regions=eu&dry_run=1", limited(50), "If-Match", "*") // elsewhere
	if _, us, _ := strings.Cut(w.Body.String(), "# us"); !strings.Contains(us, "+  rates: [{name: hour, limit: 10, per: 1h}]") {
		t.Errorf("of what us has from then on it says %s", w.Body)
	}
	d.want(200, "", "ed", "POST", shop+"/revert", "", "If-Match", "*")
	d.want(200, "", "ada", "DELETE", shop, "", "If-Match", "*")
	gone := d.want(200, "", "ed", "PUT", shop, limited(50), "If-None-Match", "*").Header().Get("ETag")
	d.want(403, "takes the role admin", "ed", "POST", shop+"/rollback", "", "If-Match", gone) // before it there was none
	d.want(200, "the namespace is taken away", "ada", "POST", shop+"/rollback?dry_run=1", "", "If-Match", gone)
}

func TestRules(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(201, "", "ed", "PUT", shop, limited(10), "If-None-Match", "*")
	d.want(200, `{"name":"login","line":9,"rule":{"match":{"path":"/login"}`, "vi", "GET", shop+"/rules", "")
	if w := d.want(200, "", "vi", "GET", shop+"/rules/login", ""); w.Body.String() != "name: login\nmatch: {path: /login}\nrates: [{limit: 5, per: 1m}]\n" {
		t.Errorf("a rule is %q", w.Body)
	}
	d.want(200, `"limit":5`, "vi", "GET", shop+"/rules/login", "", "Accept", "application/json")
	d.want(404, `no rule \"x\"`, "vi", "GET", shop+"/rules/x", "")
	d.want(428, "", "ed", "PUT", shop+"/rules/login", "name: login\nrates: [{limit: 6, per: 1m}]")
	d.want(200, `"version":2`, "ed", "PUT", shop+"/rules/login", `{"name": "login", "rates": [{"limit": 6, "per": "1m"}]}`, "If-Match", "*")
	d.want(422, `is called \"x\"`, "ed", "PUT", shop+"/rules/login", "name: x", "If-Match", "*")
	d.want(422, "E", "ed", "PUT", shop+"/rules/login", "name: login\nrates: [{limit: -6, per: 1m}]", "If-Match", "*")
	d.want(200, `"version":3`, "ed", "PUT", shop+"/rules/more", "name: more\nkey: [client_ip]\nrates: [{limit: 1, per: 1s}]", "If-Match", "*")
	d.want(200, `"version":4`, "ed", "DELETE", shop+"/rules/login", "", "If-Match", "*")
	d.want(404, "no rule", "ed", "DELETE", shop+"/rules/login", "", "If-Match", "*")
	want := strings.Split(limited(10), "# of")[0] + "- name: more\n  key: [client_ip]\n  rates: [{limit: 1, per: 1s}]\n"
	if w := d.want(200, "", "vi", "GET", shop, ""); w.Body.String() != want {
		t.Errorf("after all that it is\n%s\nwant\n%s", w.Body, want)
	}
	d.want(200, `"version":5`, "ed", "PUT", shop, "schema: spillgate/v1\nnamespace: shop\nrules: [{name: a, rates: [{limit: 1, per: 1m}]}]", "If-Match", "*")
	d.want(409, "PUT the namespace", "ed", "PUT", shop+"/rules/a", "name: a\nallow: true", "If-Match", "*")
	d.want(200, `"limit":1`, "vi", "GET", shop+"/rules/a", "")
	d.want(404, "there is no namespace", "ed", "PUT", "/admin/v1/namespaces/none/rules/a", "name: a\nallow: true", "If-None-Match", "*")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(201, "", "ed", "PUT", shop, limited(10), "If-None-Match", "*")
	d.want(200, `"namespaces":["shop","bank"]`, "vi", "POST", "/admin/v1/validate", limited(10)+"---\n"+strings.Replace(limited(10), "namespace: shop", "namespace: bank", 1))
	d.want(422, `"line":7`, "vi", "POST", "/admin/v1/validate", strings.Replace(limited(1), "limit: 1,", "limit: many,", 1))
	d.want(413, "2001 documents", "vi", "POST", "/admin/v1/validate", strings.Repeat("a: 1\n---\n", maxDocuments+1))
	d.want(422, "signs of YAML", "vi", "POST", "/admin/v1/validate", limited(1)+"x: "+strings.Repeat("[", 3<<20))
	d.want(400, "says nothing", "vi", "POST", "/admin/v1/validate", "# nothing")
	d.want(200, "W", "vi", "POST", "/admin/v1/validate", strings.Replace(limited(1), "[user]", "[clientip]", 1))
}

// Rules in Envoy's format are documents, and have no rules by name.
func TestEnvoysFormat(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatEnvoy)
	d.want(201, `"version":1`, "ed", "PUT", shop, "domain: shop\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n", "If-None-Match", "*")
	d.want(409, "rules.format is envoy", "vi", "GET", shop+"/rules", "")
	d.want(409, "rules.format is envoy", "ed", "PUT", shop+"/rules/a", "name: a", "If-Match", "*")
}

// Who may do what, and what is noted of it.
func TestWhoMay(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(201, "", "ed", "PUT", shop, limited(10), "If-None-Match", "*")
	bank := "/admin/v1/namespaces/bank"
	banks := strings.Replace(limited(10), "namespace: shop", "namespace: bank", 1)
	d.want(201, "", "ed", "PUT", bank, banks, "If-None-Match", "*")
	for _, path := range []string{shop, "/admin/v1/namespaces", "/admin/v1/regions", "/metrics", "/debug/pprof/cmdline"} {
		if w := d.want(401, "a token is wanted", "", "GET", path, ""); w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s does not say how", path)
		}
		d.want(401, "is not known here", "", "GET", path, "", "Authorization", "Bearer sgt_x")
	}
	d.want(401, "a token is wanted", "", "GET", shop, "", "Authorization", "Basic "+d.tokens["ada"])
	d.want(200, "ok", "", "GET", "/healthz", "")
	d.want(200, "ready", "", "GET", "/readyz", "")
	d.want(403, "takes the role editor", "vi", "PUT", shop, limited(11), "If-Match", "*")
	d.want(403, "takes the role admin", "ed", "DELETE", shop, "", "If-Match", "*")
	d.want(403, "takes the role admin", "ed", "GET", "/admin/v1/audit", "")
	d.want(403, "takes the role admin", "ed", "GET", "/debug/pprof/cmdline", "")
	d.want(403, "may touch", "ci", "PUT", bank, banks, "If-Match", "*")
	d.want(403, "may touch", "ci", "GET", bank, "")
	d.want(403, "may touch", "ci", "GET", bank+"/versions", "")
	d.want(403, "may touch", "ci", "GET", "/admin/v1/rules/all/truth?namespace=bank", "")
	d.want(403, "not all of them", "ci", "GET", "/admin/v1/rules/all/truth", "")
	if w := d.want(200, "shop", "ci", "GET", "/admin/v1/namespaces", ""); strings.Contains(w.Body.String(), "bank") {
		t.Errorf("ci sees %s", w.Body)
	}
	w := d.want(200, `"action":"put"`, "ada", "GET", "/admin/v1/audit?namespace=bank", "")
	var log struct{ Entries []natsaudit.Entry }
	if err := json.Unmarshal(w.Body.Bytes(), &log); err != nil || len(log.Entries) != 3 {
		t.Fatalf("the log is %s, want three entries of bank", w.Body)
	}
	if e := log.Entries[0]; e.Who != "ci" || e.Role != "editor" || !strings.HasPrefix(e.Result, "refused: ci may touch") || e.From == "" {
		t.Errorf("what was refused is %+v", e)
	}
	if done, begun := log.Entries[1], log.Entries[2]; done.Result != "done" || done.Version != 1 || begun.Result != "begun" || begun.Request != done.Request || done.Who != "ed" {
		t.Errorf("what was done is %+v, begun as %+v", done, begun)
	}
	d.want(200, `"entries":[]`, "ada", "GET", "/admin/v1/audit?who=vi", "")
	d.want(400, "limit", "ada", "GET", "/admin/v1/audit?limit=2000", "")
}

// Tokens are read again when their file changes; one that is not good changes nothing.
func TestTokensChange(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(200, "", "vi", "GET", "/admin/v1/namespaces", "")
	before, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	d.write("schema: spillgate/tokens/v1\ntokens: [{name: vi")
	d.want(200, "", "vi", "GET", "/admin/v1/namespaces", "")
	if err := os.Remove(d.file); err != nil {
		t.Fatal(err)
	}
	d.want(200, "", "vi", "GET", "/admin/v1/namespaces", "")
	var without []string
	for line := range strings.Lines(string(before)) {
		if !strings.Contains(line, "name: vi") {
			without = append(without, line)
		}
	}
	d.write(strings.Join(without, ""))
	d.want(401, "is not known here", "vi", "GET", "/admin/v1/namespaces", "")
	d.want(200, "", "ed", "GET", "/admin/v1/namespaces", "")
}

// Where nobody is asked who he is, nothing is changed.
func TestWithoutTokensNothingChanges(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(201, "", "ed", "PUT", shop, limited(10), "If-None-Match", "*")
	agg, err := regional.New(regional.Config{Region: "eu", Name: "a1"}, memstore.New(memstore.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Subject: agg, Connected: func() bool { return true }, Metrics: prometheus.NewRegistry(), Rules: &Rulebook{}}
	for _, r := range cfg.routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		if r.need == configs.RoleViewer {
			continue
		}
		w := httptest.NewRecorder()
		New(cfg).ServeHTTP(w, httptest.NewRequest(method, strings.NewReplacer("{", "", "}", "").Replace(path), nil))
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "admin.tokens") {
			t.Errorf("%s by nobody: %d %s", r.pattern, w.Code, w.Body)
		}
	}
}

// A key that cannot be read stops nobody: it is told, the version before stays, and the next takes its place.
func TestWhatCannotBeReadIsWrittenOver(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(201, "", "ed", "PUT", shop, limited(10), "If-None-Match", "*")
	for _, key := range []string{"shop", "bank"} {
		if err := d.put("$KV.rules.ns."+key, "rules: []"); err != nil {
			t.Fatal(err)
		}
	}
	d.want(200, `"version":1`, "ada", "GET", "/admin/v1/namespaces", "")
	d.want(200, "key ns.bank, revision 3", "ada", "GET", "/admin/v1/namespaces", "")
	d.want(200, `"unreadable":[]`, "ci", "GET", "/admin/v1/namespaces", "")
	d.want(201, "", "ed", "PUT", "/admin/v1/namespaces/other", strings.Replace(limited(1), "namespace: shop", "namespace: other", 1), "If-None-Match", "*")
	d.want(200, `"version":2`, "ed", "PUT", shop, limited(20), "If-Match", "*")
	d.want(201, `"version":1`, "ed", "PUT", "/admin/v1/namespaces/bank", strings.Replace(limited(1), "namespace: shop", "namespace: bank", 1), "If-None-Match", "*")
	d.want(200, `"unreadable":[]`, "ada", "GET", "/admin/v1/namespaces", "")
}

// Where rules come from files it is said.
func TestRulesOfFiles(t *testing.T) {
	t.Parallel()
	agg, err := regional.New(regional.Config{Region: "eu", Name: "a1"}, memstore.New(memstore.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	New(Config{Subject: agg, Connected: func() bool { return true }, Metrics: prometheus.NewRegistry()}).ServeHTTP(w, httptest.NewRequest("GET", shop, nil))
	if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "rules.source: kv") {
		t.Errorf("GET = %d %s", w.Code, w.Body)
	}
}

// Without NATS it is said, in time.
func TestWithoutNATS(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.nats.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, c := range []struct{ method, path string }{{"GET", shop}, {"PUT", shop}, {"GET", "/admin/v1/namespaces"}, {"GET", "/admin/v1/audit"}, {"POST", "/admin/v1/validate"}} {
		r := httptest.NewRequestWithContext(ctx, c.method, c.path, strings.NewReader(limited(1)))
		r.Header.Set("Authorization", "Bearer "+d.tokens["ada"])
		r.Header.Set("If-Match", "*")
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		d.doc.holds(t, r.Pattern, w)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "nothing is changed") {
			t.Errorf("%s %s without NATS: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}

// FuzzChange: whatever is sent is taken whole, as it is read back, or refused, and then nothing changes.
func FuzzChange(f *testing.F) {
	f.Add("PUT", "", limited(3), "*", "")
	f.Add("PUT", "/rules/all", "name: all\nrates: [{limit: 7, per: 1h}]", `"1-0"`, "")
	f.Add("DELETE", "/rules/login?dry_run=%zz", "", "*", "")
	f.Add("POST", "/rollback?to=-1", "", "", "*")
	f.Add("PATCH", "/rules/", "{}", "W/x", "x")
	d := newDesk(f, configs.FormatSpillgate)
	d.want(201, "", "ed", "PUT", shop, limited(10), "If-None-Match", "*")
	current := func(t *testing.T) (text, etag string) {
		w := d.ask("vi", "GET", shop, "")
		if w.Code != 200 && w.Code != 404 {
			t.Fatalf("GET = %d %s", w.Code, w.Body)
		}
		return w.Body.String(), w.Header().Get("ETag")
	}
	f.Fuzz(func(t *testing.T, method, target, body, match, noneMatch string) {
		r, err := http.NewRequest(method, "http://h", strings.NewReader(body))
		if err != nil {
			return
		}
		if r.URL, err = r.URL.Parse(shop + target); err != nil {
			return
		}
		r.Header["If-Match"], r.Header["If-None-Match"] = []string{match}, []string{noneMatch}
		r.Header.Set("Authorization", "Bearer "+d.tokens["ed"])
		d.t = t
		text, tag := current(t)
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		after, now := current(t)
		switch {
		case w.Code >= 500:
			t.Fatalf("%s %s %q: %d %s", method, target, body, w.Code, w.Body)
		case w.Code >= 300 && (after != text || now != tag):
			t.Fatalf("%s %s %q was refused (%d %s) and has changed %q to %q", method, target, body, w.Code, w.Body, text, after)
		case w.Code < 300 && after != text:
			if set, err := configs.ParseRules("shop", []byte(after)); err != nil || set == nil {
				t.Fatalf("%s %s %q: %d, and now it is %q: %v", method, target, body, w.Code, after, err)
			}
		}
	})
}
