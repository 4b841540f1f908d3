package client

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
	"strconv"
	"strings"
	"time"
)

// maxReply bounds what is read of an answer: an edge's is some hundred bytes.
const maxReply = 64 << 10

// HTTP asks an edge by POST /v1/check and /v1/report. It is safe for concurrent use.
type HTTP struct {
	check, report string
	cfg           Config
	http          *http.Client
}

var _ Limiter = (*HTTP)(nil)

const (
	// idle is how many connections are kept for calls to come: the default of net/http, two,
	// has a busy program connect anew with most of its calls.
	idle = 64
	// mostConns is how many there are at the most, those that are being made included; calls
	// wait for one of them as long as they may take.
	mostConns = 256
	// shortestDial is how long a connection may take to be made, where calls may take less: it
	// serves those to come. net/http ends none with the call that asked for it, and the kernel
	// tries for two minutes to reach an edge that is frozen.
	shortestDial = time.Second
	longestDial  = 30 * time.Second
)

// NewHTTP returns a client of the edge at a URL: "http://127.0.0.1:8080", or
// "unix:/run/spillgate.sock" for one that listens on a socket. It asks no proxy.
func NewHTTP(edge string, cfg Config) (*HTTP, error) {
	// An edge closes connections that have been idle for two minutes: a call that it closes
	// one under fails.
	dialer := &net.Dialer{Timeout: max(cfg.Timeout, shortestDial)}
	if cfg.Timeout < 0 {
		dialer.Timeout = longestDial
	}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: idle, MaxConnsPerHost: mostConns, IdleConnTimeout: 90 * time.Second}
	if path, ok := strings.CutPrefix(edge, "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		edge = "http://unix"
	}
	return NewHTTPOver(&http.Client{Transport: transport}, edge, cfg)
}

// NewHTTPOver is NewHTTP with a client of the caller's: for TLS of his own, say. Redirects
// are not followed. Its transport should bound how long a connection takes to be made
// (net.Dialer.Timeout), and how many there are (MaxConnsPerHost): net/http's own leaves one
// behind for each call to an edge that is frozen, for 30 seconds.
func NewHTTPOver(over *http.Client, edge string, cfg Config) (*HTTP, error) {
	at, err := url.Parse(edge)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.RawQuery != "" {
		return nil, fmt.Errorf("client: %q is not the address of an edge (such as http://127.0.0.1:8080 or unix:/run/spillgate.sock)", edge)
	}
	own := *over
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &HTTP{
		check: at.JoinPath("/v1/check").String(), report: at.JoinPath("/v1/report").String(), cfg: cfg, http: &own,
	}, nil
}

// Close closes the connections that nobody uses.
func (c *HTTP) Close() { c.http.CloseIdleConnections() }

type checkBody struct {
	Namespace  string            `json:"namespace,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Cost       uint64            `json:"cost,omitempty"`
	Peek       bool              `json:"peek,omitempty"`
}

type reportBody struct {
	Namespace  string            `json:"namespace,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	Cost       int64             `json:"cost,omitempty"`
	Answered   bool              `json:"answered,omitempty"`
	DecisionID string            `json:"decision_id,omitempty"`
}

type checkReply struct {
	Allowed      *bool             `json:"allowed"`
	DecisionID   string            `json:"decision_id"`
	Rule         string            `json:"rule"`
	Policy       string            `json:"policy"`
	Limit        uint64            `json:"limit"`
	Remaining    uint64            `json:"remaining"`
	RetryAfterMS int64             `json:"retry_after_ms"`
	DelayMS      int64             `json:"delay_ms"`
	Zone         string            `json:"zone"`
	Status       int               `json:"status"`
	NearLimit    bool              `json:"near_limit"`
	Headers      map[string]string `json:"headers"`
	Basis        *struct {
		Local           uint64  `json:"local"`
		Merged          uint64  `json:"merged"`
		AgeMS           int64   `json:"age_ms"`
		Regions         int     `json:"regions"`
		ErrorBound      *uint64 `json:"error_bound"`
		ErrorBoundSurge *uint64 `json:"error_bound_surge"`
		ShortOfShare    bool    `json:"short_of_share"`
		CutOff          bool    `json:"cut_off"`
	} `json:"basis"`
}

type reportReply struct {
	Recorded  *bool  `json:"recorded"`
	Rule      string `json:"rule"`
	Policy    string `json:"policy"`
	Limit     uint64 `json:"limit"`
	Remaining uint64 `json:"remaining"`
	NearLimit bool   `json:"near_limit"`
}

