package deferred

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// Request is a request that waits.
type Request struct {
	ID       string // 32 hexadecimal digits, which nobody can guess
	Tenant   string // whose queue it stands in; anything
	Upstream string // what it is for, as Config.Upstream says; "": nobody said
	Client   string // the address and port that it came from, as in http.Request.RemoteAddr
	Accepted time.Time
	Expires  time.Time     // when it is dead, if it was not done by then
	HTTP     *http.Request // TLS is not nil where it came over that; of one that waited it says no more
	Body     []byte        // of HTTP, whose own is not read
}

// NewID is an id for a request.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// validID says that an id is one of ours, as subjects and keys are made of it.
func validID(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == ""
}

// IdempotencyKey is the header by which an upstream knows a request that it has seen
// (draft-ietf-httpapi-idempotency-key-header).
const IdempotencyKey = "Idempotency-Key"

// Headers of a message, beside the request itself, which is its payload as HTTP/1.1 has it.
const (
	headerTenant   = "Sg-Tenant"
	headerClient   = "Sg-Client"
	headerUpstream = "Sg-Upstream"
	headerScheme   = "Sg-Scheme" // "https": it came over TLS of the edge's own; none: it did not
	headerAccepted = "Sg-Accepted"
	headerExpires  = "Sg-Expires"
	headerReason   = "Sg-Reason" // of a dead letter
	headerTries    = "Sg-Tries"
)

// errMalformed is wrapped in errors about messages that nobody of ours wrote.
var errMalformed = errors.New("not a deferred request")

// message is the request as it stands in a stream, under a subject.
func (r *Request) message(subject string) (*nats.Msg, error) {
	h := r.HTTP.Clone(context.Background())
	h.Body, h.ContentLength, h.TransferEncoding = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body)), nil
	if len(r.Body) == 0 {
		h.Body = nil
	}
	h.RequestURI, h.Trailer, h.Close = "", nil, false
	h.Header.Del("Expect")  // the body is here
	h.Header.Del("Trailer") // and has none
	for _, name := range nominated(h.Header) {
		h.Header.Del(name)
	}
	httpapi.DropUpgrade(h.Header) // it was for the connection that it came over
	if _, is := h.Header["User-Agent"]; !is {
		h.Header.Set("User-Agent", "") // or Write would invent one
	}
	if h.Header.Get(IdempotencyKey) == "" {
		h.Header.Set(IdempotencyKey, r.ID)
	}
	var payload bytes.Buffer
	if err := h.Write(&payload); err != nil {
		return nil, fmt.Errorf("write %s %s: %w", h.Method, h.URL.Path, err)
	}
	// What cannot be read again would be thrown away by who is to do it.
	if _, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(payload.Bytes()))); err != nil {
		return nil, fmt.Errorf("write %s %s: %w: %w", h.Method, h.URL.Path, errMalformed, err)
	}
	m := nats.NewMsg(subject)
	m.Data = payload.Bytes()
	m.Header.Set(jetstream.MsgIDHeader, r.ID)
	m.Header.Set(headerTenant, strconv.Quote(r.Tenant))
	m.Header.Set(headerClient, r.Client)
	if r.Upstream != "" {
		m.Header.Set(headerUpstream, r.Upstream)
	}
	if r.HTTP.TLS != nil {
		m.Header.Set(headerScheme, "https")
	}
	m.Header.Set(headerAccepted, r.Accepted.UTC().Format(time.RFC3339Nano))
	m.Header.Set(headerExpires, r.Expires.UTC().Format(time.RFC3339Nano))
	return m, nil
}

// nominated are the fields that Connection names: they end where it does.
func nominated(h http.Header) (names []string) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = textproto.TrimString(name); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

func named(names []string, field string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, field) })
}

// timeOf reads a time of a message's, which can be written again, in a status or for an operator:
// of those that can be read not all can.
func timeOf(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if t = t.UTC(); err == nil && (t.Year() < 1 || t.Year() > 9999) {
		err = fmt.Errorf("%q is in no year from 1 to 9999", text)
	}
	return t, err
}

// requestOf reads what message wrote.
func requestOf(h nats.Header, payload []byte) (*Request, error) {
	bad := func(what string, err error) (*Request, error) {
		return nil, fmt.Errorf("%w: %s: %w", errMalformed, what, err)
	}
	r := &Request{ID: h.Get(jetstream.MsgIDHeader), Client: h.Get(headerClient), Upstream: h.Get(headerUpstream)}
	if !validID(r.ID) {
		return bad(jetstream.MsgIDHeader, fmt.Errorf("%q is no id", r.ID))
	}
	var err error
	if r.Tenant, err = strconv.Unquote(h.Get(headerTenant)); err != nil {
		return bad(headerTenant, err)
	}
	if r.Accepted, err = timeOf(h.Get(headerAccepted)); err != nil {
		return bad(headerAccepted, err)
	}
	if r.Expires, err = timeOf(h.Get(headerExpires)); err != nil {
		return bad(headerExpires, err)
	}
	if r.HTTP, err = http.ReadRequest(bufio.NewReader(bytes.NewReader(payload))); err != nil {
		return bad("payload", err)
	}
	if r.Body, err = io.ReadAll(r.HTTP.Body); err != nil {
		return bad("payload", err)
	}
	r.HTTP.Body, r.HTTP.RemoteAddr = http.NoBody, r.Client
	if h.Get(headerScheme) == "https" { // which the upstream is told again
		r.HTTP.TLS = &tls.ConnectionState{HandshakeComplete: true}
	}
	return r, nil
}
