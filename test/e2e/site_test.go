package e2e

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// site is an application behind a proxy that asks an edge.
type site struct {
	t      *testing.T
	edge   *proc.EdgeServer
	proxy  string // address of the proxy
	served atomic.Int64

	application *httptest.Server // where a test ends it
}

// proxied starts a proxy in front of an edge and an application, all given by address,
// and returns where it listens.
type proxied func(t *testing.T, edge, application string) (addr string)

// newSite starts the three, and returns when the proxy lets a request pass that it has
// asked the edge about.
func newSite(t *testing.T, start proxied) *site {
	t.Helper()
	return siteBehind(t, func(t *testing.T, edge *proc.EdgeServer, application string) string {
		return start(t, address(edge.URL), application)
	})
}

// siteBehind is newSite with a proxy that may ask the edge as it likes.
func siteBehind(t *testing.T, start func(t *testing.T, edge *proc.EdgeServer, application string) (addr string)) *site {
	t.Helper()
	s := &site{t: t}
	application := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(application.Close)
	s.edge = daemons.Edge(t,
		[]string{"SPILLGATE_SECRET=0123456789abcdef0123456789abcdef"},
		"--region", "eu", "--name", "eu-1", "--nats-urls", "nats://"+proc.FreeAddr(t),
		"--rules-path", filepath.Join("testdata", "rules.yaml"),
		// Not all of 127.0.0.0/8: the clients of these tests live there.
		"--trusted-proxies", "127.0.0.1/32")
	s.proxy = start(t, s.edge, address(application.URL))
	return s
}

func address(url string) string { return strings.TrimPrefix(url, "http://") }

// told is what the application was told of a request.
type told struct {
	Method, URI, Host, Body, User, ForwardedFor string
}

// serve is the application: it tells what it was told, but for the paths under which it
// fails in its own ways.
func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	s.served.Add(1)
	if to := r.Header.Values("Upgrade"); strings.HasPrefix(r.URL.Path, "/switch/") && len(to) > 0 {
		switchTo(w, to[len(to)-1])
		return
	}
	switch r.URL.Path {
	case "/forbidden":
		w.Header().Set("X-Of-The-Application", "yes")
		http.Error(w, "not yours", http.StatusForbidden)
	case "/broken":
		http.Error(w, "broken", http.StatusInternalServerError)
	case "/busy":
		w.Header().Set("Retry-After", "7")
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case "/elastic":
		w.Header().Set("X-Capacity-Used", "20%")
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
		for tick := time.NewTicker(10 * time.Millisecond); r.Context().Err() == nil; <-tick.C {
			fmt.Fprint(w, "data: x\n")
			w.(http.Flusher).Flush()
		}
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(told{
			r.Method, r.RequestURI, r.Host, string(body), r.Header.Get("X-User-Id"), r.Header.Get("X-Forwarded-For"),
		})
	}
}

// switchTo has a client switch to whatever it likes best, and says the same back.
func switchTo(w http.ResponseWriter, to string) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n", to) // to the key of socketsOpen
	for err == nil && rw.Flush() == nil {
		var line string
		line, err = rw.ReadString('\n')
		_, _ = rw.WriteString(line)
	}
}

// ask is a request of a client's.
type ask struct {
	method, target string // GET where none is given
	from           string // the client's address; 127.0.0.2 where none is given
	host, body     string
	header         map[string]string
}

// answer is what the client got.
type answer struct {
	status int
	header http.Header
	body   string
	served bool // the application saw the request
}

func (a answer) String() string {
	return fmt.Sprintf("%d (served: %v) %v %q", a.status, a.served, a.header, a.body)
}

// told is what the application says in its answer that it was told.
func (a answer) told(t *testing.T) (x told) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &x); err != nil {
		t.Fatalf("the application's answer is %v: %v", a, err)
	}
	return x
}

// patience is how long a client waits for an answer, on a machine that is busy.
const patience = 10 * time.Second

// get asks the proxy, which must answer.
func (s *site) get(a ask) answer {
	s.t.Helper()
	got, err := s.try(a)
	if err != nil {
		s.t.Fatalf("%s %s: %v", a.method, a.target, err)
	}
	return got
}

// try asks the proxy, over a connection of its own, as clients at several addresses must.
func (s *site) try(a ask) (got answer, err error) {
	req, err := http.NewRequest(cmp.Or(a.method, http.MethodGet), "http://"+s.proxy+a.target, strings.NewReader(a.body))
	if err != nil {
		return got, err
	}
	for name, value := range a.header {
		req.Header.Set(name, value)
	}
	req.Host, req.Close = cmp.Or(a.host, req.Host), true
	before := s.served.Load()
	resp, err := from(cmp.Or(a.from, "127.0.0.2")).Do(req)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), s.served.Load() > before}, err
}

// from is a client at an address of this machine.
func from(addr string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableCompression: true}, Timeout: patience}
}

// line asks with fields that are written as they are, each with its end, and nothing after
// them, and returns the first line of the answer.
func (s *site) line(request, fields string) string {
	s.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.2")}, Timeout: patience}
	c, err := dialer.Dial("tcp", s.proxy)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", request, s.proxy, fields)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		s.t.Fatalf("%s with %d more fields, and no body: %v", request, strings.Count(fields, "\n"), err)
	}
	return line
}

// shippedText is a file of deploy/ with the addresses of this test in the places of its
// own, each of which it must have.
func shippedText(t *testing.T, file string, others ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(others); i += 2 {
		if !strings.Contains(string(text), others[i]) {
			t.Fatalf("deploy/%s has no %q", file, others[i])
		}
	}
	return strings.NewReplacer(others...).Replace(string(text))
}

// shipped is a copy of shippedText, for a proxy to read.
func shipped(t *testing.T, file string, others ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(name, []byte(shippedText(t, file, others...)), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// program is the path of a proxy, which must be there.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if path = filepath.Join("/usr/sbin", name); exec.Command(path, "-v").Run() == nil {
		return path // Debian has no /usr/sbin in the path of who is not root
	}
	t.Fatalf("%v; run ./test/run, which installs it (apt-get install %s)", err, name)
	return ""
}

// begin starts a proxy that listens on addr. It is ready when it listens: a request
// would be counted.
func begin(t *testing.T, name, addr string, env []string, args ...string) {
	t.Helper()
	proc.Start(t, proc.Command{
		Name: name, Path: program(t, name), Args: args, Env: env, Dir: t.TempDir(),
		Ready: proc.Dials(addr),
	})
}
