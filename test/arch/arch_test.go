// Package arch holds the shape of the repository: which package may import
// which, and what stands at the top level.
package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/spillgate/spillgate"

// pkg is what `go list` tells of a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// ban forbids packages an import, with the reason.
type ban struct {
	from   string
	direct bool     // only what it imports itself, not what comes with that
	to     []string // prefixes of import paths; ".": everything outside std and this module
	reason string
}

// own is a package of ours, by its path in the repository.
func own(path string) string { return module + "/" + path }

// rings gives each package its place: an import may only point to a lower
// ring, or to what allowed names. (design.md §3)
var rings = map[string]float64{
	"crdt":       0,
	"edge/limit": 1, "sync": 1, "sync/boottime": 0, "regional/escrow": 1.5,
	"edge/limit/when": 2, "edge": 2, "regional": 2,
	"sync/natsbus": 3, "sync/natsbus/embedded": 3, "sync/natsbus/embedded/embeddedtest": 3, "sync/natsrules": 3, "sync/natsaudit": 3, "sync/natsentries": 3, "sync/membus": 3,
	"regional/redisstore": 3, "regional/memstore": 3, "regional/tierstore": 3,
	"edge/httpapi": 3, "edge/httpapi/limitertest": 3, "edge/httplimit": 4, "edge/grpclimit": 4, "edge/envoytext": 0, "edge/rls": 4, "edge/rlqs": 4, "edge/telling": 3, "edge/rlqs/dataplane": 3, "edge/deferred": 4, "edge/proxy": 4, "edge/limiterpb": 0, "edge/limiterapi": 4, "edge/client": 0, "edge/client/grpcclient": 1,
	"sync/bustest": 3, "regional/storetest": 3,
	"configs": 4, "regional/adminapi": 5,
	"test/sim/world": 4,
	"test/sim/trial": 5, "test/sim/cuts": 5,
	"test/sim/measure": 5, "test/sim/capacity": 5,
	"test/sim/accuracy": 6, "test/sim": 7, "test/sim/scenarios": 4,
	"test/alone": 0, "test/clocks": 0, "test/proc": 4,
	"test/arch":         4,
	"test/bench/replay": 7, "test/bench/load": 5, "test/bench/latency": 4, "test/bench": 8,
	"test/bench/localredis": 4, "test/bench/flood": 5, "test/bench/sync": 5, "test/bench/wire": 5,
	"test/integration": 4, "test/chaos": 4, "test/reference": 4, "test/envoy": 5, "test/e2e": 5,
	"cmd/internal/cli": 5, "cmd/edge/demo/accesslog": 1, "cmd/edge/demo": 6, "cmd/edge": 7, "cmd/aggregator": 7,
}

