package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/client/grpcclient"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// patient waits longer than any machine takes.
var patient = client.Config{Timeout: time.Minute}

// of are attributes: name, value, and so on.
func of(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// Over either transport a reply says the same, and all that the edge does.
func TestReplies(t *testing.T) {
	heard := client.Basis{Age: -1, Regions: 1}
	told := func(local uint64) client.Basis { b := heard; b.Local = local; return b }
	steps := []struct {
		name  string
		check client.Check
		want  client.Reply
	}{
		{"allowed", client.Check{Attributes: of("user", "u"), Cost: 4},
			client.Reply{Allowed: true, Rule: "api", Policy: "minute", Limit: 10, Remaining: 6, Zone: "normal", Basis: heard}},
		{"soft", client.Check{Attributes: of("user", "u"), Cost: 7},
			client.Reply{Allowed: true, Rule: "api", Policy: "minute", Limit: 10, Zone: "soft", NearLimit: true, Basis: told(4)}},
		{"peek", client.Check{Attributes: of("user", "v"), Cost: 4, Peek: true},
			client.Reply{Allowed: true, Rule: "api", Policy: "minute", Limit: 10, Remaining: 10, Zone: "normal", Basis: heard}},
		{"denied", client.Check{Attributes: of("user", "u"), Cost: 2},
			client.Reply{Rule: "api", Policy: "minute", Limit: 10, Zone: "hard", Status: 429, NearLimit: true, RetryAfter: 45 * time.Second, Basis: told(11)}},
		{"denied for good", client.Check{Attributes: of("path", "/closed")}, client.Reply{Rule: "closed", Zone: "hard", Status: 403, Basis: client.Basis{Age: -1}}},
		{"no rule", client.Check{Namespace: "shop"}, client.Reply{Allowed: true, Basis: client.Basis{Age: -1}}},
		{"at once", client.Check{Attributes: of("job", "j")}, client.Reply{Allowed: true, Rule: "queue", Policy: "out", Limit: 3, Remaining: 2, Zone: "normal", Basis: heard}},
		{"later", client.Check{Attributes: of("job", "j")},
			client.Reply{Allowed: true, Rule: "queue", Policy: "out", Limit: 3, Remaining: 1, Zone: "normal", Delay: time.Second, Basis: told(1)}},
		{"on trial", client.Check{Attributes: of("trial", "t"), Cost: 2},
			client.Reply{Allowed: true, Rule: "trial", Policy: "minute", Limit: 1, Zone: "shadow", Basis: heard}},
	}
	for name, start := range transports {
		t.Run(name, func(t *testing.T) {
			limiter := start(t, limitertest.New(t, shop), patient)
			for _, s := range steps {
				got, err := limiter.Check(t.Context(), s.check)
				if err != nil {
					t.Fatalf("%s: %v", s.name, err)
				}
				if got.DecisionID == "" || got.Policy != "" && got.Zone != "shadow" && !strings.Contains(got.Headers["RateLimit"], ";r=") || got.Zone == "hard" && got.Policy != "" && got.Headers["Retry-After"] != "45" {
					t.Errorf("%s: id %q, headers %v", s.name, got.DecisionID, got.Headers)
				}
				if got.DecisionID, got.Headers = "", nil; !reflect.DeepEqual(got, s.want) {
					t.Errorf("%s: %+v\nwant %+v", s.name, got, s.want)
				}
			}
		})
	}
}

// What is known of others is told, too.
func TestRepliesTellTheBasis(t *testing.T) {
	now, surge := uint64(3), uint64(30)
	want := client.Basis{Local: 5, Merged: 7, Age: 1500 * time.Millisecond, Regions: 3, ErrorBound: &now, ErrorBoundSurge: &surge, ShortOfShare: true, CutOff: true}
	for name, start := range transports {
		t.Run(name, func(t *testing.T) {
			got, err := start(t, knows{limitertest.New(t, shop)}, patient).Check(t.Context(), client.Check{Attributes: of("user", "u")})
			if err != nil || !reflect.DeepEqual(got.Basis, want) {
				t.Errorf("%+v, %v, want %+v", got.Basis, err, want)
			}
		})
	}
}

// knows is a limiter that has heard of others.
type knows struct{ *limitertest.Limiter }

func (k knows) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	d := k.Check(now, req)
	d.Basis = limit.Basis{Local: 5, Merged: 7, Age: 1500 * time.Millisecond, Regions: 3, Short: true, CutOff: true}
	req.Bound = limit.Bound{Known: true, Now: 3, Surge: 30}
	return d, nil
}

