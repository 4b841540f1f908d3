package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

func TestHealth(t *testing.T) {
	b := newBench(t)
	admin := httptest.NewServer(b.api.Admin(b.registry))
	t.Cleanup(admin.Close)
	for _, url := range []string{b.listen(t), admin.URL} {
		step := func(name, path string, status int, text string) {
			t.Helper()
			if r := send(t, "GET", url+path, ""); r.status != status || r.text != text {
				t.Errorf("%s: %s = %d %q, want %d %q", name, path, r.status, r.text, status, text)
			}
		}
		b.limiter.DropRules()
		step("no rules", "/healthz", 200, "ok\n")
		step("no rules", "/readyz", 503, "[-] rules: no rules are loaded yet\n")
		b.limiter.SetRules(t, acme())
		step("rules", "/readyz", 200, "ready\n")
		step("rules", "/readyz?verbose", 200, "[+] rules: ok\n[+] serving: ok\nready\n")
		b.api.SetDraining(true)
		step("draining", "/healthz", 200, "ok\n")
		step("draining", "/readyz", 503, "[-] serving: the edge is draining\n")
		step("draining", "/readyz?verbose", 503, "[+] rules: ok\n[-] serving: the edge is draining\n")
		b.api.SetDraining(false)
		wantProblem(t, send(t, "POST", url+"/readyz", ""), 405, "method", "use GET, HEAD")
	}
}

// An edge whose denied requests do not wait is ready, and says so.
func TestReadyThoughNothingWaits(t *testing.T) {
	b := newBench(t, acme())
	why := errors.New("the queue is missing: edge deferred apply")
	api, err := New(b.limiter, Config{Waits: func() error { return why }})
	if err != nil {
		t.Fatal(err)
	}
	admin := httptest.NewServer(api.Admin(b.registry))
	t.Cleanup(admin.Close)
	data := httptest.NewServer(api)
	t.Cleanup(data.Close)
	for _, url := range []string{data.URL + "/readyz?verbose", data.URL + "/readyz", admin.URL + "/readyz"} { // what is wrong is nobody's business there
		r := send(t, "GET", url, "")
		if r.status != 200 || !strings.HasSuffix(r.text, "[!] deferred: trouble\nready\n") || strings.Contains(r.text, "apply") {
			t.Errorf("%s: %d %q, want 200, and trouble alone", url, r.status, r.text)
		}
	}
	for range 2 {
		want := "[+] rules: ok\n[+] serving: ok\n[+] deferred: ok\nready\n"
		if why != nil {
			want = "[+] rules: ok\n[+] serving: ok\n[!] deferred: the queue is missing: edge deferred apply\nready\n"
		}
		if r := send(t, "GET", admin.URL+"/readyz?verbose", ""); r.status != 200 || r.text != want {
			t.Errorf("%d %q, want 200 %q", r.status, r.text, want)
		}
		why = nil
	}
}

func TestAdmin(t *testing.T) {
	b := newBench(t, acme())
	if r := send(t, "POST", b.listen(t)+"/v1/check", `{"attributes":{"user":"u"}}`); r.status != 200 {
		t.Fatalf("check = %d", r.status)
	}
	admin := httptest.NewServer(b.api.Admin(b.registry))
	t.Cleanup(admin.Close)
	for path, want := range map[string]string{
		"/metrics":                       `spillgate_decisions_total{namespace="acme",result="allow",rule="api-per-user"} 1`,
		"/debug/pprof/goroutine?debug=1": "goroutine",
		"/debug/pprof/cmdline":           "httpapi",
	} {
		if r := send(t, "GET", admin.URL+path, ""); r.status != 200 || !strings.Contains(r.text, want) {
			t.Errorf("%s = %d %.200s, want 200 with %q", path, r.status, r.text, want)
		}
	}
	if r := send(t, "POST", admin.URL+"/v1/check", `{}`); r.status != 404 {
		t.Errorf("check on the admin listener = %d, want 404", r.status)
	}
}

// held is a limiter whose CheckOrWait waits until it is let go.
type held struct {
	Limiter
	entered, letGo chan struct{}
}

func (h *held) CheckOrWait(now time.Time, req *limit.Request) (limit.Decision, func(context.Context) limit.Decision) {
	close(h.entered)
	<-h.letGo
	return h.Limiter.CheckOrWait(now, req)
}