var bans = []ban{
	{from: "crdt", to: []string{"."}, reason: "the CRDT is pure: std only"},
	{from: "crdt", direct: true, to: []string{"time", "math/rand", "sync", "log", "log/slog", "os", "net"}, reason: "no clock, randomness, lock or I/O in the CRDT"},
	{from: "edge/limit", to: []string{"."}, reason: "the limiter's core is std and crdt only: embedders pay for nothing else"},
	{from: "edge/limit", direct: true, to: []string{"math/rand", "log", "log/slog", "os", "net/http"}, reason: "the limiter's core has no I/O and no state"},
	{from: "edge/limit", to: []string{own("edge/limit/when"), "github.com/expr-lang"}, reason: "who has no conditions links no expression engine: it is given to Compile"},
	{from: "edge", to: []string{own("edge/limit/when"), "github.com/expr-lang"}, reason: "who has no conditions links no expression engine: it is given to Compile"},
	{from: "sync", to: []string{"github.com/nats-io", "github.com/redis", "github.com/prometheus"}, reason: "deltas and frames know no transport"},
	{from: "edge", to: []string{own("regional"), "github.com/nats-io", "github.com/redis", "github.com/spf13", "google.golang.org/grpc"}, reason: "embedders of the node link no server's dependencies"},
	{from: "regional", to: []string{own("edge/httpapi"), "github.com/nats-io", "github.com/redis", "github.com/spf13"}, reason: "the aggregator knows its bus and store by their interfaces"},
	{from: "sync/natsbus", to: []string{"github.com/nats-io/nats-server"}, reason: "only natsbus/embedded links the server"},
	{from: "regional/redisstore", direct: true, to: []string{"github.com/nats-io", "github.com/prometheus", "github.com/spf13"}, reason: "the Redis store is go-redis and nothing else"},
	{from: "edge/httplimit", to: []string{own("regional"), "github.com/nats-io", "github.com/redis", "github.com/spf13", "google.golang.org/grpc"}, reason: "middleware brings no daemon's dependencies into a program"},
	{from: "edge/grpclimit", to: []string{own("regional"), "github.com/nats-io", "github.com/redis", "github.com/spf13"}, reason: "interceptors bring no daemon's dependencies into a program"},
	{from: "edge/rls", to: []string{own("regional"), "github.com/nats-io", "github.com/redis", "github.com/spf13"}, reason: "surfaces see a Limiter, not the node's surroundings"},
	{from: "edge/rlqs", to: []string{own("regional"), own("edge/rlqs/dataplane"), "github.com/nats-io", "github.com/redis", "github.com/spf13"}, reason: "surfaces see a Limiter, not the node's surroundings, nor the client that tests them"},
	{from: "edge/proxy", to: []string{own("regional"), "github.com/nats-io", "github.com/redis", "github.com/spf13", "google.golang.org/grpc"}, reason: "surfaces see a Limiter, not the node's surroundings"},
	{from: "edge/limiterapi", to: []string{own("regional"), "github.com/nats-io", "github.com/redis", "github.com/spf13", "github.com/envoyproxy"}, reason: "surfaces see a Limiter, not the node's surroundings"},
	{from: "edge/client", to: []string{".", own("crdt"), own("edge/limit"), own("edge/httpapi")}, reason: "who asks an edge over HTTP links std alone"},
	{from: "edge/client/grpcclient", to: []string{own("crdt"), own("edge/limit"), own("edge/httpapi"), "github.com/prometheus", "github.com/envoyproxy"}, reason: "who asks an edge over gRPC links nothing of the edge"},
	{from: "edge/limiterpb", to: []string{own("edge")}, reason: "callers of the service link nothing of the edge"},
	{from: "edge/httpapi", to: []string{own("regional"), "github.com/nats-io", "github.com/spf13", "google.golang.org/grpc"}, reason: "surfaces see a Limiter, not the node's surroundings"},
}

// onlyIn says which packages alone may import something directly.
var onlyIn = map[string][]string{
	"github.com/spf13/viper":           {"configs"},
	"github.com/redis/go-redis":        {"regional/redisstore"},
	"github.com/dgraph-io/ristretto":   {"edge"},
	"github.com/nats-io/nats.go":       {"sync/natsbus", "sync/natsbus/embedded", "sync/natsrules", "sync/natsaudit", "sync/natsentries", "edge/deferred"},
	"github.com/nats-io/nats-server":   {"sync/natsbus/embedded"},
	"github.com/goccy/go-yaml":         {"configs", "test/sim/scenarios", "test/sim/accuracy"},
	"github.com/expr-lang/expr":        {"edge/limit/when"},
	"google.golang.org/grpc":           {"edge/grpclimit", "edge/envoytext", "edge/rls", "edge/rlqs", "edge/rlqs/dataplane", "edge/limiterpb", "edge/limiterapi", "edge/client/grpcclient", "cmd/edge", "test/bench/wire"},
	"github.com/envoyproxy":            {"edge/envoytext", "edge/rls", "edge/rlqs", "edge/rlqs/dataplane", "cmd/edge", "test/bench/wire"},
	"google.golang.org/genproto":       {"edge/grpclimit"},
	"github.com/bufbuild/protocompile": {},
	"github.com/dunglas/httpsfv":       {},
}

func list(t testing.TB) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-pgo=off", "-deps", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	pkgs := map[string]pkg{}
	dec := json.NewDecoder(bytes.NewReader(out))
	for dec.More() {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatalf("go list: %v", err)
		}
		pkgs[p.ImportPath] = p
	}
	return pkgs
}

