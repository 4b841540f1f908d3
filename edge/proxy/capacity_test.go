package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// elastic admits as many again while less than 70 % of capacity.api is in use.
func elastic(n uint64) limit.RuleSpec {
	rule := hourly(n)
	rule.Margin.Elastic = limit.ElasticSpec{UpToPercent: 100, While: "capacity.api < 70%"}
	return rule
}

// The upstream's header opens and closes an elastic margin, and clients do not see it.
func TestCapacityHeaderOpensTheMargin(t *testing.T) {
	used := "20%"
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		if used != "" {
			w.Header().Set("X-Capacity-Used", used)
		}
	}, options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Capacity-Used"}}}, elastic(2))
	for i, want := range []int{200, 200, 200} { // the third in the margin
		if got := s.get("/"); got.status != want || got.header["X-Capacity-Used"] != nil {
			t.Errorf("request %d: %+v, want %d, and nothing of the capacity", i, got, want)
		}
	}
	if part, _, ok := s.node.Capacity(time.Now(), "api"); !ok || part != 0.2 {
		t.Errorf("capacity api: %v, %v; want 0.2", part, ok)
	}
	used = "0.9"
	if got := s.get("/"); got.status != 200 { // the fourth, whose answer closes it
		t.Errorf("the fourth: %d, want 200", got.status)
	}
	if got := s.get("/"); got.status != http.StatusTooManyRequests {
		t.Errorf("with 90 %% in use: %d, want 429", got.status)
	}
	if n := s.metric("spillgate_proxy_capacity_used_ratio"); n != 0.9 {
		t.Errorf("the metric says %v, want 0.9", n)
	}
}

// An upstream that cannot be reached has nothing to spare, and one that says nothing
// that is understood has not said anything.
func TestFaultsCloseTheMargin(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/dead":
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("X-Used", r.URL.Query().Get("used"))
		}
	}, options{cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used"}}}, elastic(50))
	for _, text := range []string{"70", "much", "-1", "NaN", "1e999"} {
		s.get("/?used=" + text)
	}
	if _, _, ok := s.node.Capacity(time.Now(), "api"); ok || s.metric("spillgate_proxy_capacity_unread_total") != 5 {
		t.Errorf("what is no part in use was taken, or not counted: %v", s.metric("spillgate_proxy_capacity_unread_total"))
	}
	s.get("/?used=.5")
	s.get("/dead")
	if part, _, ok := s.node.Capacity(time.Now(), "api"); !ok || part != 1 {
		t.Errorf("after a fault: %v, %v; want all in use", part, ok)
	}
}

// The time to an answer is a signal, too.
func TestLatencyIsToldOfAnswers(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{cfg: Config{Capacity: CapacityConfig{Name: "api", Latency: time.Hour}}}, elastic(1))
	for i, want := range []int{200, 200, 429} {
		if got := s.get("/"); got.status != want {
			t.Errorf("request %d: %+v, want %d", i, got, want)
		}
	}
	if part, ttl, ok := s.node.Capacity(time.Now(), "api"); !ok || part <= 0 || part > 0.01 || ttl > 10*time.Second {
		t.Errorf("capacity api: %v for %v, %v", part, ttl, ok)
	}
}

// An upstream that turns requests away, or fails, is no idle one, however soon it says so.
func TestFastFaultsAreNoRoom(t *testing.T) {
	const all = 100 * time.Millisecond
	for name, c := range map[string]struct {
		statuses []int
		took     time.Duration
		used     float64 // -1: nothing is known
	}{
		"served":                {[]int{200}, all / 5, 0.2},
		"not there":             {[]int{404, 401}, all / 5, 0.2},
		"switches":              {[]int{101}, all / 5, 0.2},
		"shed":                  {[]int{503}, 0, 4},
		"shed at last":          {[]int{200, 200, 503}, 0, 1},
		"too many for now":      {[]int{200, 429}, 0, 1},
		"gone from behind":      {[]int{200, 502}, 0, 1},
		"gone, and was slow":    {[]int{200, 504}, 0, 1},
		"fails":                 {[]int{500, 501, 505, 599}, 0, -1},
		"fails after a while":   {[]int{500}, all - 1, -1},
		"fails for want of it":  {[]int{500}, 2 * all, 2},
		"was served, and fails": {[]int{200, 500, 500}, all / 2, 0.5},
	} {
		h := &heard{}
		s := signalTo(h, CapacityConfig{Latency: all})
		for _, status := range c.statuses { // at one instant: the first is the mean
			s.answered(time.Unix(1000, 0), status, c.took)
		}
		used := -1.0
		if n := len(h.values); n > 0 {
			used = h.values[n-1]
		}
		if used != c.used {
			t.Errorf("%s: %v after %v each: %v is in use, want %v", name, c.statuses, c.took, used, c.used)
		}
	}
}

