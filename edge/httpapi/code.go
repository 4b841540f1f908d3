package httpapi

import (
	"net/http"
	"strconv"
)

// callCodes are the codes of gRPC, in their order: their names as its specification writes them, and
// the HTTP status of each, as google.rpc.Code has it, so that one rule serves both kinds of traffic.
var callCodes = [...]struct {
	name   string
	status int
}{
	{"OK", http.StatusOK},
	{"CANCELLED", statusLeft},
	{"UNKNOWN", http.StatusInternalServerError},
	{"INVALID_ARGUMENT", http.StatusBadRequest},
	{"DEADLINE_EXCEEDED", http.StatusGatewayTimeout},
	{"NOT_FOUND", http.StatusNotFound},
	{"ALREADY_EXISTS", http.StatusConflict},
	{"PERMISSION_DENIED", http.StatusForbidden},
	{"RESOURCE_EXHAUSTED", http.StatusTooManyRequests},
	{"FAILED_PRECONDITION", http.StatusBadRequest},
	{"ABORTED", http.StatusConflict},
	{"OUT_OF_RANGE", http.StatusBadRequest},
	{"UNIMPLEMENTED", http.StatusNotImplemented},
	{"INTERNAL", http.StatusInternalServerError},
	{"UNAVAILABLE", http.StatusServiceUnavailable},
	{"DATA_LOSS", http.StatusInternalServerError},
	{"UNAUTHENTICATED", http.StatusUnauthorized},
}

// CallStatus is the HTTP status that comes nearest to a code of gRPC.
func CallStatus(code uint32) int {
	if code < uint32(len(callCodes)) {
		return callCodes[code].status
	}
	return http.StatusInternalServerError
}

// CallAnswer is what a call of gRPC was answered that ended with a code; one that gRPC does not have has no name.
func CallAnswer(code uint32) Answer {
	a := Answer{Status: strconv.Itoa(CallStatus(code))}
	if code < uint32(len(callCodes)) {
		a.Code = callCodes[code].name
	}
	return a
}

// CallCode is the code of gRPC that a header says, or the trailers in it, as handlers of net/http send
// them; false where they say none.
func CallCode(h http.Header) (code uint32, ok bool) {
	said := h[http.TrailerPrefix+"Grpc-Status"]
	if len(said) == 0 {
		said = h["Grpc-Status"]
	}
	if len(said) == 0 {
		return 0, false
	}
	n, err := strconv.ParseUint(said[len(said)-1], 10, 32)
	if err != nil {
		return callUnknown, true
	}
	return uint32(n), true
}

// NoteCall has rules that count responses see how a call of gRPC ended, by what CallCode reads.
func NoteCall(w http.ResponseWriter, h http.Header) {
	if code, ok := CallCode(h); ok {
		noteCode(w, code)
	}
}

// NoteBroken is NoteCall for one that broke off amid its answer, be it that its client left.
func NoteBroken(w http.ResponseWriter, left bool) {
	if left {
		noteCode(w, callCancelled)
		return
	}
	noteCode(w, callInternal)
}

func noteCode(w http.ResponseWriter, code uint32) {
	if noted := noting(w); noted != nil {
		noted.call = CallAnswer(code)
	}
}

// noting is what notes an answer beneath w for rules that count responses; nil: none of them applies.
func noting(w http.ResponseWriter) *response {
	for {
		if noted, ok := w.(interface{ noting() *response }); ok {
			return noted.noting()
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = outer.Unwrap()
	}
}
