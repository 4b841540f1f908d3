package integration

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	askedge "github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/client/grpcclient"
	"github.com/spillgate/spillgate/test/proc"
)

// TestProgramsAskAnEdge: over HTTP and over gRPC a program has the same limit, its mistakes
// are told as such, and an edge that dies denies nobody.
func TestProgramsAskAnEdge(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(limited(10)), 0o600); err != nil {
		t.Fatal(err)
	}
	e := startEdge(t, "eu", "eu-1", "nats://"+proc.FreeAddr(t), rules)
	cfg := askedge.Config{Timeout: 10 * time.Second}
	byHTTP, err := askedge.NewHTTP(e.URL, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer byHTTP.Close()
	conn, err := grpc.NewClient(e.GRPC, append(grpcclient.Options(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	limiters := []askedge.Limiter{byHTTP, grpcclient.New(conn, cfg)}
	user := map[string]string{"user": "u1"}
	for i := range 12 {
		r, err := limiters[i%2].Check(t.Context(), askedge.Check{Namespace: "test", Attributes: user})
		if err != nil || r.Allowed != (i < 10) || r.Limit != 10 || r.Remaining != uint64(max(0, 9-i)) || r.Allowed == (r.RetryAfter > 0) {
			t.Errorf("check %d: %+v, %v", i, r, err)
		}
	}
	for i, limiter := range limiters {
		if r, err := limiter.Report(t.Context(), askedge.Report{Attributes: user, Cost: -3}); err != nil || !r.Recorded || r.Remaining != uint64(3*(i+1)) {
			t.Errorf("report %d: %+v, %v, want three given back by each", i, r, err)
		}
		r, err := limiter.Check(t.Context(), askedge.Check{Namespace: "none", Attributes: user})
		var mistake *askedge.Mistake
		if !errors.As(err, &mistake) || !r.Undecided {
			t.Errorf("another namespace: %+v, %v, want a mistake", r, err)
		}
	}
	e.Kill()
	for _, limiter := range limiters {
		if r, err := limiter.Check(t.Context(), askedge.Check{Attributes: user}); !askedge.IsFault(err) || !r.Allowed || !r.Undecided {
			t.Errorf("of a dead edge: %+v, %v, want a fault that lets requests pass", r, err)
		}
	}
}
