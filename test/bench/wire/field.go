package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spillgate/spillgate/sync/natsbus/embedded"
	"github.com/spillgate/spillgate/test/bench/latency"
	"github.com/spillgate/spillgate/test/bench/localredis"
)

// The rules of both: so much a minute for each user that nobody is ever denied.
const (
	ourRules = `schema: spillgate/v1
namespace: bench
keys:
  user: {from: [user, header.X-User]}
rules:
  - name: user
    key: user
    rates:
      - {name: minute, limit: 4000000000, per: 1m}
`
	theirRules = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 4000000000}
`
)

// field is all that runs while something is measured.
type field struct {
	contestants []*contestant
	dir         string
	notes       []string // of versions, and of what could not be had
	ghz, h2load string   // their paths; "": they are not to be had
	ends        []func()
}

func (f *field) stop() {
	for i := len(f.ends) - 1; i >= 0; i-- {
		f.ends[i]()
	}
}

// newField starts all servers. What it has started ends with stop, and is ended where it
// returns an error.
func newField(ctx context.Context, o options) (_ *field, err error) {
	f := &field{}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if f.dir, err = os.MkdirTemp("", "spillgate-wire"); err != nil {
		return nil, err
	}
	f.ends = append(f.ends, func() { _ = os.RemoveAll(f.dir) })
	nothing, nothingAddr, err := f.empty(ctx, emptyGRPC)
	if err != nil {
		return nil, err
	}
	page, pageAddr, err := f.empty(ctx, emptyHTTP)
	if err != nil {
		return nil, err
	}
	ours, err := f.spillgate(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range descriptors {
		f.add("empty handler"+many(n), nothing, f.overGRPC(nothingAddr, envoyCall(n)))
		f.add("spillgate"+many(n), ours.edge, f.overGRPC(ours.grpc, envoyCall(n)))
	}
	f.add(withAll, ours.all, f.overGRPC(ours.grpc, envoyCall(1))).alone = true
	f.add("empty page", page, f.overHTTP(pageAddr, "/", checkBody))
	f.add("spillgate /v1/check", ours.edge, f.overHTTP(ours.http, "/v1/check", checkBody))
	f.add("empty page, without a body", page, f.overHTTP(pageAddr, "/", nil))
	f.add("spillgate /v1/auth", ours.edge, f.overHTTP(ours.http, "/v1/auth", nil))
	if o.rivals {
		f.rival(ctx, "envoyproxy/ratelimit", f.envoys)
		f.rival(ctx, "gubernator", f.gubernators)
	}
	if o.sustained > 0 {
		f.fetchTools(ctx)
	}
	return f, nil
}

// descriptors are how many a call of ours and of rivals has.
var descriptors = []int{1, 4, 10}

// many says how many there are.
func many(descriptors int) string {
	if descriptors == 1 {
		return ""
	}
	return fmt.Sprintf(", %d descriptors", descriptors)
}

// withAll is the edge, and what it reports to.
const withAll = "spillgate and all behind it"

// add adds a server, or a way of calling it.
func (f *field) add(name string, pids []int, w way) *contestant {
	c := &contestant{name: name, pids: pids, way: w, latency: new(latency.Histogram)}
	f.contestants = append(f.contestants, c)
	return c
}

// process starts one that is killed by stop, and waits until it is ready.
func (f *field) process(ctx context.Context, env []string, ready func() error, path string, args ...string) (pid int, err error) {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = f.dir
	log, err := os.CreateTemp(f.dir, filepath.Base(path)+".log")
	if err != nil {
		return 0, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	f.ends = append(f.ends, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_ = log.Close()
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) { // it is starting
		if err = ready(); err == nil {
			return cmd.Process.Pid, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			text, _ := os.ReadFile(log.Name())
			return 0, fmt.Errorf("%s is not ready: %w\n%s", filepath.Base(path), err, text)
		}
	}
}

func answers(url string) func() error {
	return func() error {
		r, err := http.Get(url)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", url, r.Status)
		}
		return nil
	}
}

func listens(addr string) func() error {
	return func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			err = c.Close()
		}
		return err
	}
}

// free finds an address that nobody listens at.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// frees finds several.
func frees(n int) (addrs []string, err error) {
	for range n {
		addr, err := free()
		if err != nil {
			return nil, err
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// empty starts this program as a server that does nothing.
func (f *field) empty(ctx context.Context, as string) (pids []int, addr string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	if addr, err = free(); err != nil {
		return nil, "", err
	}
	pid, err := f.process(ctx, []string{as + "=" + addr}, listens(addr), self)
	return []int{pid}, addr, err
}

// cluster is an edge with its region.
type cluster struct {
	edge, all  []int // processes: all but NATS, which is in ours
	grpc, http string
}

// spillgate starts an edge as it is shipped, an aggregator, and its Redis.
func (f *field) spillgate(ctx context.Context) (c cluster, err error) {
	build := exec.CommandContext(ctx, "go", "build", "-o", f.dir+string(filepath.Separator),
		"github.com/spillgate/spillgate/cmd/edge", "github.com/spillgate/spillgate/cmd/aggregator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return c, fmt.Errorf("build the daemons: %w\n%s", err, out)
	}
	rules := filepath.Join(f.dir, "rules.yaml")
	if err := os.WriteFile(rules, []byte(ourRules), 0o600); err != nil {
		return c, err
	}
	redis, err := localredis.Start()
	if err != nil {
		return c, err
	}
	f.ends = append(f.ends, redis.Stop)
	addrs, err := frees(5)
	if err != nil {
		return c, err
	}
	bus, err := embedded.Start(embedded.Options{Listen: addrs[0]})
	if err != nil {
		return c, err
	}
	f.ends = append(f.ends, bus.Shutdown)
	common := []string{"SPILLGATE_REGION=r1", "SPILLGATE_NATS_URLS=nats://" + addrs[0], "SPILLGATE_SECRET=a secret of the benchmark", "SPILLGATE_LOG_LEVEL=error"}
	aggregator, err := f.process(ctx, append(common, "SPILLGATE_NAME=a1", "SPILLGATE_REDIS_URL=redis://"+redis.Addr+"/0"), answers("http://"+addrs[1]+"/readyz"),
		filepath.Join(f.dir, "aggregator"), "serve", "--admin-listen", addrs[1])
	if err != nil {
		return c, err
	}
	edge, err := f.process(ctx, append(common, "SPILLGATE_NAME=e1"), answers("http://"+addrs[3]+"/readyz"),
		filepath.Join(f.dir, "edge"), "serve", "--rules-path", rules, "--listen", addrs[2], "--admin-listen", addrs[3], "--grpc-listen", addrs[4])
	if err != nil {
		return c, err
	}
	return cluster{edge: []int{edge}, all: []int{edge, aggregator, redis.PID()}, grpc: addrs[4], http: addrs[2]}, nil
}