func TestReports(t *testing.T) {
	type step struct {
		report client.Report
		want   client.Recorded
	}
	for name, start := range transports {
		t.Run(name, func(t *testing.T) {
			fake := limitertest.New(t, limit.Document{Namespace: "shop", Rules: append([]limit.RuleSpec{{
				Name: "strict", Group: "strict", Key: []string{"seat"}, Match: limit.MatchSpec{Has: []string{"seat"}},
				Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute, Consistency: "strict"}},
			}}, shop.Rules...)})
			limiter := start(t, fake, patient)
			for i, s := range []step{
				{client.Report{Attributes: of("user", "u"), Cost: 8}, client.Recorded{Recorded: true, Rule: "api", Policy: "minute", Limit: 10, Remaining: 2, NearLimit: true}},
				{client.Report{Attributes: of("user", "u"), Cost: -5}, client.Recorded{Recorded: true, Rule: "api", Policy: "minute", Limit: 10, Remaining: 7}},
				{client.Report{Attributes: of("user", "u")}, client.Recorded{Recorded: true, Rule: "api", Policy: "minute", Limit: 10, Remaining: 6}},
				{client.Report{Attributes: of("user", "v"), Cost: -1}, client.Recorded{Rule: "api", Policy: "minute", Limit: 10, Remaining: 10}},
				{client.Report{Attributes: of("login", "l", "response.status", "401"), Answered: true}, client.Recorded{Recorded: true, Rule: "logins", Policy: "hour", Limit: 2, Remaining: 1}},
				{client.Report{Attributes: of("login", "l", "response.status", "200"), Answered: true}, client.Recorded{Rule: "logins", Policy: "hour", Limit: 2, Remaining: 1}},
				{client.Report{Namespace: "shop"}, client.Recorded{}},
			} {
				if got, err := limiter.Report(t.Context(), s.report); err != nil || got != s.want {
					t.Errorf("report %d: %+v, %v, want %+v", i, got, err, s.want)
				}
			}
			seat, err := limiter.Check(t.Context(), client.Check{Attributes: of("seat", "s")})
			if err != nil || !seat.Allowed {
				t.Fatalf("%+v, %v", seat, err)
			}
			if _, err := limiter.Report(t.Context(), client.Report{Attributes: of("seat", "s"), Cost: -1, DecisionID: seat.DecisionID}); err != nil || !fake.Ours {
				t.Errorf("given back by its id: %v, known as its own: %v", err, fake.Ours)
			}
		})
	}
}