// Check implements Limiter.
func (c *HTTP) Check(ctx context.Context, check Check) (Reply, error) {
	var in checkReply
	err := c.post(ctx, "check", c.check, check.Attributes, checkBody(check), &in)
	if err == nil && in.Allowed == nil {
		err = &Fault{"check", errors.New("the answer says nothing of allowed: is this the address of an edge?")}
	}
	if err != nil {
		return c.cfg.Undecided(err), err
	}
	out := Reply{
		Allowed: *in.Allowed, DecisionID: in.DecisionID, Rule: in.Rule, Policy: in.Policy, Limit: in.Limit, Remaining: in.Remaining,
		RetryAfter: milliseconds(in.RetryAfterMS), Delay: milliseconds(in.DelayMS), Zone: in.Zone, NearLimit: in.NearLimit, Status: in.Status,
		Basis: Basis{Age: -1},
	}
	if len(in.Headers) > 0 {
		out.Headers = in.Headers
	}
	if b := in.Basis; b != nil {
		out.Basis = Basis{
			Local: b.Local, Merged: b.Merged, Age: -1, Regions: b.Regions, ErrorBound: b.ErrorBound, ErrorBoundSurge: b.ErrorBoundSurge,
			ShortOfShare: b.ShortOfShare, CutOff: b.CutOff,
		}
		if b.AgeMS >= 0 {
			out.Basis.Age = milliseconds(b.AgeMS)
		}
	}
	return out, nil
}

// Report implements Limiter.
func (c *HTTP) Report(ctx context.Context, report Report) (Recorded, error) {
	var in reportReply
	if err := c.post(ctx, "report", c.report, report.Attributes, reportBody(report), &in); err != nil {
		return Recorded{}, err
	}
	if in.Recorded == nil {
		return Recorded{}, &Fault{"report", errors.New("the answer says nothing of recorded: is this the address of an edge?")}
	}
	return Recorded{*in.Recorded, in.Rule, in.Policy, in.Limit, in.Remaining, in.NearLimit}, nil
}

// post makes a call. Its error is a *Fault or a *Mistake.
func (c *HTTP) post(ctx context.Context, op, url string, attributes map[string]string, body, reply any) error {
	if wrong := Tellable(op, attributes); wrong != nil {
		return wrong
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it makes six bytes of a "<", and of a path what no edge takes
	if err := encoder.Encode(body); err != nil {
		return &Fault{op, err}
	}
	ctx, cancel := c.cfg.Bound(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, &text)
	if err != nil {
		return &Fault{op, err}
	}
	r.Header.Set("Content-Type", "application/json")
	if deadline, ok := ctx.Deadline(); ok { // over gRPC the call itself tells it
		r.Header.Set("X-Spillgate-Timeout-Ms", strconv.FormatInt(max(1, time.Until(deadline).Milliseconds()), 10))
	}
	w, err := c.http.Do(r)
	if err != nil {
		return &Fault{op, err}
	}
	defer w.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(w.Body, maxReply))
	if err != nil {
		return &Fault{op, fmt.Errorf("read the answer: %w", err)}
	}
	if w.StatusCode != http.StatusOK {
		return refusal(op, w, answer)
	}
	if err := json.Unmarshal(answer, reply); err != nil {
		return &Fault{op, fmt.Errorf("the answer is not understood: %w", err)}
	}
	return nil
}

// refusal makes an error of an answer that decides nothing. An edge says in problem+json
// what is wrong with a call: 400 and 413 of what it says, 404 of its namespace, 401 and 403
// of who calls; what others say, proxies between, is a fault.
func refusal(op string, w *http.Response, text []byte) error {
	var problem struct{ Detail, Field string }
	ours := strings.HasPrefix(w.Header.Get("Content-Type"), "application/problem+json") && json.Unmarshal(text, &problem) == nil && problem.Detail != ""
	switch {
	case !ours:
		return &Fault{op, fmt.Errorf("answered %s: is this the address of an edge?", w.Status)}
	case w.StatusCode < http.StatusInternalServerError && w.StatusCode != http.StatusTooManyRequests:
		said := w.StatusCode == http.StatusBadRequest || w.StatusCode == http.StatusRequestEntityTooLarge
		return &Mistake{Op: op, Detail: problem.Detail, Setup: !said || problem.Field == "namespace"}
	}
	return &Fault{op, fmt.Errorf("%s: %s", w.Status, problem.Detail)}
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
