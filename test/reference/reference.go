// Package reference installs and sets up Envoy's own limiter, envoyproxy/ratelimit, for
// tests and benchmarks that compare ours with it, and fetches other programs for them. Nothing of it is kept in this
// repository: go install fetches it, by way of the Go module proxy.
package reference

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// Latest is the newest build that there is when it is installed.
	Latest = "latest"
	// Known is the build that ours is known to agree with: the newest that the proxy has
	// (January 2026).
	Known = "v1.4.1-0.20260122083618-3fb702589d36"
)

// Programs that can be installed.
const (
	Service     = "service_cmd"      // the server
	ConfigCheck = "config_check_cmd" // says whether a directory of configuration is good
)

// Install installs programs of a version into a directory, and says which version that
// is.
func Install(ctx context.Context, dir, version string, programs ...string) (installed string, err error) {
	args := []string{"install"}
	for _, p := range programs {
		args = append(args, "github.com/envoyproxy/ratelimit/src/"+p+"@"+version)
	}
	install := exec.CommandContext(ctx, "go", args...)
	install.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return moduleOf(ctx, filepath.Join(dir, programs[0]))
}

// Fetch installs a program of another module into a directory, and says which version
// that is.
func Fetch(ctx context.Context, dir, program, version string) (installed string, err error) {
	install := exec.CommandContext(ctx, "go", "install", program+"@"+version)
	install.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		why := strings.TrimPrefix(lines[len(lines)-1], "go: "+program+"@"+version+": ") // the last line alone says why
		return "", fmt.Errorf("go install %s@%s: %w: %s", program, version, err, why)
	}
	return moduleOf(ctx, filepath.Join(dir, filepath.Base(program)))
}

// moduleOf is the version of the module that a program is built of.
func moduleOf(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "version", "-m", path).Output()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) >= 3 && fields[0] == "mod" {
			return fields[2], nil
		}
	}
	return "", errors.New("go version -m names no module of " + path)
}

// Server is how the server is set up: where it listens, and which Redis it has.
type Server struct {
	Redis             string // host:port
	HTTP, GRPC, Debug string // likewise
}

// SetUp writes configuration, by the names of files, below a directory, and returns the
// environment by which the server finds it and all else, beside the caller's own.
func (s Server) SetUp(dir string, files map[string]string) (env []string, err error) {
	config := filepath.Join(dir, "runtime", "ratelimit", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		return nil, err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(config, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	env = []string{
		"USE_STATSD=false", "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + s.Redis, "RUNTIME_ROOT=" + filepath.Join(dir, "runtime"),
		"RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
	}
	for name, addr := range map[string]string{"PORT": s.HTTP, "GRPC_PORT": s.GRPC, "DEBUG_PORT": s.Debug} {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		env = append(env, name+"="+port)
	}
	return env, nil
}