// A call that is wrong is a mistake, whatever else; nothing is decided, and the edge's words
// say how to mend it. What is wrong with the request itself denies it, whatever the caller
// chose; what is wrong with the settings is as he chose.
func TestMistakes(t *testing.T) {
	for name, start := range transports {
		t.Run(name, func(t *testing.T) {
			limiter := start(t, limitertest.New(t, shop, limit.Document{Namespace: "other", Rules: shop.Rules[:1]}), patient)
			for want, c := range map[string]struct {
				check  client.Check
				status int // 0: passes, as the settings are wrong
			}{
				`limiter: check: attributes.client_ip: "localhost" is not an IP address (`: {client.Check{Namespace: "shop", Attributes: of("client_ip", "localhost")}, 400},
				`limiter: check: cost: "9007199254740993" is above 2^53 (`:                 {client.Check{Namespace: "shop", Cost: 1<<53 + 1}, 400},
				`limiter: check: attributes."user": is not UTF-8 (`:                        {client.Check{Namespace: "shop", Attributes: of("user", "a\xff")}, 400},
				`limiter: check: attributes: are longer than the 60 KiB that an edge t`:    {client.Check{Namespace: "shop", Attributes: of("path", "/", "user", strings.Repeat("<", 60<<10))}, 431},
				`limiter: check: attributes: are longer than the 60 KiB`:                   {client.Check{Namespace: "shop", Attributes: of("path", strings.Repeat("/", 61<<10), "user", "u")}, 414},
				`limiter: check: attributes: 65 are too many (`:                            {client.Check{Namespace: "shop", Attributes: many(65)}, 400},
				`limiter: check: namespace: there are no rules for "none" (`:               {client.Check{Namespace: "none"}, 0},
				`limiter: check: namespace: is missing, and the rules have several (`:      {client.Check{}, 0},
			} {
				got, err := limiter.Check(t.Context(), c.check)
				var mistake *client.Mistake
				if !errors.As(err, &mistake) || client.IsFault(err) || !strings.HasPrefix(err.Error(), want) || got.Allowed != (c.status == 0) ||
					mistake.Setup != (c.status == 0) || !got.Undecided || got.Status != c.status {
					t.Errorf("%+v, %v, want the mistake %q and status %d", got, err, want, c.status)
				}
			}
			if got, err := limiter.Check(t.Context(), client.Check{Namespace: "shop", Attributes: of("user", strings.Repeat("<\"\u2028\x00", 4000))}); err != nil || !got.Allowed {
				t.Errorf("what is nearly too long: %+v, %v", got, err)
			}
			_, err := limiter.Report(t.Context(), client.Report{DecisionID: "x"})
			if want := `limiter: report: decision_id: "x" is no id of a decision (`; err == nil || client.IsFault(err) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want the mistake %q", err, want)
			}
		})
	}
}

// many are so many attributes.
func many(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprint("a", i)] = "x"
	}
	return out
}

// buggy is a limiter with a bug.
type buggy struct{ *limitertest.Limiter }

func (buggy) CheckOrWait(time.Time, *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	panic("a bug")
}

func (buggy) Report(time.Time, *limit.Request) limit.Decision { panic("a bug") }

// Where the limiter fails, requests pass or not as the caller chose, and he is told.
func TestFaults(t *testing.T) {
	for name, start := range transports {
		for trouble, limiter := range map[string]httpapi.Limiter{"no rules": limitertest.New(t), "bug": buggy{limitertest.New(t, shop)}} {
			for _, closed := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", trouble, " ", closed), func(t *testing.T) {
					cfg := patient
					cfg.FailClosed = closed
					failed(t, start(t, limiter, cfg), closed, nil)
				})
			}
		}
	}
}

// failed checks that nothing is decided.
func failed(t *testing.T, limiter client.Limiter, closed bool, cause error) {
	t.Helper()
	got, err := limiter.Check(t.Context(), client.Check{Attributes: of("user", "u")})
	want := client.Reply{Allowed: !closed, Undecided: true, Basis: client.Basis{Age: -1}}
	if closed { // what is answered by its status alone says an outage, and when to come again
		want.Status, want.RetryAfter, want.Headers = http.StatusServiceUnavailable, time.Second, map[string]string{"Retry-After": "1"}
	}
	if !client.IsFault(err) || !reflect.DeepEqual(got, want) {
		t.Errorf("check: %+v, %v, want %+v and a fault", got, err, want)
	}
	if cause != nil && !errors.Is(err, cause) {
		t.Errorf("check: %v, want %v", err, cause)
	}
	if got, err := limiter.Report(t.Context(), client.Report{Attributes: of("user", "u")}); !client.IsFault(err) || got != (client.Recorded{}) {
		t.Errorf("report: %+v, %v, want a fault", got, err)
	}
}

