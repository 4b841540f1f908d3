package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httplimit"
	"github.com/spillgate/spillgate/edge/limit"
)

// Clients ask for what is limited to one request in two seconds, askedFor times in a row:
// the second and third are denied as long as they do not wait.
const (
	askedFor   = 3
	clientsRun = 2 * time.Minute // they may take, with their installation
)

// reply is what a client was answered, and when it had asked.
type reply struct {
	at     time.Time
	status int
	wait   time.Duration // as Retry-After says; 0: it says nothing
}

// profiles are the sets of fields that clients are told by: each, and the two of
// configs/rules.yaml together.
func profiles() (sets [][]string) {
	for _, profile := range limit.HeaderProfiles {
		sets = append(sets, []string{profile})
	}
	return append(sets, []string{"draft-11", "x-ratelimit"})
}

// pathOf is where requests are told by a set of fields.
func pathOf(set []string) string { return "/" + strings.Join(set, "+") + "/" }

// Octokit retries by what GitHub sends, and by nothing else: without X-RateLimit fields it
// gives up. By envoy's reset it asks on and on, as configs/README.md says.
var octokitWaits = map[string]bool{"/x-ratelimit/": true, "/github/": true, "/draft-11+x-ratelimit/": true}

// heavy is where Octokit's requests cost more than one.
const heavy = "/heavy/"

// limited is an application behind the middleware, whose every path is a client's own,
// /PROFILE/CLIENT: one that is told of the limit by the fields of that profile.
type limited struct {
	*httptest.Server
	mu      sync.Mutex // guards replies
	replies map[string][]reply
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	var rules []limit.RuleSpec
	for _, set := range profiles() {
		rules = append(rules, limit.RuleSpec{
			Name: strings.Join(set, "-"), Key: []string{"path"}, Match: limit.MatchSpec{Path: []string{pathOf(set) + "**"}},
			Rates:   []limit.RateSpec{{Limit: 1, Per: 2 * time.Second}},
			OnLimit: limit.OnLimitSpec{Headers: set},
		})
	}
	rules = append(rules, limit.RuleSpec{ // denied with some left, to lighter requests
		Name: "heavy", Key: []string{"path"}, Match: limit.MatchSpec{Path: []string{heavy + "**"}}, Cost: limit.CostSpec{Default: 2},
		Rates:   []limit.RateSpec{{Limit: 3, Per: 2 * time.Second}},
		OnLimit: limit.OnLimitSpec{Headers: []string{"github"}},
	})
	node, err := edge.Local(rules...)
	if err != nil {
		t.Fatal(err)
	}
	middleware, err := httplimit.New(node, "", httpapi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l := &limited{replies: map[string][]reply{}}
	inner := middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "here you are") }))
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, seen := time.Now(), &status{ResponseWriter: w, code: http.StatusOK}
		inner.ServeHTTP(seen, r)
		wait, _ := strconv.Atoi(w.Header().Get("Retry-After"))
		l.mu.Lock()
		defer l.mu.Unlock()
		l.replies[r.URL.Path] = append(l.replies[r.URL.Path], reply{at, seen.code, time.Duration(wait) * time.Second})
	}))
	t.Cleanup(l.Close)
	return l
}

// status notes the status of a response.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// Clients that retry wait as they are told, whatever fields a rule has beside
// Retry-After, get what they asked for then, and none of them asks again at once.
func TestClients(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	var paths, asked, retryable, curls, givenUp []string
	for _, set := range profiles() {
		path := pathOf(set)
		for _, c := range []string{"axios-retry", "got", "ky", "undici", "octokit"} {
			switch at := path + c; {
			case c != "octokit" || octokitWaits[path]:
				paths = append(paths, at)
			case path == "/envoy/":
				continue
			default:
				givenUp = append(givenUp, at)
			}
			asked = append(asked, c+"="+l.URL+path+c)
		}
		retryable, curls = append(retryable, l.URL+path+"retryablehttp"), append(curls, l.URL+path+"curl")
		paths = append(paths, path+"retryablehttp", path+"curl")
	}
	paths, asked = append(paths, heavy+"octokit"), append(asked, "octokit="+l.URL+heavy+"octokit")
	ctx, cancel := context.WithTimeout(t.Context(), clientsRun)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { askByNode(ctx, t, asked, givenUp) })
	running.Go(func() { askByGo(ctx, t, retryable) })
	for _, url := range curls {
		running.Go(func() { askByCurl(ctx, t, url) })
	}
	running.Wait()

	for _, path := range paths {
		t.Run(path[1:], func(t *testing.T) { l.judge(t, path) })
	}
	for _, path := range givenUp {
		if n := len(l.replies[path]); n != 2 {
			t.Errorf("%s: %d requests, want one that is served and one that is denied", path, n)
		}
	}
}

