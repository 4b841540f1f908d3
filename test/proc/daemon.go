package proc

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Daemons are the edge and the aggregator, built from this module.
type Daemons struct{ dir string }

// BuildDaemons builds both into dir as they are shipped: without cgo, and so
// without the race detector. One build serves all tests of a binary.
func BuildDaemons(dir string) (*Daemons, error) {
	const cmd = "github.com/spillgate/spillgate/cmd/"
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), cmd+"edge", cmd+"aggregator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the daemons: %w\n%s", err, out)
	}
	return &Daemons{dir: dir}, nil
}

// Main runs the tests of a binary that start daemons, which are built before and removed
// after them; it returns the exit code. For TestMain.
func Main(m *testing.M, daemons **Daemons) int {
	dir, err := os.MkdirTemp("", "spillgate-daemons-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "where to build the daemons:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if *daemons, err = BuildDaemons(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// EdgePath and AggregatorPath are the programs, for tests of their commands.
func (d *Daemons) EdgePath() string       { return filepath.Join(d.dir, "edge") }
func (d *Daemons) AggregatorPath() string { return filepath.Join(d.dir, "aggregator") }

// EdgeServer is `edge serve` in a process of its own.
type EdgeServer struct {
	*Process
	URL   string // of the data listener
	GRPC  string // address of the gRPC listener
	Admin string // URL of the admin listener
}

// Edge starts `edge serve` on free ports and returns when it is ready. args
// are added to its command line, env to an environment without the settings of
// whoever runs the test.
func (d *Daemons) Edge(t testing.TB, env []string, args ...string) *EdgeServer {
	t.Helper()
	data, calls, admin := FreeAddr(t), FreeAddr(t), FreeAddr(t)
	s := &EdgeServer{URL: "http://" + data, GRPC: calls, Admin: "http://" + admin}
	s.Process = Start(t, Command{
		Name:  "edge",
		Path:  d.EdgePath(),
		Args:  append([]string{"serve", "--listen", data, "--grpc-listen", calls, "--admin-listen", admin}, args...),
		Env:   Environ(env...),
		Ready: Answers(s.URL + "/readyz"),
	})
	return s
}

// AggregatorServer is `aggregator serve` in a process of its own.
type AggregatorServer struct {
	*Process
	Admin string // URL of the admin listener
}

// Aggregator starts `aggregator serve` on a free port, as Edge does an edge.
// It returns when the process is healthy: ready it is only with NATS, which
// may be what a test withholds.
func (d *Daemons) Aggregator(t testing.TB, env []string, args ...string) *AggregatorServer {
	t.Helper()
	admin := FreeAddr(t)
	s := &AggregatorServer{Admin: "http://" + admin}
	s.Process = Start(t, Command{
		Name:  "aggregator",
		Path:  d.AggregatorPath(),
		Args:  append([]string{"serve", "--admin-listen", admin}, args...),
		Env:   Environ(env...),
		Ready: Answers(s.Admin + "/healthz"),
	})
	return s
}

// Environ is the test's environment without settings of Spillgate's, and with
// those of extra.
func Environ(extra ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "SPILLGATE_") {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}

// Answers is a Ready function: a GET of url answers 200.
func Answers(url string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Close = true // a server that is killed later leaves no dead connection in a pool
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		if err != nil {
			return fmt.Errorf("GET %s: %w", url, err)
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s: %s", url, resp.Status, text)
		}
		return nil
	}
}
