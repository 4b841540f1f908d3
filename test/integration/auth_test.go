package integration

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// curl calls url as a user would, and returns the head and body of the answer.
func curl(t *testing.T, args ...string) (head, body string) {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		t.Fatalf("%v; run ./test/run, which installs it (apt-get install curl)", err)
	}
	out, err := exec.Command(path, append([]string{"-sS", "-i", "--noproxy", "*", "--max-time", "10"}, args...)...).Output()
	if err != nil {
		t.Fatalf("curl %q: %v", args, err)
	}
	head, body, ok := strings.Cut(string(out), "\r\n\r\n")
	if !ok {
		t.Fatalf("curl %q: %q has no end of the head", args, out)
	}
	return head, body
}

// TestAuthWithCurl asks as a proxy would, under the shipped rules: 100 a
// minute for each user, and 10 % more that are let through.
func TestAuthWithCurl(t *testing.T) {
	t.Parallel()
	e := startEdge(t, "eu", "eu-1", "nats://"+proc.FreeAddr(t), filepath.Join("..", "..", "configs", "rules.yaml"))
	user := []string{"-H", "X-User-Id: u1", e.url + "/v1/auth"}
	head, _ := curl(t, user...)
	for _, want := range []string{
		`^HTTP/1\.1 200 OK`, `(?m)^RateLimit-Policy: "per-user\.minute";q=100;w=60\r$`,
		`(?mi)^RateLimit: "per-user\.minute";r=99;t=\d+\r$`, `(?mi)^X-RateLimit-Remaining: 99\r?$`,
	} {
		if !regexp.MustCompile("(?i)" + want).MatchString(head) {
			t.Errorf("the first answer is\n%s\nwant it to match %s", head, want)
		}
	}
	for i := range 109 {
		r, err := e.check(call{Attributes: map[string]string{"header.X-User-Id": "u1"}})
		if err != nil || !r.Allowed || r.Rule != "per-user" {
			t.Fatalf("call %d = %+v, %v, want it allowed by per-user", i, r, err)
		}
	}

	head, body := curl(t, user...)
	for _, want := range []string{
		`^HTTP/1\.1 429 Too Many Requests`, `(?m)^Retry-After: [1-9]\d*\r$`, `(?m)^Cache-Control: no-store\r$`,
		`(?m)^Content-Type: application/problem\+json\r$`, `(?m)^RateLimit: "per-user\.minute";r=0;t=\d+\r$`,
		`(?m)^X-RateLimit-Limit: 100\r?$`,
	} {
		if !regexp.MustCompile("(?i)" + want).MatchString(head) {
			t.Errorf("the denial is\n%s\nwant it to match %s", head, want)
		}
	}
	var problem struct {
		Type       string   `json:"type"`
		Status     int      `json:"status"`
		RetryAfter int      `json:"retry_after"`
		Violated   []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Fatalf("body %q: %v", body, err)
	}
	if problem.Status != 429 || problem.RetryAfter < 1 || len(problem.Violated) != 1 || problem.Violated[0] != "per-user.minute" {
		t.Errorf("problem = %+v, want status 429, a wait, and per-user.minute", problem)
	}

	head, _ = curl(t, "-H", "X-User-Id: u1", e.url+"/v1/auth?deny_status=403")
	if !strings.HasPrefix(head, "HTTP/1.1 403 ") || !regexp.MustCompile(`(?mi)^X-RateLimit-Status: 429\r?$`).MatchString(head) {
		t.Errorf("with deny_status=403 the answer is\n%s", head)
	}
	// Another user is another limit.
	if head, _ = curl(t, "-H", "X-User-Id: u2", e.url+"/v1/auth"); !strings.HasPrefix(head, "HTTP/1.1 200 ") {
		t.Errorf("another user gets\n%s", head)
	}
}