// judge looks at what a client was answered.
func (l *limited) judge(t *testing.T, path string) {
	l.mu.Lock()
	replies := l.replies[path]
	l.mu.Unlock()
	served, denied := 0, 0
	for i, r := range replies {
		switch r.status {
		case http.StatusOK:
			served++
			continue
		case http.StatusTooManyRequests:
			denied++
		default:
			t.Errorf("request %d: status %d", i, r.status)
		}
		if r.wait < time.Second || r.wait > 4*time.Second {
			t.Errorf("request %d: denied, to wait %v, want about 2 s", i, r.wait)
		}
		if i == len(replies)-1 {
			t.Errorf("the client gave up with its last request denied")
			continue
		}
		// Timers of clients may be some milliseconds early, and more where they count
		// from when they began to ask.
		if waited := replies[i+1].at.Sub(r.at); waited < r.wait-50*time.Millisecond {
			t.Errorf("request %d: the client was told to wait %v, and waited %v", i, r.wait, waited)
		}
	}
	if served != askedFor {
		t.Errorf("%d of %d requests were served at last", served, askedFor)
	}
	if denied == 0 || denied > askedFor-1 {
		t.Errorf("%d denials of %d requests, want one for each that comes early", denied, askedFor)
	}
}

// run has a program print what it does, and returns it.
func run(ctx context.Context, t *testing.T, dir, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}

// askByNode has the clients of npm's ask, NAME=URL each. At some paths they give up when
// they are denied.
func askByNode(ctx context.Context, t *testing.T, asked, givenUp []string) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Errorf("%v; run ./test/run, which installs it", err)
			return
		}
	}
	dir := t.TempDir() // node looks for its modules beside the program
	from := filepath.Join("testdata", "clients")
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "clients.mjs"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
	run(ctx, t, dir, "npm", "ci", "--no-progress", "--loglevel=error")
	out := run(ctx, t, dir, "node", append([]string{"clients.mjs", strconv.Itoa(askedFor)}, asked...)...)
	told := 0
	for line := range strings.Lines(out) {
		var got struct {
			Client, URL, Error string
			Statuses           []int
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Errorf("clients.mjs says %q: %v", line, err)
			continue
		}
		told++
		if slices.ContainsFunc(givenUp, func(path string) bool { return strings.HasSuffix(got.URL, path) }) {
			if len(got.Statuses) != 1 || got.Error == "" {
				t.Errorf("%s of %s got %v and %q, want one answer, and an error", got.Client, got.URL, got.Statuses, got.Error)
			}
			continue
		}
		if got.Error != "" || len(got.Statuses) != askedFor || slices.ContainsFunc(got.Statuses, func(s int) bool { return s != http.StatusOK }) {
			t.Errorf("%s of %s got %v, %s", got.Client, got.URL, got.Statuses, got.Error)
		}
	}
	if told != len(asked) {
		t.Errorf("clients.mjs tells of %d clients of %d", told, len(asked))
	}
}

// askByGo has go-retryablehttp ask.
func askByGo(ctx context.Context, t *testing.T, urls []string) {
	out := run(ctx, t, filepath.Join("testdata", "retryablehttp"), "go", append([]string{"run", ".", strconv.Itoa(askedFor)}, urls...)...)
	if n := strings.Count(out, "[200 200 200]"); n != len(urls) {
		t.Errorf("go-retryablehttp got, of %d URLs:\n%s", len(urls), out)
	}
}

// askByCurl has curl ask, once after the other.
func askByCurl(ctx context.Context, t *testing.T, url string) {
	body := filepath.Join(t.TempDir(), "body") // /dev/null cannot be cut short, as it is before another try
	for range askedFor {
		if out := run(ctx, t, "", "curl", "--silent", "--retry", "5", "--output", body, "--write-out", "%{http_code}", url); out != "200" {
			t.Errorf("curl of %s got %s, want 200", url, out)
		}
	}
}
