package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spillgate/spillgate/test/bench/localredis"
	"github.com/spillgate/spillgate/test/reference"
)

const (
	gubernator = "github.com/gubernator-io/gubernator/v2/cmd/gubernator"
	// gubernatorKnown builds with older versions of Go than its latest one wants.
	gubernatorKnown = "v2.16.0"
)

// rival starts one. Where it cannot be had, or does not start, the report says so, and all
// else is measured.
func (f *field) rival(ctx context.Context, name string, start func(context.Context) (version string, err error)) {
	version, err := start(ctx)
	if err != nil {
		f.notes = append(f.notes, fmt.Sprintf("%s is not measured: %v", name, err))
		return
	}
	f.notes = append(f.notes, fmt.Sprintf("%s is %s", name, version))
}

// envoys starts Envoy's limiter, and its Redis.
func (f *field) envoys(ctx context.Context) (version string, err error) {
	if version, err = reference.Install(ctx, f.dir, reference.Latest, reference.Service); err != nil {
		return "", err
	}
	redis, err := localredis.Start()
	if err != nil {
		return "", err
	}
	f.ends = append(f.ends, redis.Stop)
	addrs, err := frees(3)
	if err != nil {
		return "", err
	}
	env, err := reference.Server{Redis: redis.Addr, HTTP: addrs[0], GRPC: addrs[1], Debug: addrs[2]}.SetUp(f.dir, map[string]string{"config.yaml": theirRules})
	if err != nil {
		return "", err
	}
	pid, err := f.process(ctx, env, answers("http://"+addrs[0]+"/healthcheck"), filepath.Join(f.dir, reference.Service))
	if err != nil {
		return "", err
	}
	pids := []int{pid, redis.PID()}
	for _, n := range descriptors {
		f.add("envoyproxy/ratelimit and its Redis"+many(n), pids, f.overGRPC(addrs[1], envoyCall(n)))
	}
	f.add("envoyproxy/ratelimit and its Redis, /json", pids, f.overHTTP(addrs[0], "/json", envoyBody))
	return version + ", as it is shipped but for statsd, which is off", nil
}

// gubernators starts Gubernator, a cluster of one.
func (f *field) gubernators(ctx context.Context) (version string, err error) {
	if version, err = reference.Fetch(ctx, f.dir, gubernator, reference.Latest); err != nil {
		latest := err
		if version, err = reference.Fetch(ctx, f.dir, gubernator, gubernatorKnown); err != nil {
			return "", errors.Join(latest, err)
		}
		version += fmt.Sprintf(", as its latest does not build here (%s)", oneLine(latest))
	}
	addrs, err := frees(3)
	if err != nil {
		return "", err
	}
	env := []string{
		"GUBER_GRPC_ADDRESS=" + addrs[0], "GUBER_ADVERTISE_ADDRESS=" + addrs[0], "GUBER_HTTP_ADDRESS=" + addrs[1], "GUBER_CACHE_SIZE=1000000",
		"GUBER_PEER_DISCOVERY_TYPE=member-list", "GUBER_MEMBERLIST_BIND_ADDRESS=" + addrs[2], "GUBER_MEMBERLIST_ADDRESS=" + addrs[2],
		"GUBER_MEMBERLIST_ADVERTISE_ADDRESS=" + addrs[0], "GUBER_MEMBERLIST_KNOWN_NODES=" + addrs[2], "GUBER_LOG_LEVEL=error", "OTEL_SDK_DISABLED=true",
	}
	pid, err := f.process(ctx, env, answers("http://"+addrs[1]+"/v1/HealthCheck"), filepath.Join(f.dir, "gubernator"))
	if err != nil {
		return "", err
	}
	for _, n := range descriptors {
		f.add("gubernator"+many(n), []int{pid}, f.overGRPC(addrs[0], gubernatorCall(n)))
	}
	f.add("gubernator, HTTP", []int{pid}, f.overHTTP(addrs[1], gubernatorPath, gubernatorBody))
	return version + ", a cluster of one, with limits that it does not batch", nil
}

// fetchTools looks for the clients of others that make the sustained load.
func (f *field) fetchTools(ctx context.Context) {
	if version, err := reference.Fetch(ctx, f.dir, "github.com/bojand/ghz/cmd/ghz", reference.Latest); err != nil {
		f.notes = append(f.notes, fmt.Sprintf("no sustained load over gRPC: %v", err))
	} else {
		f.ghz = filepath.Join(f.dir, "ghz")
		f.notes = append(f.notes, "ghz is "+version)
	}
	var err error
	if f.h2load, err = lookPath("h2load", "--version"); err != nil {
		f.notes = append(f.notes, fmt.Sprintf("no sustained load over HTTP: %v (apt-get install nghttp2-client)", err))
	}
}

// write puts a file for a tool into the directory of this run.
func (f *field) write(name string, text []byte) (path string, err error) {
	path = filepath.Join(f.dir, name)
	return path, os.WriteFile(path, text, 0o600)
}