// An edge that is dead, or does not answer in time, fails a call and not the caller.
func TestEdgesThatAreAway(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	t.Run("no connection", func(t *testing.T) {
		var none *grpc.ClientConn // as grpc.NewClient returns it with an error
		failed(t, grpcclient.New(none, client.Config{FailClosed: true}), true, nil)
		failed(t, grpcclient.New(nil, client.Config{}), false, nil)
	})
	for name, dial := range dialled {
		t.Run(name+" dead", func(t *testing.T) {
			failed(t, dial(t, dead.Addr().String(), client.Config{FailClosed: true, Timeout: 10 * time.Second}), true, nil)
		})
		t.Run(name+" silent", func(t *testing.T) {
			failed(t, dial(t, silent.Addr().String(), client.Config{}), false, context.DeadlineExceeded)
		})
		t.Run(name+" and the caller goes", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := dial(t, silent.Addr().String(), client.Config{Timeout: -1}).Check(ctx, client.Check{})
			if !client.IsFault(err) || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want a fault, as the caller is gone", err)
			}
		})
	}
}

// What is no edge is a fault, and never taken for a denial or a mistake.
func TestWhatIsNoEdge(t *testing.T) {
	for name, c := range map[string]struct {
		code       int
		kind, text string
		says       string
	}{
		"a page":            {200, "text/html", "<html>", "is not understood"},
		"other JSON":        {200, "application/json", `{"healthy":true}`, "is this the address of an edge?"},
		"another 404":       {404, "text/html", "not here", "404 Not Found: is this the address of an edge?"},
		"a proxy's 429":     {429, "application/problem+json", `{"detail":"slow down"}`, "429 Too Many Requests: slow down"},
		"a redirect":        {302, "text/html", "", "302 Found: is this"},
		"an endless answer": {200, "application/json", `{"allowed":true,"rule":"` + strings.Repeat("x", 1<<20), "is not understood"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.code)
				_, _ = w.Write([]byte(c.text)) // who hung up counts nothing
			}))
			defer server.Close()
			limiter := overHTTP(t, server.URL, patient)
			failed(t, limiter, false, nil)
			if _, err := limiter.Check(t.Context(), client.Check{}); !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:8080", "ftp://edge", "http://", "http://edge?x=1", "://"} {
		if _, err := client.NewHTTP(bad, client.Config{}); err == nil || !strings.Contains(err.Error(), "such as http://") {
			t.Errorf("%q: %v, want it refused with an example", bad, err)
		}
	}
	listener, err := httpapi.Listen("unix:" + t.TempDir() + "/edge.sock")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(apiOver(t, limitertest.New(t, shop)))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	got, err := overHTTP(t, "unix:"+listener.Addr().String(), patient).Check(t.Context(), client.Check{Attributes: of("user", "u")})
	if err != nil || got.Remaining != 9 {
		t.Errorf("over a unix socket: %+v, %v", got, err)
	}
}

// holds is a limiter that waits for rights that never come.
type holds struct{ *limitertest.Limiter }

func (h holds) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	req.Peek = true
	d := h.Check(now, req)
	return d, func(ctx context.Context) limit.Decision {
		<-ctx.Done()
		d.Allowed, d.Zone, d.Basis.Short = false, limit.ZoneHard, true
		return d
	}
}

// A strict limit holds however short a caller's patience is: the edge decides before he goes.
func TestPatience(t *testing.T) {
	for name, start := range transports {
		t.Run(name, func(t *testing.T) {
			limiter := start(t, holds{limitertest.New(t, shop)}, client.Config{Timeout: 2 * time.Second})
			got, err := limiter.Check(t.Context(), client.Check{Attributes: of("user", "u")})
			if err != nil || got.Allowed || !got.Basis.ShortOfShare {
				t.Errorf("%+v, %v, want it denied", got, err)
			}
		})
	}
}