// serve runs a server of the API on a unix socket until stop is called.
func serve(t *testing.T, api *API, cfg ServerConfig) (client *http.Client, stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	ln, err := Listen("unix:" + filepath.Join(t.TempDir(), "edge.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	done := make(chan error, 1)
	// Ends with ctx; every test receives from ended.
	go func() { done <- NewServer(api, cfg).Serve(ctx, ln) }()
	client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", ln.Addr().String())
		},
	}}
	return client, stop, done
}

func await(t *testing.T, what string, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: not after 20 s", what)
		return nil
	}
}

func TestServerDrains(t *testing.T) {
	b := newBench(t, acme())
	limiter := &held{Limiter: b.limiter, entered: make(chan struct{}), letGo: make(chan struct{})}
	api := b.over(t, limiter)
	unready := make(chan struct{})
	client, stop, ended := serve(t, api, ServerConfig{Unready: func() { api.SetDraining(true); close(unready) }})
	answered := make(chan error, 1)
	// Ends when the call is answered, for which the test waits.
	go func() {
		resp, err := client.Post("http://edge/v1/check", "application/json", strings.NewReader(`{"attributes":{"user":"u"}}`))
		if err == nil {
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if !bytes.Contains(text, []byte(`"allowed":true`)) {
				err = errors.New("answer: " + string(text))
			}
		}
		answered <- err
	}()
	<-limiter.entered
	stop()
	<-unready
	close(limiter.letGo)
	if err := await(t, "the call under way", answered); err != nil {
		t.Errorf("the call under way when draining began: %v", err)
	}
	if err := await(t, "Serve", ended); err != nil {
		t.Errorf("Serve = %v, want nil after a clean drain", err)
	}
	if _, err := client.Get("http://edge/healthz"); err == nil {
		t.Error("the server still answers after Serve returned")
	}
}

func TestServerCutsOffWhatDoesNotEnd(t *testing.T) {
	b := newBench(t, acme())
	limiter := &held{Limiter: b.limiter, entered: make(chan struct{}), letGo: make(chan struct{})}
	client, stop, ended := serve(t, b.over(t, limiter), ServerConfig{DrainTimeout: 10 * time.Millisecond})
	answered := make(chan error, 1)
	// Ends when the connection is cut off, for which the test waits.
	go func() {
		_, err := client.Post("http://edge/v1/check", "application/json", strings.NewReader(`{}`))
		answered <- err
	}()
	<-limiter.entered
	stop()
	if err := await(t, "Serve", ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Serve = %v, want a deadline", err)
	}
	if err := await(t, "the call", answered); err == nil {
		t.Error("the call that was cut off was answered")
	}
	close(limiter.letGo)
}

func TestServerAnswersDuringTheDrainDelay(t *testing.T) {
	b := newBench(t, acme())
	unready := make(chan struct{})
	client, stop, ended := serve(t, b.api, ServerConfig{
		Unready:    func() { b.api.SetDraining(true); close(unready) },
		DrainDelay: time.Second,
	})
	stop()
	<-unready
	resp, err := client.Get("http://edge/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 503 {
		t.Errorf("readyz while draining = %d, want 503", resp.StatusCode)
	}
	if err := await(t, "Serve", ended); err != nil {
		t.Errorf("Serve = %v", err)
	}
}

func TestServeReportsABrokenListener(t *testing.T) {
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := NewServer(http.NotFoundHandler(), ServerConfig{}).Serve(t.Context(), ln); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve = %v, want the listener's error", err)
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.sock")
	first, err := Listen("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if ln, err := Listen("unix:" + path); err == nil {
		ln.Close()
		t.Fatal("a socket on which somebody listens was taken over")
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false) // as a crash leaves it
	first.Close()
	second, err := Listen("unix:" + path)
	if err != nil {
		t.Fatalf("a socket left behind: %v", err)
	}
	second.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there after closing: %v", err)
	}
	for range 20 { // of those that start at once on what a crash left behind one does
		left, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		left.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := left.Close(); err != nil {
			t.Fatal(err)
		}
		var listen [4]net.Listener
		var all sync.WaitGroup
		for i := range listen {
			all.Go(func() { listen[i], _ = Listen("unix:" + path) })
		}
		all.Wait()
		n := 0
		for _, ln := range listen {
			if ln != nil {
				n++
				_ = ln.Close()
			}
		}
		if n != 1 {
			t.Fatalf("%d listen on one socket", n)
		}
	}
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if ln, err := Listen("unix:" + path); err == nil {
		ln.Close()
		t.Error("a file that is no socket was replaced")
	}
	if _, err := Listen("8080"); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("Listen(8080) = %v, want an error that says how to write it", err)
	}
}

