package envoy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spillgate/spillgate/test/proc"
	"github.com/spillgate/spillgate/test/reference"
)

const (
	domains  = 12 // of a round
	asks     = 900
	rounds   = 3 // in which no minute ended
	roundsIn = 6 // at the most
)

// TestEqualStatuses: both servers have the same files and are asked the same, one after the
// other, over /json. A round during which a minute ended counts for nothing: they may
// have been asked in different windows.
func TestEqualStatuses(t *testing.T) {
	for name, env := range map[string][]string{
		"as it is":              nil,
		"counting what is over": {"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"},
	} {
		t.Run(name, func(t *testing.T) { equalStatuses(t, env...) })
	}
}

func equalStatuses(t *testing.T, env ...string) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	again := fmt.Sprintf("SEED=%d go test -run TestEqualStatuses ./test/envoy", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	files := map[string]string{}
	for i := range roundsIn * domains {
		domain := fmt.Sprintf("domain %d", i)
		files[fmt.Sprintf("d%d.yaml", i)] = domainFile(r, domain)
	}
	theirs, ours := startReference(t, files, env...), startOurs(t, files, env...)
	whole, over := 0, 0
	for round := 0; whole < rounds; round++ {
		if round == roundsIn {
			t.Fatalf("a minute ended in %d of %d rounds: this machine is too slow for the test", round-whole, round)
		}
		began, differ := time.Now(), ""
		for i := range asks {
			in := request(r, fmt.Sprintf("domain %d", round*domains+r.IntN(domains)))
			want, got := ask(t, theirs, in), ask(t, ours, in)
			if why := differs(want, got); why != "" {
				differ = fmt.Sprintf("request %d: %s\n%v\nthe reference: %v\nours: %v\n%s", i, why, in, want, got, files[fmt.Sprintf("d%s.yaml", strings.TrimPrefix(in.Domain, "domain "))])
				break
			}
			if want.OverallCode == rlsv3.RateLimitResponse_OVER_LIMIT {
				over++
			}
		}
		if began.Truncate(time.Minute) != time.Now().Truncate(time.Minute) {
			continue
		}
		if whole++; differ != "" {
			t.Fatalf("%s\nagain: %s", differ, again)
		}
	}
	if over < rounds*asks/20 {
		t.Errorf("%d of %d requests were denied, want a twentieth at least: they test little", over, rounds*asks)
	}
}

func startReference(t *testing.T, files map[string]string, more ...string) (url string) {
	t.Helper()
	s := reference.Server{Redis: proc.Redis(t).Addr, HTTP: proc.FreeAddr(t), GRPC: proc.FreeAddr(t), Debug: proc.FreeAddr(t)}
	env, err := s.SetUp(t.TempDir(), files)
	if err != nil {
		t.Fatal(err)
	}
	proc.Start(t, proc.Command{Name: reference.Service, Path: program(reference.Service), Env: slices.Concat(os.Environ(), env, more), Ready: proc.Answers("http://" + s.HTTP + "/healthcheck")})
	return "http://" + s.HTTP
}

// startOurs starts an edge alone: it knows of no others.
func startOurs(t *testing.T, files map[string]string, env ...string) (url string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return daemons.Edge(t, append([]string{"SPILLGATE_SECRET=a secret of the test's own"}, env...), "--region", "eu", "--name", "e1",
		"--nats-urls", "nats://"+proc.FreeAddr(t), "--rules-path", dir, "--rules-format", "envoy").URL
}

// ask asks over /json. The answer's status is that of its code.
func ask(t *testing.T, url string, in *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	t.Helper()
	text, err := protojson.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+"/json", "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	out := &rlsv3.RateLimitResponse{}
	if err := protojson.Unmarshal(text, out); err != nil {
		t.Fatalf("%s answers %s: %s: %v", url, resp.Status, text, err)
	}
	if want := map[rlsv3.RateLimitResponse_Code]int{rlsv3.RateLimitResponse_OK: 200, rlsv3.RateLimitResponse_OVER_LIMIT: 429}[out.OverallCode]; resp.StatusCode != want {
		t.Errorf("%s answers %v with %s", url, out.OverallCode, resp.Status)
	}
	return out
}

// differs says in what ours is not as the reference's; "": in nothing.
func differs(want, got *rlsv3.RateLimitResponse) string {
	if len(want.Statuses) != len(got.Statuses) {
		return fmt.Sprintf("%d statuses, want %d", len(got.Statuses), len(want.Statuses))
	}
	asLater(want)
	for i, w := range want.Statuses {
		g := got.Statuses[i]
		switch {
		case g.Code != w.Code:
			return fmt.Sprintf("status %d is %v, want %v", i, g.Code, w.Code)
		case g.LimitRemaining != w.LimitRemaining:
			return fmt.Sprintf("status %d has %d left, want %d", i, g.LimitRemaining, w.LimitRemaining)
		case (g.CurrentLimit == nil) != (w.CurrentLimit == nil), g.CurrentLimit.GetName() != w.CurrentLimit.GetName(),
			g.CurrentLimit.GetRequestsPerUnit() != w.CurrentLimit.GetRequestsPerUnit(), g.CurrentLimit.GetUnit() != w.CurrentLimit.GetUnit():
			return fmt.Sprintf("status %d is of limit %v, want %v", i, g.CurrentLimit, w.CurrentLimit)
		}
		// A quota that is used up has none in this build.
		if wait, of := g.DurationUntilReset.AsDuration(), w.DurationUntilReset.AsDuration(); (w.DurationUntilReset != nil || g.CurrentLimit == nil) && (wait-of).Abs() > 2*time.Second {
			return fmt.Sprintf("status %d is reset after %v, want %v", i, wait, of)
		}
	}
	if got.OverallCode != want.OverallCode {
		return fmt.Sprintf("the whole is %v, want %v", got.OverallCode, want.OverallCode)
	}
	return ""
}

// asLater makes an answer what builds since July 2026 say: a quota that is used up is over
// its limit, and denies where all quotas of the request are.
func asLater(out *rlsv3.RateLimitResponse) {
	quotas, usedUp := 0, 0
	for _, s := range out.Statuses {
		if !strings.HasPrefix(s.CurrentLimit.GetName(), "quota") {
			continue
		}
		quotas++
		if s.DurationUntilReset == nil {
			usedUp++
			s.Code = rlsv3.RateLimitResponse_OVER_LIMIT
		}
	}
	if quotas > 0 && quotas == usedUp {
		out.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
	}
}
