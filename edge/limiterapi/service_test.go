package limiterapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limiterpb"
)

// Random calls are told the same over gRPC as over HTTP, replies, mistakes and metrics, and
// charge the same.
func TestSaysWhatHTTPSays(t *testing.T) {
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, seed))
	other := limit.Document{Namespace: "other", Rules: shop.Rules[:1]}
	byGRPC, byHTTP := limitertest.New(t, shop, other), limitertest.New(t, shop, other)
	api, metrics := newAPI(t, byGRPC)
	client := serve(t, api)
	page, pageMetrics := newAPI(t, byHTTP)
	seen := map[string]int{}
	for i := range 3000 {
		in := call(rnd)
		var out proto.Message
		var err error
		path := "/v1/check"
		if report, ok := in.(*limiterpb.ReportRequest); ok {
			path = "/v1/report"
			out, err = client.Report(t.Context(), report)
		} else {
			out, err = client.Check(t.Context(), in.(*limiterpb.CheckRequest))
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body(t, in))))
		told := object(t, w.Body.Bytes())
		if err != nil {
			wantCode := map[int]codes.Code{http.StatusBadRequest: codes.InvalidArgument, http.StatusNotFound: codes.NotFound}[w.Code]
			if status.Code(err) != wantCode || status.Convert(err).Message() != told["detail"] {
				t.Fatalf("seed %d, call %d, %v:\n%v\nover HTTP %d %s", seed, i, in, err, w.Code, w.Body)
			}
			seen[status.Code(err).String()]++
			continue
		}
		if w.Code != http.StatusOK {
			t.Fatalf("seed %d, call %d, %v:\n%v\nover HTTP %d %s", seed, i, in, out, w.Code, w.Body)
		}
		text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := plain(object(t, text)), plain(told); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, call %d, %v:\n%v\nover HTTP\n%v", seed, i, in, got, want)
		}
		for _, field := range []string{"delay_ms", "near_limit", "zone", "recorded", "policy"} {
			if v, ok := told[field]; ok {
				seen[fmt.Sprint(field, " ", v)]++
			}
		}
	}
	for _, want := range []string{"InvalidArgument", "NotFound", "zone soft", "zone hard", "zone shadow", "near_limit true", "delay_ms 1000", "recorded true", "recorded false"} {
		if seen[want] == 0 {
			t.Errorf("no call had %s: %v", want, seen)
		}
	}
	if a, b := byGRPC.Charged(), byHTTP.Charged(); a != b || a == 0 {
		t.Errorf("charged %d, over HTTP %d", a, b)
	}
	got, want := counted(t, metrics), counted(t, pageMetrics)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("counted\n%v\nover HTTP\n%v", got, want)
	}
}

// counted are the counters of a registry.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if c := m.GetCounter(); c != nil {
				out[f.GetName()+fmt.Sprint(m.GetLabel())] = c.GetValue()
			}
		}
	}
	return out
}

// call is a random one, right or wrong.
func call(rnd *rand.Rand) proto.Message {
	one := func(of ...string) string { return of[rnd.IntN(len(of))] }
	attributes := map[string]string{}
	for _, a := range [][]string{
		{"user", "u1", "u2", "u3", ""}, {"client_ip", "192.0.2.1", "2001:db8::1", "localhost", ""}, {"path", "/api/a", "/api/%61?x", "/closed", "//api/../x"},
		{"header.X-Id", "1", "2"}, {"header.x-id", "1"}, {"job", "j"}, {"login", "l1", "l2"}, {"response.status", "401", "200", "-1", "no"}, {"", "x"},
	} {
		if rnd.IntN(4) == 0 {
			attributes[a[0]] = one(a[1:]...)
		}
	}
	if rnd.IntN(50) == 0 {
		for i := range 65 {
			attributes[fmt.Sprint("a", i)] = "x"
		}
	}
	namespace := one("shop", "shop", "shop", "shop", "shop", "shop", "other", "none", "")
	costs := []uint64{0, 1, 2, 7, 1 << 53, 1<<53 + 1, 1<<63 - 1}
	cost := costs[rnd.IntN(len(costs))]
	if rnd.IntN(3) > 0 {
		cost = 1
	}
	if rnd.IntN(3) > 0 {
		in := &limiterpb.CheckRequest{Namespace: namespace, Attributes: attributes, Peek: rnd.IntN(8) == 0}
		if rnd.IntN(2) == 0 {
			in.Cost = &cost
		}
		return in
	}
	in := &limiterpb.ReportRequest{Namespace: namespace, Attributes: attributes, Answered: rnd.IntN(2) == 0, DecisionId: one("", "", "", "01HZZZZZZZ0123456789ABCDEF", "x")}
	if signed := int64(cost); rnd.IntN(2) == 0 {
		if rnd.IntN(2) == 0 {
			signed = -signed
		}
		in.Cost = &signed
	}
	return in
}

