package rls

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	// maxJSON is the largest call in JSON.
	maxJSON = 64 << 10
	// mostBraces is how many messages stand in one that is decided about: itself, its
	// descriptors with a limit each, and their entries, of which none is shorter than
	// {"key":"k"} and a comma. Braces of texts count as such.
	mostBraces = 1 + 2*maxDescriptors + maxJSON/12
)

// HTTP serves what the reference serves beside gRPC, and hands the rest to next: POST /json
// is ShouldRateLimit in proto3's JSON, answered with 200, or with 429 where the limit is
// used up, or with 503 where the edge is cut off from one that is closed then; /healthcheck says OK, or 500 where ready has an error. What the reference does
// not do: a call that could not be decided is answered with 503, and with what was wrong.
func (s *Service) HTTP(ready func() error, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/json":
			s.json(w, r)
		case "/healthcheck":
			if err := ready(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_, _ = io.WriteString(w, "OK") // a caller that is gone cannot be told so
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (s *Service) json(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		mistake(w, http.StatusMethodNotAllowed, fmt.Errorf("method: %.20q is not served here; POST is", r.Method))
		return
	}
	body, code, err := s.surface.Body(r, maxJSON)
	if err != nil {
		if code == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		mistake(w, code, err)
		return
	}
	defer body.Release()
	// Of three bytes each, as {}, a message is made that takes sixty times as much.
	if n := strings.Count(body.Text, "{"); n > mostBraces {
		s.surface.Refused()
		mistake(w, http.StatusBadRequest, fmt.Errorf("body: has %d messages in it, which are too many (%d descriptors, of %d entries each, at the most)", n, maxDescriptors, maxEntries))
		return
	}
	in := &rlsv3.RateLimitRequest{}
	if err := protojson.Unmarshal([]byte(body.Text), in); err != nil {
		s.surface.Refused()
		mistake(w, http.StatusBadRequest, fmt.Errorf("body: is no envoy.service.ratelimit.v3.RateLimitRequest: %w", err))
		return
	}
	out, err := s.ShouldRateLimit(r.Context(), in)
	if err != nil {
		code = http.StatusInternalServerError
		switch status.Code(err) {
		case codes.InvalidArgument:
			code = http.StatusBadRequest
		case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
			code = http.StatusServiceUnavailable
			w.Header().Set("Retry-After", "1")
		}
		mistake(w, code, errors.New(status.Convert(err).Message()))
		return
	}
	text, err := protojson.Marshal(out)
	if err != nil { // a bug of ours: a text that is no UTF-8, say
		s.surface.Panicked("/json", err)
		mistake(w, http.StatusInternalServerError, errors.New("the answer cannot be written as JSON; the log says why"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if out.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT {
		for _, f := range out.ResponseHeadersToAdd {
			if f.Key == "Retry-After" {
				w.Header().Set(f.Key, f.Value)
			}
		}
		code := http.StatusTooManyRequests
		if out.DynamicMetadata.GetFields()["cut_off"].GetBoolValue() {
			code = http.StatusServiceUnavailable
		}
		w.WriteHeader(code)
	}
	_, _ = w.Write(text)
}

// mistake answers what is no decision (RFC 9457).
func mistake(w http.ResponseWriter, code int, err error) {
	text, _ := json.Marshal(map[string]any{"type": "about:blank", "title": http.StatusText(code), "status": code, "detail": err.Error()}) // it cannot fail
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
