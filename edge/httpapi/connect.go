package httpapi

import (
	"net/http"
	"strconv"
	"strings"
)

// connectCodes are the statuses of gRPC that end a call which is denied, as Connect has them.
var connectCodes = map[int]string{
	callPermissionDenied:  "permission_denied",
	callResourceExhausted: "resource_exhausted",
	callUnavailable:       "unavailable",
}

// unaryConnect says that a request is a call of Connect's protocol, and no stream: its client
// reads its own JSON alone, and takes a 429 without it for UNAVAILABLE, as any fault, which it
// tries again at once.
func unaryConnect(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost:
		return postsConnect(r.Header)
	case http.MethodGet:
		for part := range strings.SplitSeq(r.URL.RawQuery, "&") { // parsed it costs more than all else about a denial
			if part == "connect=v1" {
				return true
			}
		}
	}
	return false
}

// postsConnect says that the fields of a POST are those of such a call.
func postsConnect(h http.Header) bool {
	kind := h.Get("Content-Type")
	return h.Get("Connect-Protocol-Version") == "1" && !strings.HasPrefix(kind, "application/connect+") && !strings.HasPrefix(kind, grpcType)
}

// denyConnect is deny for such a call.
func denyConnect(w http.ResponseWriter, x *exchange) {
	code, message, retry := callDenial(x)
	endConnect(w, statusOf(&x.answer.decision), code, message, retry)
}

// endConnect answers with an error of Connect's; retry is in seconds, 0: nothing is said of it.
func endConnect(w http.ResponseWriter, status, code int, message string, retry uint64) {
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = []string{"application/json"}, noStore
	if retry > 0 {
		h["Retry-After"] = []string{strconv.FormatUint(retry, 10)}
	}
	w.WriteHeader(status)
	text := appendString([]byte(`{"code":`), connectCodes[code])
	_, _ = w.Write(append(appendString(append(text, `,"message":`...), message), '}')) // a caller that is gone cannot be told so
}
