package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/proc"
)

// patience is how long something may take on a busy machine.
const patience = 20 * time.Second

// each is a rule for each client address.
func each(name string, rate limit.RateSpec) limit.RuleSpec {
	return limit.RuleSpec{Name: name, Group: name, Key: []string{"client_ip"}, Rates: []limit.RateSpec{rate}}
}

// hourly is so many requests an hour, of each client.
func hourly(n uint64) limit.RuleSpec { return each("hourly", limit.RateSpec{Limit: n, Per: time.Hour}) }

// site is a proxy before an upstream.
type site struct {
	t        testing.TB
	node     *edge.Node
	proxy    *Proxy
	registry *prometheus.Registry
	addr     string // of the proxy
	url      string
	served   atomic.Int64 // requests that the upstream saw
	stop     func() error // stops the proxy, and tells what Serve said
}

// options are what a test wants otherwise.
type options struct {
	cfg     Config
	api     httpapi.Config
	limiter httpapi.Limiter // in place of the node
	drain   time.Duration
	listen  string // default: on loopback
}

// newSite serves a proxy on loopback before a handler, with rules.
func newSite(t testing.TB, upstream http.HandlerFunc, o options, rules ...limit.RuleSpec) *site {
	t.Helper()
	s := &site{t: t}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.served.Add(1)
		upstream(w, r)
	}))
	server.Config.DisableGeneralOptionsHandler = true
	server.Start()
	t.Cleanup(server.Close)
	return s.before(server.URL, o, rules...)
}

// before has the site's proxy stand before what is at a URL.
func (s *site) before(upstream string, o options, rules ...limit.RuleSpec) *site {
	s.t.Helper()
	var err error
	if o.cfg.Upstream, err = url.Parse(upstream); err != nil {
		s.t.Fatal(err)
	}
	s.registry = prometheus.NewRegistry()
	s.node = limitertest.Node(s.t, limit.Document{Namespace: "site", Defaults: limit.Defaults{Scope: "edge"}, Rules: rules})
	o.api.Metrics, o.cfg.Metrics = httpapi.NewMetrics(s.registry), NewMetrics(s.registry)
	if o.limiter == nil {
		o.limiter = s.node
	}
	api, err := httpapi.New(o.limiter, o.api)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.proxy, err = New(api, s.node, o.cfg); err != nil {
		s.t.Fatal(err)
	}
	s.proxy.drain = max(o.drain, 100*time.Millisecond)
	listen := o.listen
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	ln, err := httpapi.Listen(listen)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	s.url = "http://" + s.addr
	ctx, cancel := context.WithCancel(s.t.Context())
	served := make(chan error, 1)
	go func() { served <- s.proxy.Serve(ctx, ln, nil) }() // cancel ends it; stop waits for it
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-served
	}
	s.t.Cleanup(func() {
		if err := s.stop(); err != nil {
			s.t.Errorf("the proxy stopped with %v", err)
		}
	})
	return s
}

// client has no connections of other tests.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type reply struct {
	status int
	header http.Header
	body   string
}

// send asks the proxy; header is pairs of name and value.
func (s *site) send(method, target, body string, header ...string) reply {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+target, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return s.do(req)
}

// call sends a call of gRPC, which goes to an https upstream over HTTP/2.
func (s *site) call(target, body string) reply {
	s.t.Helper()
	return s.send("POST", target, body, "Content-Type", "application/grpc")
}

func (s *site) get(target string, header ...string) reply {
	s.t.Helper()
	return s.send("GET", target, "", header...)
}

func (s *site) do(req *http.Request) reply {
	s.t.Helper()
	resp, err := client(s.t).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// raw is a connection to the proxy on which a test writes what it likes.
type raw struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (s *site) dial() *raw {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	return &raw{c, s.t, bufio.NewReader(c)}
}

func (c *raw) write(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// response reads an answer, of which the body is not read.
func (c *raw) response() *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// closed waits until the proxy has closed the connection.
func (c *raw) closed() {
	c.t.Helper()
	if rest, err := io.ReadAll(c.r); err != nil || len(rest) > 0 {
		c.t.Errorf("after the answer: %q, %v; want the connection closed", rest, err)
	}
}

// metric is the value of a counter or gauge with these labels, or the count of a histogram.
func (s *site) metric(name string, labels ...string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	metrics:
		for _, m := range family.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				has := false
				for _, l := range m.GetLabel() {
					has = has || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				if !has {
					continue metrics
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// reaches waits until a metric has a value.
func (s *site) reaches(want float64, name string, labels ...string) {
	s.t.Helper()
	proc.Until(s.t, patience, func() error {
		if got := s.metric(name, labels...); got != want {
			return fmt.Errorf("%s%v = %v, want %v", name, labels, got, want)
		}
		return nil
	})
}

// result waits until so many requests had a result.
func (s *site) result(name string, want float64) {
	s.t.Helper()
	s.reaches(want, "spillgate_proxy_requests_total", "result", name)
}

// charged is how many requests the rules have counted: allowed ones of the rule.
func (s *site) charged() float64 { return s.metric("spillgate_decision_cost_total") }

func mustURL(tb testing.TB, text string) *url.URL {
	tb.Helper()
	u, err := url.Parse(text)
	if err != nil {
		tb.Fatal(err)
	}
	return u
}