func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func within(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

// violations is everything that breaks the rings, the bans or the owners.
func violations(pkgs map[string]pkg) (found []string) {
	for _, p := range pkgs {
		if !within(p.ImportPath, module) {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		ring, known := rings[name]
		if !known {
			found = append(found, fmt.Sprintf("%s has no ring: give it one in test/arch", name))
			continue
		}
		for _, imp := range p.Imports {
			below, ours := rings[strings.TrimPrefix(imp, module+"/")]
			switch {
			case within(imp, module) && ours && below >= ring && !sideways(name, imp):
				found = append(found, fmt.Sprintf("%s (ring %v) imports %s (ring %v): imports only point down", name, ring, imp, below))
			}
			for what, owners := range onlyIn {
				if within(imp, what) && !slices.Contains(owners, name) {
					found = append(found, fmt.Sprintf("%s imports %s, which only %v may", name, imp, owners))
				}
			}
		}
		found = append(found, banned(pkgs, name, p)...)
	}
	slices.Sort(found)
	return found
}

// sideways are the imports within a ring that are meant: a child of its parent.
func sideways(name, imp string) bool {
	return within(own(name), strings.TrimSuffix(imp, "/")) || name == "test/sim/world" && imp == own("configs")
}

func banned(pkgs map[string]pkg, name string, p pkg) (found []string) {
	for _, b := range bans {
		if b.from != name {
			continue
		}
		for _, to := range b.to {
			deps := p.Deps
			if b.direct {
				deps = p.Imports
			}
			for _, dep := range deps {
				third := to == "." && strings.Contains(dep, ".") && !within(dep, module) && !pkgs[dep].Standard
				if third || to != "." && within(dep, to) {
					found = append(found, fmt.Sprintf("%s depends on %s: %s", name, dep, b.reason))
				}
			}
		}
	}
	return found
}

func TestImports(t *testing.T) {
	for _, v := range violations(list(t)) {
		t.Error(v)
	}
}

// TestImportsSeesViolations plants one violation of each kind.
func TestImportsSeesViolations(t *testing.T) {
	for _, c := range []struct {
		name string
		p    pkg
		want string
	}{
		{"upwards", pkg{ImportPath: own("crdt"), Imports: []string{own("edge")}}, "imports only point down"},
		{"sideways", pkg{ImportPath: own("edge"), Imports: []string{own("regional")}}, "imports only point down"},
		{"banned", pkg{ImportPath: own("edge"), Deps: []string{"github.com/nats-io/nats.go"}}, "embedders of the node"},
		{"third party in crdt", pkg{ImportPath: own("crdt"), Deps: []string{"example.com/x"}}, "std only"},
		{"clock in crdt", pkg{ImportPath: own("crdt"), Imports: []string{"time"}}, "no clock"},
		{"owner", pkg{ImportPath: own("edge/httpapi"), Imports: []string{"github.com/spf13/viper"}}, "which only [configs] may"},
		{"unknown", pkg{ImportPath: own("edge/manager")}, "has no ring"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(violations(map[string]pkg{c.p.ImportPath: c.p}), "\n")
			if !strings.Contains(got, c.want) {
				t.Errorf("violations = %q, want %q", got, c.want)
			}
		})
	}
}

// TestEmbeddersLinkLittle reads from the real dependency list what a program
// links that imports the node and its HTTP middleware. Each module that it is
// spared is one that the list shows where it is meant to be: a name that stands
// nowhere would be absent from embedders too.
func TestEmbeddersLinkLittle(t *testing.T) {
	pkgs := list(t)
	links := func(module string, from ...string) bool {
		for _, name := range from {
			p, ok := pkgs[own(name)]
			if !ok || len(p.Deps) == 0 {
				t.Fatalf("go list tells nothing of %s", name)
			}
			if slices.ContainsFunc(p.Deps, func(dep string) bool { return within(dep, module) }) {
				return true
			}
		}
		return false
	}
	for module, user := range map[string]string{
		"google.golang.org/grpc":            "edge/grpclimit",
		"google.golang.org/genproto":        "edge/grpclimit",
		"github.com/spf13/viper":            "configs",
		"github.com/spf13/cobra":            "cmd/edge",
		"github.com/goccy/go-yaml":          "configs",
		"github.com/redis/go-redis/v9":      "regional/redisstore",
		"github.com/nats-io/nats.go":        "sync/natsbus",
		"github.com/expr-lang/expr":         "edge/limit/when",
		own("regional"):                     "cmd/aggregator",
		"github.com/nats-io/nats-server/v2": "cmd/edge",
	} {
		if !links(module, user) {
			t.Errorf("%s does not link %s: look for what does, or this test proves nothing", user, module)
		}
		if links(module, "edge", "edge/httplimit") {
			t.Errorf("embedders of edge and edge/httplimit link %s", module)
		}
		if grpc := strings.HasPrefix(module, "google.golang.org/"); !grpc && links(module, "edge/grpclimit") {
			t.Errorf("embedders of edge/grpclimit link %s", module)
		}
		if links(module, "edge/client") {
			t.Errorf("users of edge/client link %s", module)
		}
		if grpc := strings.HasPrefix(module, "google.golang.org/"); !grpc && links(module, "edge/client/grpcclient") {
			t.Errorf("users of edge/client/grpcclient link %s", module)
		}
	}
}

// topLevel is fixed by the user.
var topLevel = []string{"go.mod", "go.sum", "cmd", "edge", "sync", "crdt", "regional", "configs", "deploy", "test", "README.md", "LICENSE"}

func strangers(entries []string) (found []string) {
	for _, e := range entries {
		if !strings.HasPrefix(e, ".") && !slices.Contains(topLevel, e) {
			found = append(found, e)
		}
	}
	return found
}

func TestTopLevel(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var entries []string
	for _, f := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		entries = append(entries, strings.SplitN(f, "/", 2)[0])
	}
	if s := strangers(entries); len(s) > 0 {
		t.Errorf("the top level is fixed; it does not have %v", s)
	}
	for _, want := range topLevel {
		if _, err := os.Stat(filepath.Join(root(t), want)); err != nil {
			t.Errorf("the top level lacks %s", want)
		}
	}
	if s := strangers([]string{"pkg", ".ci", "edge"}); !slices.Equal(s, []string{"pkg"}) {
		t.Errorf("strangers = %v, want [pkg]: the check sees nothing", s)
	}
}

