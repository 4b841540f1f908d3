package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// statusLeft is what a request counts as whose client left before the upstream answered:
// nobody reads it but rules with count_when, and logs. nginx calls it so.
const statusLeft = 499

// fault is why a request has no answer of the upstream's.
type fault struct {
	result result
	status int
	kind   string // of RFC 9209, section 2.3; "": nobody is there to read it
	detail string
}

// requestFault is what a client did wrong, or what is not done for it.
func requestFault(status int, detail string) fault {
	return fault{resultRefused, status, "http_request_error", detail}
}

// crowded is that of a body for which there is no room, and of a request without a place.
var crowded = fault{resultRefused, http.StatusServiceUnavailable, "http_request_denied", "there is no room for more of bodies that nobody takes yet: try again later"}

func tooLarge() fault {
	return requestFault(http.StatusRequestEntityTooLarge, "the body is larger than is passed on here")
}

// faultOf says what an error of a round trip comes from. What failed about the client's
// body comes before what that did to the upstream's connection.
func faultOf(err error, b *body, left bool) fault {
	if b != nil {
		if p := b.failure.Load(); p != nil {
			switch {
			case errors.Is(*p, errTooLarge):
				return tooLarge()
			case errors.Is(*p, errCrowded):
				return crowded
			case errors.Is(*p, os.ErrDeadlineExceeded):
				return requestFault(http.StatusRequestTimeout, "the body did not come: send it without long pauses")
			case !left && !errors.Is(*p, io.ErrUnexpectedEOF):
				return requestFault(http.StatusBadRequest, "the body could not be read to its end")
			}
			left = true // a client that breaks off its body is gone
		}
	}
	if left || errors.Is(err, context.Canceled) {
		return fault{resultLeft, statusLeft, "", "the client left"}
	}
	if strings.HasSuffix(err.Error(), "request header list larger than peer's advertised limit") { // net/http's own word
		return requestFault(http.StatusRequestHeaderFieldsTooLarge, "the header is larger than the upstream takes")
	}
	f := fault{result: resultUnreachable, status: http.StatusBadGateway}
	var dns *net.DNSError
	var op *net.OpError
	var reset http2.StreamError // net/http's has it filled
	dialed := errors.As(err, &op) && op.Op == "dial"
	timeout := isTimeout(err)
	switch {
	case errors.As(err, &dns) && timeout:
		f.kind, f.detail = "dns_timeout", "the upstream's name could not be looked up in time"
	case errors.As(err, &dns):
		f.kind, f.detail = "dns_error", "the upstream's name is not known"
	case dialed && timeout:
		f.kind, f.detail = "connection_timeout", "the upstream does not accept connections in time"
	case errors.Is(err, syscall.ETIMEDOUT): // nothing of what was sent is acknowledged
		timeout = false
		f.kind, f.detail = "connection_terminated", "the connection to the upstream was lost"
	case timeout:
		f.kind, f.detail = "http_response_timeout", "the upstream did not answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		f.kind, f.detail = "connection_refused", "the upstream refuses connections"
	case dialed:
		f.kind, f.detail = "destination_unavailable", "the upstream cannot be reached"
	case isCertificate(err):
		f.kind, f.detail = "tls_certificate_error", "the upstream's certificate is not to be trusted"
	case strings.Contains(err.Error(), "tls: "):
		f.kind, f.detail = "tls_protocol_error", "the upstream does not speak TLS as this edge does"
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, errAgain), errors.Is(err, errEnded), strings.HasSuffix(err.Error(), "EOF"), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), strings.Contains(err.Error(), "GOAWAY"), strings.Contains(err.Error(), "server closed idle connection"), strings.Contains(err.Error(), "http2: client conn"):
		f.kind, f.detail = "http_response_incomplete", "the upstream closed the connection before it answered"
	case errors.Is(err, errRefused):
		f.kind, f.detail = "http_response_incomplete", "the upstream refused the request's stream, as it does where it has as many as it takes"
	case errors.As(err, &reset) && isPeers(reset):
		f.kind, f.detail = "http_response_incomplete", "the upstream ended the request's stream before it answered: "+reset.Code.String()
	default:
		f.kind, f.detail = "http_protocol_error", "the upstream's answer is not understood"
	}
	if timeout {
		f.result, f.status = resultTimeout, http.StatusGatewayTimeout
	}
	return f
}

// endedFor says that the upstream ended a connection of HTTP/2 for what came on it (RFC 9113,
// section 5.4.1), by net/http's own words.
func endedFor(err error) bool {
	text := err.Error()
	return strings.Contains(text, "GOAWAY") && !strings.Contains(text, "ErrCode=NO_ERROR")
}

// refuses says that the upstream would not read what a request on a connection of its own is: HAProxy
// refuses the stream of some; Node resets it, where it has too many fields by what Go's server says of
// a handler that panics.
func refuses(err error, many bool) bool {
	var reset http2.StreamError
	if errors.As(err, &reset) && isPeers(reset) {
		switch reset.Code {
		case http2.ErrCodeEnhanceYourCalm, http2.ErrCodeProtocol:
			return true
		case http2.ErrCodeInternal:
			return many
		}
	}
	return errors.Is(err, errRefused)
}

// isPeers says that it was the upstream that reset a stream.
func isPeers(reset http2.StreamError) bool {
	return reset.Cause != nil && reset.Cause.Error() == "received from peer"
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout() || errors.Is(err, os.ErrDeadlineExceeded)
}

func isCertificate(err error) bool {
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.As(err, &verify) || errors.As(err, &unknown) || errors.As(err, &host)
}

// tell has the fields of an answer say what it is.
func (f fault) tell(h http.Header) {
	if f.kind != "" {
		h["Proxy-Status"] = []string{"spillgate; error=" + f.kind}
	}
	if f == crowded {
		h["Retry-After"] = []string{"1"}
	}
}

// fail tells the client.
func (x *exchange) fail(r *http.Request, f fault) {
	f.tell(x.answer.Header())
	if httpapi.GRPC(r) {
		httpapi.WriteCallProblem(&x.answer, r, f.status, httpapi.Unconnected(f.kind), f.detail)
		return
	}
	httpapi.WriteProblem(&x.answer, f.status, f.detail)
}