// So it is behind the proxy; a header that tells the capacity is heard whatever the status.
func TestRefusalsOfTheUpstreamCloseTheMargin(t *testing.T) {
	upstream := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Used", "20%")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for used, capacity := range map[float64]CapacityConfig{
		0.2: {Name: "api", Header: "X-Used"},
		4:   {Name: "api", Latency: time.Hour},
	} {
		s := newSite(t, upstream, options{cfg: Config{Capacity: capacity}}, elastic(9))
		if got := s.get("/"); got.status != http.StatusServiceUnavailable {
			t.Fatalf("%+v", got)
		}
		if part, _, ok := s.node.Capacity(time.Now(), "api"); !ok || part != used {
			t.Errorf("%+v: %v, %v; want %v", capacity, part, ok, used)
		}
	}
}

// heard is what a signal was set to.
type heard struct {
	values []float64
	err    error
}

func (h *heard) SetCapacity(_ time.Time, _ string, used float64, _ time.Duration) error {
	h.values = append(h.values, math.Round(used*1000)/1000)
	return h.err
}

func signalTo(h *heard, c CapacityConfig) *signal {
	c.Name = "api"
	return newSignal(&Config{Capacity: c, Metrics: NewMetrics(nil), Logger: slog.New(slog.DiscardHandler)}, h)
}

// Of many answers few set the signal; what several instances say counts by the highest;
// and what is old is forgotten.
func TestSignalIsTheHighestOfLate(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		name string
		step time.Duration
		told []float64
		want []float64
	}{
		{"many at once", time.Millisecond, []float64{.3, .3, .2, .3, .1, .3}, []float64{.3}},
		{"a rise is told at once", time.Millisecond, []float64{.3, .2, .5, .4, .9}, []float64{.3, .5, .9}},
		{"a fall after two windows", 60 * time.Millisecond, []float64{.9, .2, .2, .2, .2, .2}, []float64{.9, .9, .2}},
		{"two instances", 60 * time.Millisecond, []float64{.9, .1, .9, .1, .9, .1, .9}, []float64{.9, .9, .9, .9}},
		{"one now and then", time.Second, []float64{.9, .1, .2}, []float64{.9, .1, .2}},
		{"a clock that is set back", -time.Minute, []float64{.9, .1}, []float64{.9, .1}},
	} {
		h := &heard{}
		s := signalTo(h, CapacityConfig{Header: "X"})
		for i, used := range c.told {
			s.told(now.Add(time.Duration(i)*c.step), "", func(string) (float64, error) { return used, nil })
		}
		if len(h.values) != len(c.want) {
			t.Errorf("%s: told %v, the signal was set to %v, want %v", c.name, c.told, h.values, c.want)
			continue
		}
		for i := range c.want {
			if h.values[i] != c.want[i] {
				t.Errorf("%s: told %v, the signal was set to %v, want %v", c.name, c.told, h.values, c.want)
				break
			}
		}
	}
}

// The mean of latencies goes by time: a burst weighs what one request does, and it
// forgets within seconds.
func TestMeanOfLatencies(t *testing.T) {
	h := &heard{}
	s := signalTo(h, CapacityConfig{Latency: 100 * time.Millisecond})
	now := time.Unix(1000, 0)
	s.took(now, 50*time.Millisecond)
	for range 1000 {
		s.took(now, 10*time.Second)
	}
	if s.mean != 0.5 {
		t.Errorf("after a burst at one instant the mean is %v, want 0.5", s.mean)
	}
	s.failed(now.Add(10 * time.Millisecond))
	if s.mean < 1 {
		t.Errorf("after a fault the mean is %v, want 1 at the least", s.mean)
	}
	for i := range 50 {
		s.took(now.Add(time.Duration(i)*100*time.Millisecond), 20*time.Millisecond)
	}
	if math.Abs(s.mean-0.2) > 0.01 {
		t.Errorf("after five seconds of 20 ms the mean is %v, want 0.2", s.mean)
	}
	h.err = errors.New("too many names")
	s.took(now.Add(time.Hour), time.Millisecond) // is logged, and goes on
}

