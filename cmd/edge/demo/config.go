package demo

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/regional/redisstore"
)

// Bounds of what can be asked for.
const (
	maxEdges = 50
	maxRate  = 50_000
	maxDelay = 5 * time.Second
)

// regionNames are the regions, in order.
var regionNames = []string{
	"eu", "us", "ap", "sa", "af", "me", "in", "jp", "au", "ca",
	"mx", "uk", "de", "fr", "se", "pl", "tr", "kr", "sg", "nz",
}

// Config is what is shown. New checks it; its errors name the flags of
// `edge demo`.
type Config struct {
	// Regions and Edges (of each region) are how many there are.
	Regions, Edges int
	// Listen is host:port of the first edge. The others take the ports that
	// follow, region by region. Port 0: each edge takes a free one.
	Listen string
	// RulesFile replaces the demo's rules, LogFile the generated traffic.
	RulesFile, LogFile string
	// RedisURL keeps the regions' counts in a Redis; "": in memory.
	RedisURL string
	// NoTraffic leaves the edges to the user's own requests.
	NoTraffic bool
	// Rate is how many requests a second are replayed, over all edges.
	Rate int
	// Delay is how long a message between regions takes, one way.
	Delay time.Duration
	// Cuts take regions off the others.
	Cuts []Cut
	// For ends the run by itself; 0: it runs until its context ends.
	For time.Duration
}

// Default is what `edge demo` shows where nothing else is asked for.
func Default() Config {
	return Config{Regions: 3, Edges: 2, Listen: "127.0.0.1:18080", Rate: 300, Delay: 80 * time.Millisecond}
}

// Validate returns every mistake, each by its flag.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(flag string, n, lo, hi int) {
		if n < lo || n > hi {
			bad("--%s %d: want %d to %d", flag, n, lo, hi)
		}
	}
	within("regions", c.Regions, 1, len(regionNames))
	within("edges", c.Edges, 1, maxEdges)
	within("rate", c.Rate, 1, maxRate)
	if c.Delay < 0 || c.Delay > maxDelay {
		bad("--delay %v: want 0s to %v", c.Delay, maxDelay)
	}
	if c.For < 0 {
		bad("--for %v: want a time such as 15s", c.For)
	}
	if c.NoTraffic && c.LogFile != "" {
		bad("--no-traffic, --log %s: one replays nothing, the other a file; want one of them", c.LogFile)
	}
	names := regionNames[:min(max(c.Regions, 0), len(regionNames))]
	for _, cut := range c.Cuts {
		if !slices.Contains(names, cut.Region) {
			bad("--cut %v: there is no region %q; there are %s", cut, cut.Region, strings.Join(names, ", "))
		}
		if c.For > 0 && cut.After >= c.For {
			bad("--cut %v, --for %v: it ends before the cut begins", cut, c.For)
		}
	}
	if c.RedisURL != "" {
		if _, err := redisstore.ParseURL(c.RedisURL, "sgdemo"); err != nil {
			bad("--redis-url: %w", err)
		}
	}
	switch _, port, err := splitListen(c.Listen); {
	case err != nil:
		bad("--listen %s: %w; want host:port, such as 127.0.0.1:18080", c.Listen, err)
	case port > 0 && port+c.Regions*c.Edges-1 > 65535:
		bad("--listen %s: %d edges take the ports up to %d, and 65535 is the last; want a lower port", c.Listen, c.Regions*c.Edges, port+c.Regions*c.Edges-1)
	}
	return errors.Join(errs...)
}

func splitListen(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err != nil {
		return "", 0, errors.New("it is not an address with a port")
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not 0 to 65535", text)
	}
	return host, int(n), nil
}