// body is a call as it goes over HTTP: its fields in the order in which mistakes are told.
func body(t *testing.T, in proto.Message) string {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var fields struct {
		Namespace  string            `json:"namespace,omitempty"`
		Attributes map[string]string `json:"attributes,omitempty"`
		Cost       json.Number       `json:"cost,omitempty"`
		Peek       bool              `json:"peek,omitempty"`
		DecisionID string            `json:"decision_id,omitempty"`
		Answered   bool              `json:"answered,omitempty"`
	}
	if err := json.Unmarshal(text, &fields); err != nil { // Number reads "1", as protojson has it
		t.Fatal(err)
	}
	if text, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// object is a JSON object; costs are larger than a float is exact.
func object(t *testing.T, text []byte) (out map[string]any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// plain is a reply without what is empty, or is chosen at random; numbers as text.
func plain(v map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range v {
		switch v := v.(type) {
		case json.Number:
			if v != "0" {
				out[name] = v.String()
			}
		case bool:
			if v {
				out[name] = v
			}
		case map[string]any:
			if len(v) > 0 {
				out[name] = plain(v)
			}
		case string:
			if name != "decision_id" && v != "" && v != "0" {
				out[name] = strings.ToLower(strings.TrimPrefix(v, "ZONE_"))
			}
		}
	}
	return out
}

// A batch is decided in its order, each by itself; what waits for rights does so when all
// others are decided, and has its place all the same.
func TestBatch(t *testing.T) {
	limiter := limitertest.New(t, shop)
	var waited []string
	api, _ := newAPI(t, awaits{limiter, &waited})
	client := serve(t, api)
	of := func(user string, cost uint64) *limiterpb.CheckRequest {
		return &limiterpb.CheckRequest{Attributes: map[string]string{"user": user}, Cost: &cost}
	}
	out, err := client.CheckBatch(t.Context(), &limiterpb.CheckBatchRequest{Checks: []*limiterpb.CheckRequest{
		of("w1", 3), of("u1", 30), {Namespace: "none"}, of("w2", 1<<53+1), of("u1", 2), {}, of("w2", 4),
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range out.Results {
		if e := r.GetError(); e != nil {
			got = append(got, codes.Code(e.Code).String()+" "+e.Message)
			continue
		}
		got = append(got, fmt.Sprint(r.GetReply().Allowed, " ", r.GetReply().Rule, " ", r.GetReply().Remaining))
	}
	want := []string{
		"true api 17", "false api 20", `NotFound namespace: there are no rules for "none" (it is the namespace: of a rules file)`,
		`InvalidArgument cost: "9007199254740993" is above 2^53 (send a whole number from 0 to 2^53)`, "true api 18", "true  0", "true api 16",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if fmt.Sprint(waited) != "[u1 u1  w1 w2]" {
		t.Errorf("decided in the order %q, want those that wait last", waited)
	}

	before := limiter.Checks()
	_, err = client.CheckBatch(t.Context(), &limiterpb.CheckBatchRequest{Checks: make([]*limiterpb.CheckRequest, 101)})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "more than 100") || limiter.Checks() != before {
		t.Errorf("101 checks: %v, %d asked, want it refused", err, limiter.Checks()-before)
	}
	if out, err := client.CheckBatch(t.Context(), &limiterpb.CheckBatchRequest{}); err != nil || len(out.Results) != 0 {
		t.Errorf("no checks: %v, %v", out, err)
	}
}

// What an id was made for comes back by it under a strict limit, over either transport.
func TestReportsByDecision(t *testing.T) {
	limiter := limitertest.New(t, limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{{
		Name: "strict", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 5, Per: 1e10, Consistency: "strict"}},
	}}})
	api, _ := newAPI(t, limiter)
	client := serve(t, api)
	attributes := map[string]string{"user": "u"}
	out, err := client.Check(t.Context(), &limiterpb.CheckRequest{Attributes: attributes})
	if err != nil || !out.Allowed {
		t.Fatal(out, err)
	}
	back := int64(-1)
	for i, want := range []bool{true, false} { // once
		if _, err := client.Report(t.Context(), &limiterpb.ReportRequest{Attributes: attributes, Cost: &back, DecisionId: out.DecisionId}); err != nil || limiter.Ours != want {
			t.Errorf("report %d: %v, known as its own: %v, want %v", i, err, limiter.Ours, want)
		}
	}
}

// Faults are told apart from denials, and from mistakes of the caller's.
func TestFaults(t *testing.T) {
	in := &limiterpb.CheckRequest{Attributes: map[string]string{"user": "u"}}
	batch := &limiterpb.CheckBatchRequest{Checks: []*limiterpb.CheckRequest{in}}
	report := &limiterpb.ReportRequest{Attributes: in.Attributes}
	for name, c := range map[string]struct {
		limiter httpapi.Limiter
		code    codes.Code
		says    string
	}{
		"no rules": {limitertest.New(t), codes.Unavailable, "not ready: no rules are loaded yet"},
		"a bug":    {panics{limitertest.New(t, shop)}, codes.Internal, "the limiter failed; its log says where"},
	} {
		t.Run(name, func(t *testing.T) {
			api, metrics := newAPI(t, c.limiter)
			client := serve(t, api)
			_, one := client.Check(t.Context(), in)
			_, many := client.CheckBatch(t.Context(), batch)
			_, told := client.Report(t.Context(), report)
			for i, err := range []error{one, many, told} {
				if status.Code(err) != c.code || status.Convert(err).Message() != c.says {
					t.Errorf("call %d: %v, want %v %s", i, err, c.code, c.says)
				}
			}
			undecided := 0.0
			for series, n := range counted(t, metrics) {
				if strings.HasPrefix(series, "spillgate_decisions_total") && strings.Contains(series, `"error"`) || strings.HasPrefix(series, "spillgate_reports_total") && strings.Contains(series, `"error"`) {
					undecided += n
				}
			}
			if undecided != 3 {
				t.Errorf("%v calls counted as errors, want 3: %v", undecided, counted(t, metrics))
			}
		})
	}
}
