package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// Trailers come after a header, and are what a client goes by.
func TestCodesOfCalls(t *testing.T) {
	for name, c := range map[string]struct {
		header http.Header
		want   Answer // empty: it says none
	}{
		"none":               {http.Header{"Grpc-Message": {"x"}}, Answer{}},
		"in the header":      {http.Header{"Grpc-Status": {"16"}}, Answer{"401", "UNAUTHENTICATED"}},
		"in trailers":        {http.Header{"Trailer:Grpc-Status": {"1"}}, Answer{"499", "CANCELLED"}},
		"in both":            {http.Header{"Grpc-Status": {"0"}, "Trailer:Grpc-Status": {"5"}}, Answer{"404", "NOT_FOUND"}},
		"announced, in both": {http.Header{"Grpc-Status": {"0", "8"}}, Answer{"429", "RESOURCE_EXHAUSTED"}},
		"well":               {http.Header{"Grpc-Status": {"0"}}, Answer{"200", "OK"}},
		"one to come":        {http.Header{"Grpc-Status": {"17"}}, Answer{"500", ""}},
		"no number":          {http.Header{"Grpc-Status": {"OK"}}, Answer{"500", "UNKNOWN"}},
	} {
		var got Answer
		if code, ok := CallCode(c.header); ok {
			got = CallAnswer(code)
		}
		if got != c.want {
			t.Errorf("%s: %v is %+v, want %+v", name, c.header, got, c.want)
		}
	}
}

// A code that is noted is what rules count; the status of a fault is not one of the code's.
func TestNotedCodesAreCounted(t *testing.T) {
	for when, want := range map[string]bool{
		`response.code == "INVALID_ARGUMENT"`:                            true,
		`response.code == "INVALID_ARGUMENT" and response.status == 413`: true,
		`response.status in [200, 400]`:                                  false,
	} {
		rule := perAddress("faults", limit.RateSpec{Limit: 1, Per: time.Hour})
		rule.CountWhen = when
		b := &bench{}
		b.api = b.over(t, limitertest.Node(t, rules(rule)))
		h := b.api.Middleware("", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			WriteCallProblem(w, r, http.StatusRequestEntityTooLarge, false, "")
		}))
		var last *httptest.ResponseRecorder
		for range 2 {
			last = httptest.NewRecorder()
			r := httptest.NewRequest("POST", "/x.Y/Z", nil)
			r.Header.Set("Content-Type", "application/grpc")
			h.ServeHTTP(last, r)
		}
		if denied := last.Header().Get("Grpc-Status") == "8"; denied != want {
			t.Errorf("count_when: %s: the second call ends with %v, want it denied %v", when, last.Header(), want)
		}
	}
}