func TestCapacityIsSetByAdmin(t *testing.T) {
	node, err := edge.Local(limit.RuleSpec{Name: "all", Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}, Margin: limit.MarginSpec{
		Elastic: limit.ElasticSpec{UpToPercent: 50, While: "capacity.api < 70%"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	api, err := New(node, Config{})
	if err != nil {
		t.Fatal(err)
	}
	admin := httptest.NewServer(api.Admin(prometheus.NewRegistry()))
	t.Cleanup(admin.Close)
	url := admin.URL + "/admin/v1/capacity/api"
	if r := send(t, "GET", url, ""); r.status != 404 || !strings.Contains(r.text, "was not set") {
		t.Errorf("a capacity that nobody set = %d %s, want 404", r.status, r.text)
	}
	for body, want := range map[string]string{"0.25": `"used":0.25`, " 70% \n": `"used":0.7`, "0": `"used":0`, "1": `"used":1`, "105%": `"used":1.05`, "5e-05": `"used":5e-05`, ".9": `"used":0.9`, strings.Repeat("0", 62) + ".5": `"used":0.5`} {
		if r := send(t, "PUT", url+"?ttl=20s", body); r.status != 204 {
			t.Fatalf("PUT %q = %d %s", body, r.status, r.text)
		}
		if r := send(t, "GET", url, ""); r.status != 200 || !strings.Contains(r.text, want) || !strings.Contains(r.text, `"ttl_ms":`) {
			t.Errorf("after PUT %q: %d %s, want %s", body, r.status, r.text, want)
		}
	}
	for query, body := range map[string]string{"?ttl=20": "0.1", "?ttl=2h": "0.1", "?ttl=-1s": "0.1", "": "much", "?ttl=1s": "", "?ttl=3s": "-1", "?ttl=4s": "NaN"} {
		if r := send(t, "PUT", url+query, body); r.status != 400 {
			t.Errorf("PUT %q with %q = %d %s, want 400", body, query, r.status, r.text)
		}
	}
	// What is not understood is not taken for something else: the signal stays as it was.
	if r := send(t, "PUT", url, "0.25"); r.status != 204 {
		t.Fatalf("PUT 0.25 = %d %s", r.status, r.text)
	}
	zeros := strings.Repeat("0", 64)
	for body, says := range map[string]string{
		zeros + ".9": "more than 64 bytes", "0.9" + strings.Repeat(" ", 62): "more than 64 bytes", "1_0": "no number", "0.1_0": "no number", "0x1p-2": "no number", "Inf": "no number", "1e999": "no number",
		"70": "105%", "1.01": "105%", "70%%": "no number", `{"used":0.7}`: "no number",
	} {
		if r := send(t, "PUT", url, body); r.status != 400 || !strings.Contains(r.text, says) {
			t.Errorf("PUT %q = %d %s, want 400 that says %q", body, r.status, r.text, says)
		}
	}
	for _, query := range []string{"?tll=1s", "?ttl=1s&x", "?ttl=1s&ttl=2s", "?ttl=1s;x=2", "?TTL=1s"} {
		if r := send(t, "PUT", url+query, "0.1"); r.status != 400 || !strings.Contains(r.text, "ttl") && !strings.Contains(r.text, "query") {
			t.Errorf("PUT %q = %d %s, want 400 that says what is known", query, r.status, r.text)
		}
	}
	for _, name := range []string{"apl", "a%20b"} {
		if r := send(t, "PUT", admin.URL+"/admin/v1/capacity/"+name, "0.1"); r.status != 404 || !strings.Contains(r.text, "they read api") {
			t.Errorf("a name that no rule reads = %d %s, want 404 that names those that are read", r.status, r.text)
		}
	}
	if r := send(t, "GET", url, ""); !strings.Contains(r.text, `"used":0.25`) {
		t.Errorf("after all that was refused: %s, want what was set before", r.text)
	}
}