// That the upstream stops amid a body closes the margin where two clients meet it, and soon after one
// another: one alone can have a server do so that answers, by what it sends.
func TestStoppedBodiesCloseTheMargin(t *testing.T) {
	broken := &net.OpError{Op: "write", Err: syscall.EPIPE}
	for name, c := range map[string]struct {
		err   error
		by    []string
		apart time.Duration
		used  float64
	}{
		"one client's":               {broken, []string{"192.0.2.1", "192.0.2.1", "192.0.2.1"}, time.Second, 0},
		"two clients'":               {broken, []string{"192.0.2.1", "192.0.2.2"}, time.Second, 1},
		"two clients', long apart":   {broken, []string{"192.0.2.1", "192.0.2.2"}, time.Minute, 0},
		"one client's, of a stream":  {http2.StreamError{Code: http2.ErrCodeCancel, Cause: errors.New("received from peer")}, []string{"192.0.2.1", "192.0.2.1"}, time.Second, 0},
		"two clients', of streams":   {http2.StreamError{Code: http2.ErrCodeCancel, Cause: errors.New("received from peer")}, []string{"192.0.2.1", "192.0.2.2"}, time.Second, 1},
		"one client's, of few bytes": {nil, []string{"192.0.2.1"}, 0, 1},
		"a refused connection":       {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, []string{"192.0.2.1"}, 0, 1},
		"an answer cut off":          {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, []string{"192.0.2.1"}, 0, 1},
	} {
		now := time.Now()
		s := newSite(t, nil, options{cfg: Config{
			Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Minute}, Now: func() time.Time { return now },
		}}, hourly(9))
		for _, who := range c.by {
			in := httptest.NewRequest("POST", "/", nil)
			in.RemoteAddr = who + ":4711"
			x := &exchange{proxy: s.proxy, in: in, body: new(body)}
			if c.err == nil {
				x.body, c.err = nil, broken
			}
			x.faulted(fmt.Errorf("http: %w", c.err), false)
			now = now.Add(c.apart)
		}
		if used := s.metric("spillgate_proxy_capacity_used_ratio"); used != c.used {
			t.Errorf("%s: %v of the capacity is used, want %v", name, used, c.used)
		}
	}
}

// So it is whatever comes first, the end of what is written or that of what is read, and where the clients
// come through a proxy.
func TestUpstreamThatResetsBodies(t *testing.T) {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	go func() { // the listener's end ends it
		for {
			c, err := upstream.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, 100_000))
			_ = c.(*net.TCPConn).SetLinger(0) // it resets
			_ = c.Close()
		}
	}()
	s := (&site{t: t}).before("http://"+upstream.Addr().String(), options{
		api: httpapi.Config{TrustedProxies: httpapi.Loopback}, cfg: Config{Capacity: CapacityConfig{Name: "api", Header: "X-Used", TTL: time.Hour}},
	}, hourly(99))
	body := strings.Repeat("x", 3<<20)
	for range 20 {
		if got := s.send("POST", "/", body, "X-Forwarded-For", "192.0.2.1"); got.status != http.StatusBadGateway {
			t.Errorf("%d %s, want 502", got.status, got.body)
		}
	}
	if used := s.metric("spillgate_proxy_capacity_used_ratio"); used != 0 {
		t.Errorf("%v of the capacity is used, as one client's bodies are not read to their end", used)
	}
	s.send("POST", "/", body, "X-Forwarded-For", "192.0.2.2")
	if used := s.metric("spillgate_proxy_capacity_used_ratio"); used != 1 {
		t.Errorf("%v of the capacity is used, as another's are not either, want all", used)
	}
}