// What is read first stays short: what has more to say says it beside its
// code, as configs/README.md does.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 130 {
		t.Errorf("README.md has %d lines, of 130", lines)
	}
}

// A figure in README.md is that of the results that it comes from, and was made by the
// command that stands beside it.
func TestReadmeTellsTheMeasuredFigures(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	row := regexp.MustCompile("(?m)^\\| `edge\\.Check`, one rule.*? \\| ([0-9.]+) M/s over two goroutines .* beside it ([0-9.]+) M/s \\(([0-9.]+) × .* \\| (`go run \\./test/bench [^`]*`) \\|$").FindStringSubmatch(read("README.md"))
	if row == nil {
		t.Fatal("README.md has no row for edge.Check as this test knows it")
	}
	results := read("test/bench/RESULTS.md")
	for _, want := range []string{
		"Written by " + row[4],
		"| ≥ 10 M/s | " + row[1] + " M/s",
		"| P1 | against the fastest Go limiter of this run, sethvargo/go-limiter memorystore | ≥ 2 × | " + row[3] + " ×",
	} {
		if !strings.Contains(results, want) {
			t.Errorf("test/bench/RESULTS.md does not hold %q, which README.md goes by", want)
		}
	}
	_, millions, _ := strings.Cut(results, "### 1 M keys")
	if !regexp.MustCompile(`(?m)^\| sethvargo/go-limiter memorystore \|.* \| ` + regexp.QuoteMeta(row[2]) + ` \|`).MatchString(millions) {
		t.Errorf("test/bench/RESULTS.md has no %s M/s of the fastest peer at a million keys", row[2])
	}
}
