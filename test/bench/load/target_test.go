package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// anEdge serves a rule of so much a day for each user, on loopback.
func anEdge(t *testing.T, most uint64) string {
	t.Helper()
	node, err := edge.Local(limit.RuleSpec{
		Name: "user", Key: []string{"header.x-user-id"}, Match: limit.MatchSpec{Has: []string{"header.x-user-id"}},
		Rates: []limit.RateSpec{{Limit: most, Per: 24 * time.Hour, Algorithm: "fixed_window"}},
	}, limit.RuleSpec{
		Name: "paid", Key: []string{"header.x-user-id"}, Match: limit.MatchSpec{Path: []string{"/paid"}}, Priority: 1,
		Rates:   []limit.RateSpec{{Limit: most, Per: 24 * time.Hour, Algorithm: "fixed_window"}},
		OnLimit: limit.OnLimitSpec{Status: 402, ShowHeaders: "none"},
	}, limit.RuleSpec{
		Name: "barred", Match: limit.MatchSpec{Path: []string{"/barred"}}, Priority: 1, Deny: true,
	}, limit.RuleSpec{
		Name: "checked", Key: []string{"user"}, Match: limit.MatchSpec{Has: []string{"user"}, Path: []string{"/api/**"}},
		Rates: []limit.RateSpec{{Limit: most, Per: 24 * time.Hour, Algorithm: "fixed_window"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	api, err := httpapi.New(node, httpapi.Config{
		TrustedProxies: httpapi.Proxies{netip.MustParsePrefix("127.0.0.0/8")},
		Now:            func() time.Time { return time.Unix(1_000_000_000, 0) }, // of one day
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(api)
	t.Cleanup(srv.Close)
	return srv.URL
}

// loaded is the report of a load, as JSON tells it.
func loaded(t *testing.T, args ...string) (r struct {
	Asked, Admitted, Denied, Failed uint64
	Seconds                         float64
	Targets                         []string
	Top                             []row `json:"top_tenants"`
	Rest                            row   `json:"other_tenants"`
	Errors                          []kind
	Latency                         struct {
		P50 float64 `json:"p50_ms"`
	}
}) {
	t.Helper()
	o, err := Parse(append([]string{"-json"}, args...), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Run(t.Context(), o, &out, t.Output()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	return r
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (m *millis) UnmarshalJSON(text []byte) error {
	var ms float64
	err := json.Unmarshal(text, &ms)
	*m = millis(ms * float64(time.Millisecond))
	return err
}

// Of a real edge each tenant has what its rule allows and is denied the rest, which is no
// failure, whichever way it is asked.
func TestARealEdge(t *testing.T) {
	const most, tenants = 20, 3
	for _, c := range []struct {
		name string
		path string
		args []string
	}{
		{"check", "", []string{"-attribute", "path=/api/x", "-key", "user", "-namespace", "local"}},
		{"auth", "/v1/auth", nil},
		{"auth, by a status of its rule's own", "/v1/auth", []string{"-H", "X-Forwarded-Uri: /paid"}},
		{"auth for nginx", "/v1/auth?deny_status=403", []string{"-method", "POST", "-H", "X-Forwarded-Uri: /api/x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := anEdge(t, most)
			r := loaded(t, append([]string{"-load", "burst", "-every", "500ms", "-burst", "100ms", "-duration", "500ms", "-rate", "100", "-times", "20", "-tenants", "3", "-top", "2", "-timeout", "1m", "-target", url + c.path}, c.args...)...)
			if r.Asked < 239 || r.Asked > 241 || r.Admitted != most*tenants || r.Failed != 0 || r.Denied != r.Asked-r.Admitted {
				t.Errorf("%d asked, %d admitted, %d denied, %d failed, want 240, %d, the rest, 0: %v", r.Asked, r.Admitted, r.Denied, r.Failed, most*tenants, r.Errors)
			}
			if pace := float64(most) / r.Seconds; len(r.Top) == 2 && (r.Top[0].PerS < pace-.1 || r.Top[0].PerS > pace+.1 || r.Rest.PerS == 0) {
				t.Errorf("%v and %v admitted a second of %d in %v s", r.Top[0].PerS, r.Rest.PerS, most, r.Seconds)
			}
			if len(r.Top) != 2 || r.Top[0].Admitted != most || r.Top[1].Admitted != most || r.Rest.Admitted != most || r.Rest.Of != "1 others" || r.Latency.P50 <= 0 {
				t.Errorf("tenants: %+v and %+v, each admitted %d", r.Top, r.Rest, most)
			}
		})
	}
}

// A rule that denies all it matches denies; nothing failed.
func TestADenyListDenies(t *testing.T) {
	r := loaded(t, "-load", "steady", "-duration", "100ms", "-rate", "100", "-H", "X-Forwarded-Uri: /barred", "-target", anEdge(t, 10)+"/v1/auth")
	if r.Denied != r.Asked || r.Asked == 0 {
		t.Errorf("%d asked, %d denied, %d failed: %v", r.Asked, r.Denied, r.Failed, r.Errors)
	}
}

// A password in a URL is not told, be the load made or refused.
func TestPasswordsAreNotTold(t *testing.T) {
	var told strings.Builder
	with := strings.Replace(anEdge(t, 10), "http://", "http://me:secret@", 1)
	for _, args := range []string{
		"-target " + with + " -attribute path=/api/x", "-json -target " + with + " -attribute path=/api/x", "-target " + with + "/nothing/v1/check",
		"-target ftp://me:secret@h", "-target http://me:secret@h:port", "-target http://me:secret%@h",
	} {
		o, err := Parse(strings.Fields("-load steady -duration 50ms "+args), &told)
		if err == nil {
			err = Run(t.Context(), o, &told, &told)
		}
		fmt.Fprintln(&told, err)
	}
	if strings.Contains(told.String(), "secret") {
		t.Errorf("the password is told:\n%s", &told)
	}
}

// Several targets take turns.
func TestSeveralTargets(t *testing.T) {
	r := loaded(t, "-load", "steady", "-duration", "100ms", "-rate", "1000", "-tenants", "1", "-attribute", "path=/api/x", "-target", anEdge(t, 10), "-target", anEdge(t, 20))
	if r.Admitted != 30 || len(r.Targets) != 2 {
		t.Errorf("admitted %d by %v, want 10 and 20", r.Admitted, r.Targets)
	}
}

// A slip is told before anything is asked.
func TestTargetsThatCannotBeAsked(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\nworld")) }))
	defer page.Close()
	live := anEdge(t, 1)
	for args, want := range map[string]string{
		"-target " + dead.URL:                 "connection refused: nobody listens there",
		"-target " + dead.URL + "/page":       "connection refused: nobody listens there",
		"-target " + page.URL:                 "no answer of an edge: hello",
		"-namespace nope -target " + live:     `status 404: namespace: there are no rules for "nope"`,
		"-target http://no.invalid/v1/check":  "no such host",
		"-target " + live + "/other/v1/check": "status 404",
	} {
		o, err := Parse(append([]string{"-load", "steady"}, strings.Fields(args)...), t.Output())
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := Run(t.Context(), o, &out, t.Output()); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%s: %v, want %q, and no report", args, err, want)
		}
	}
}

// Failures are told apart, and from denials.
func TestOutcomes(t *testing.T) {
	hang := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-hang
		case "/break":
			panic(http.ErrAbortHandler)
		case "/500":
			w.WriteHeader(500)
			_, _ = w.Write([]byte(`{"status":500,"detail":"it is broken"}`))
		case "/429":
			w.WriteHeader(429)
		case "/202", "/own-202": // an upstream has its own
			if r.URL.Path == "/202" {
				w.Header().Set("Location", "/.well-known/spillgate/deferred/00112233445566778899aabbccddeeff")
			}
			w.WriteHeader(202)
		case "/undecided":
			w.Header().Set(httpapi.UndecidedField, "fault")
		case "/302":
			http.Redirect(w, r, "/500", 302)
		case "/cut/v1/check":
			_, _ = w.Write([]byte(`{"allowed":false,"status":503,"basis":{"cut_off":true}}`))
		case "/odd/v1/check":
			_, _ = w.Write([]byte(`[]`))
		}
	}))
	defer srv.Close()
	defer close(hang)
	for path, want := range map[string]outcome{
		"/200": {}, "/302": {}, "/own-202": {}, "/202": {waits: true}, "/429": {denied: true},
		"/undecided":    {fault: "undecided", detail: "fault: it passed"},
		"/500":          {fault: "status 500", detail: "it is broken"},
		"/hang":         {fault: "timeout"},
		"/break":        {fault: "connection broken"},
		"/cut/v1/check": {fault: "cut off"}, "/odd/v1/check": {fault: "no answer of an edge"},
	} {
		o := options(t, "-load", "steady")
		o.Targets = nil
		if o.target(srv.URL + path); o.wrong != nil {
			t.Fatal(o.wrong)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if path == "/hang" {
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		c := newClient(o)
		got := c.send(ctx, request{})
		c.close()
		cancel()
		if got.denied != want.denied || got.waits != want.waits || got.fault != want.fault || !strings.Contains(got.detail, want.detail) {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
}

// What is to be done later was not admitted, and is told apart.
func TestDeferredIsToldApart(t *testing.T) {
	var of, all tally
	of.add(outcome{}, time.Millisecond)
	of.add(outcome{waits: true}, time.Millisecond)
	of.add(outcome{waits: true}, time.Millisecond)
	of.add(outcome{denied: true}, time.Millisecond)
	all.merge(&of)
	if r := rowOf("", &all); r.Asked != 4 || r.Answered != 4 || r.Admitted != 1 || r.Deferred != 2 || r.Denied != 1 || all.asked() != 4 {
		t.Errorf("%+v of %d", r, all.asked())
	}
}

// However many kinds of errors there are, few are remembered.
func TestFaultsAreBounded(t *testing.T) {
	var f faults
	for i := range 1000 {
		f.add(outcome{fault: tenant(i)})
	}
	if len(f.of) != maxFaults+1 || f.of["others"].count != 1000-maxFaults {
		t.Errorf("%d kinds, of others %v", len(f.of), f.of["others"])
	}
}
