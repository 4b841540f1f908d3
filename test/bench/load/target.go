package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
)

const (
	checkPath = "/v1/check"
	// statusPath is where an edge tells what became of a request that it has wait.
	statusPath = "/.well-known/spillgate/deferred/"
	// longest is how much of an answer is kept; of what is longer the rest is read, and
	// forgotten.
	longest = 64 << 10
)

// client asks the targets.
type client struct {
	o    Options
	http *http.Client
}

func newClient(o Options) *client {
	return &client{o: o, http: &http.Client{
		Transport: &http.Transport{ // no proxy: what is measured is the target
			MaxConnsPerHost: o.Connections, MaxIdleConnsPerHost: o.Connections, DisableCompression: true, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it is an answer
	}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// send makes a request to the target whose turn it is.
func (c *client) send(ctx context.Context, r request) outcome {
	return c.ask(ctx, c.o.Targets[r.serial%len(c.o.Targets)], r.tenant, false)
}

// reach asks each target once, before the load, so that a slip is told and not counted. A
// /v1/check charges nothing for it; of other pages it is enough that somebody listens.
func (c *client) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	for _, u := range c.o.Targets {
		var o outcome
		if checks(u) {
			o = c.ask(ctx, u, 0, true)
		} else {
			o = dial(ctx, u)
		}
		if o.fault != "" {
			return fmt.Errorf("-target %s: %s: %s", u.Redacted(), o.fault, o.detail)
		}
	}
	return nil
}

func dial(ctx context.Context, u *url.URL) outcome {
	port := u.Port()
	if port == "" {
		port = u.Scheme // they are names of ports, too
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return failure(err)
	}
	_ = conn.Close() // nothing was said on it
	return outcome{}
}

// checks says that a target is asked as /v1/check is.
func checks(u *url.URL) bool { return strings.HasSuffix(u.Path, checkPath) }

// ask makes one request and says what became of it.
func (c *client) ask(ctx context.Context, u *url.URL, of int, peek bool) outcome {
	r, err := c.request(ctx, u, of, peek)
	if err != nil {
		return failure(err)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return failure(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, longest))
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	}
	if err != nil {
		return failure(err)
	}
	return judge(checks(u), answer, text)
}

func (c *client) request(ctx context.Context, u *url.URL, of int, peek bool) (r *http.Request, err error) {
	if checks(u) {
		attributes := map[string]string{c.o.Key: tenant(of)}
		for _, a := range c.o.Attributes {
			attributes[a.name] = a.value
		}
		body, err := json.Marshal(struct {
			Namespace  string            `json:"namespace,omitempty"`
			Attributes map[string]string `json:"attributes"`
			Peek       bool              `json:"peek,omitempty"`
		}{c.o.Namespace, attributes, peek})
		if err != nil {
			return nil, err
		}
		if r, err = http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body)); err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
	} else {
		if r, err = http.NewRequestWithContext(ctx, c.o.Method, u.String(), nil); err != nil {
			return nil, err
		}
		r.Header.Set(c.o.Header, tenant(of))
	}
	for _, h := range c.o.Headers {
		if r.Header.Add(h.name, h.value); strings.EqualFold(h.name, "Host") {
			r.Host = h.value
		}
	}
	return r, nil
}

// undecidedField is that of edge/httpapi (UndecidedField).
const undecidedField = "X-Spillgate-Undecided"

// judge tells what an answer means. Of /v1/check it is what it says; of a page it is its
// status: 429, or that with which /v1/auth was told to deny, is a denial, whatever else an
// edge says is one, as a rule may have a status of its own, and so is an edge's 202, which
// says that it is done later; all else below 400 was admitted, but for what passes as nobody
// decided about it.
func judge(check bool, answer *http.Response, text []byte) outcome {
	switch status := answer.StatusCode; {
	case status == http.StatusTooManyRequests, answer.Header.Get("X-Ratelimit-Status") != "":
		return outcome{denied: true}
	case status >= http.StatusBadRequest && denies(answer, text):
		return outcome{denied: true}
	case status >= http.StatusBadRequest:
		return outcome{fault: fmt.Sprintf("status %d", status), detail: said(text)}
	case answer.Header.Get(undecidedField) != "": // it passed, and no limit is tried by it
		return outcome{fault: "undecided", detail: answer.Header.Get(undecidedField) + ": it passed, and no edge decided about it"}
	case !check:
		return outcome{waits: status == http.StatusAccepted && strings.HasPrefix(answer.Header.Get("Location"), statusPath)}
	}
	var reply struct {
		Allowed *bool `json:"allowed"`
		Basis   struct {
			CutOff bool `json:"cut_off"`
		} `json:"basis"`
	}
	switch err := json.Unmarshal(text, &reply); {
	case err != nil || reply.Allowed == nil:
		return outcome{fault: "no answer of an edge", detail: said(text)}
	case !*reply.Allowed && reply.Basis.CutOff:
		return outcome{fault: "cut off", detail: "the edge denies as it cannot hear of others (on_partition: closed)"}
	default:
		return outcome{denied: !*reply.Allowed}
	}
}

// denies says that an answer is an edge's denial: for a quota (an edge may be set to call it
// otherwise, and names its decision then as well), or by a rule that denies all it matches.
func denies(answer *http.Response, text []byte) bool {
	var problem struct{ Type, Detail, Instance string }
	return answer.Header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(text, &problem) == nil &&
		(strings.HasSuffix(problem.Type, "#quota-exceeded") || strings.HasPrefix(problem.Instance, "/v1/decisions/") ||
			problem.Type == "about:blank" && problem.Detail == "this request is not served")
}

// said is what an answer says, short: the detail of a problem, or its beginning.
func said(text []byte) string {
	var problem struct{ Detail string }
	if json.Unmarshal(text, &problem) == nil && problem.Detail != "" {
		text = []byte(problem.Detail)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	const most = 200
	if len(line) > most {
		line = line[:most] + "..."
	}
	return line
}

// failure names what went wrong with a request that got no answer.
func failure(err error) outcome {
	o := outcome{fault: "connection failed", detail: err.Error()}
	var unknown *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		o.fault = "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		o.fault, o.detail = "connection refused", "nobody listens there: is it up, and is this its port?"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EPIPE):
		o.fault = "connection broken"
	case errors.As(err, &unknown):
		o.fault = "no such host"
	}
	return o
}
