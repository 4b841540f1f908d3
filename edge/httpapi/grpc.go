package httpapi

import (
	"encoding/base64"
	"math"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Statuses of gRPC (google.rpc.Code) that a call is ended with which is not served.
const (
	callCancelled         = 1
	callUnknown           = 2
	callInvalidArgument   = 3
	callDeadlineExceeded  = 4
	callPermissionDenied  = 7
	callResourceExhausted = 8
	callUnimplemented     = 12
	callInternal          = 13
	callUnavailable       = 14
)

// statusLeft is what a request counts as whose client left: nginx calls it so, and google.rpc.Code CANCELLED.
const statusLeft = 499

// grpcType is what the types of gRPC's messages begin with.
const grpcType = "application/grpc"

// GRPC says that a request is a call of gRPC, or gRPC-Web: its client reads no other status
// than gRPC's, and takes 429 for UNAVAILABLE, as any fault, which it tries again at once.
func GRPC(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), grpcType)
}

// Unconnected says of a kind of fault of an upstream, as Proxy-Status has it (RFC 9209, section 2.3), that there
// was no connection to send anything on.
func Unconnected(kind string) bool {
	switch kind {
	case "dns_error", "dns_timeout", "connection_refused", "connection_timeout", "destination_unavailable", "tls_certificate_error", "tls_protocol_error":
		return true
	}
	return false
}

// WriteCallProblem is WriteProblem for a call of gRPC: with the status of gRPC that says most
// nearly the same as one of HTTP. What was unsent has reached nobody.
func WriteCallProblem(w http.ResponseWriter, r *http.Request, status int, unsent bool, detail string) {
	code := callUnavailable
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		code = callInvalidArgument
	case http.StatusRequestTimeout, statusLeft:
		code = callCancelled
	case http.StatusGatewayTimeout:
		if !unsent { // it may have been done: not to be tried again as UNAVAILABLE is
			code = callDeadlineExceeded
		}
	case http.StatusNotImplemented:
		code = callUnimplemented
	case http.StatusInternalServerError:
		code = callInternal
	}
	noteStatus(w, status)
	endCall(w, r, code, detail, 0)
}

// noteStatus has rules that count responses see a status which is not the one that is written.
func noteStatus(w http.ResponseWriter, status int) {
	if noted := noting(w); noted != nil {
		noted.note(status)
	}
}

// denyCall is deny for a call of gRPC: what edge/grpclimit ends it with.
func denyCall(w http.ResponseWriter, r *http.Request, x *exchange) {
	code, message, retry := callDenial(x)
	endCall(w, r, code, message, retry)
}

// callDenial is how a call of gRPC ends that is denied; retry is in seconds.
func callDenial(x *exchange) (code int, message string, retry uint64) {
	d := &x.answer.decision
	switch {
	case d.Basis.CutOff:
		return callUnavailable, cutOffProblem(0).detail, x.answer.retry
	case d.Rate == nil:
		return callPermissionDenied, "this call is not served", 0
	case shows(d.Rule):
		return callResourceExhausted, string(appendUsed(x.out[:0], d)), x.answer.retry
	default:
		return callResourceExhausted, "the limit is used up", x.answer.retry
	}
}

// tellCall has the answer to a proxy that asks about a call of gRPC say how that ends: its client reads
// a status of HTTP alone, 200.
func (a *API) tellCall(w http.ResponseWriter, r *http.Request, x *exchange) {
	if a.methodOf(r) == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), grpcType) {
		code, message, retry := callDenial(x)
		callFields(w.Header(), code, message, retry)
	}
}

// endCall answers with a status and no message ("Trailers-Only" of gRPC over HTTP/2). retry is
// in seconds; 0: nothing is said of it.
func endCall(w http.ResponseWriter, r *http.Request, code int, message string, retry uint64) {
	h := w.Header()
	h["Content-Type"] = []string{r.Header.Get("Content-Type")} // gRPC's, or gRPC-Web's
	callFields(h, code, message, retry)
	NoteCall(w, h)
	w.WriteHeader(http.StatusOK)
}

// callFields are those of a status, which is nobody else's; retry is in seconds, 0: nothing is said of it.
func callFields(h http.Header, code int, message string, retry uint64) {
	h["Cache-Control"] = noStore
	h["Grpc-Status"] = []string{strconv.Itoa(code)}
	h["Grpc-Message"] = []string{callMessage(message)}
	if retry > 0 {
		h["Retry-After"] = []string{strconv.FormatUint(retry, 10)}
		h["Grpc-Status-Details-Bin"] = []string{base64.RawStdEncoding.EncodeToString(retryInfo(code, message, retry))}
	}
}

// callMessage is a message as gRPC sends it: percent-encoded where it is not printable ASCII.
func callMessage(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(c)+0x100, 16)[1:]))
		}
	}
	return b.String()
}

// retryInfo is a google.rpc.Status with a RetryInfo, by which clients know when to try again.
func retryInfo(code int, message string, retry uint64) []byte {
	field := func(b []byte, n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), value)
	}
	number := func(b []byte, n protowire.Number, value uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), value)
	}
	delay := number(nil, 1, min(retry, math.MaxInt32)) // Duration.seconds
	info := field(nil, 1, []byte("type.googleapis.com/google.rpc.RetryInfo"))
	info = field(info, 2, field(nil, 1, delay))
	return field(field(number(nil, 1, uint64(code)), 2, []byte(message)), 3, info)
}
