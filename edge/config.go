package edge

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/boottime"
)

// Config is what a node is made from. Region, Pop, Name and Secret must be
// given; the zero value of every other field is its default.
type Config struct {
	// Region, Pop and Name say who this edge is: three tokens of
	// [a-z0-9-]. No two living edges may share all three.
	Region, Pop, Name string

	// Secret is the cluster's: at least 16 bytes, the same at every edge, or
	// the edges count different keys.
	Secret []byte

	// Incarnation tells this life of the process from earlier ones, in
	// milliseconds since 1970; it must grow from start to start. 0: the clock.
	Incarnation uint64

	// Lanes shard the key space over aggregators (8). It must be the same at
	// every edge and aggregator of the region.
	Lanes int

	// Interval is the longest that a change waits to be published (100 ms; a
	// second where it is less than a hundredth of a limit over 20 s or more),
	// Urgent the shortest distance of two flushes for keys near their limit
	// (20 ms). Timeout is how long a frame may stay unanswered (250 ms).
	// Shorter is more exact and costs more messages.
	Interval, Urgent, Timeout time.Duration

	// Regions and Edges are how many regions there are, and edges of each, as far as is
	// known beforehand: by them a node that has never heard of others keeps to its part of
	// adaptive limits. What its region tells it takes their place. 0 and 0: it takes
	// itself to be alone until then, and admits all of each limit.
	Regions, Edges int

	// Budget is how many bytes a second the frames, a starting node's questions and
	// the replies to both may take, up to a second's worth saved up (0: any number).
	// When it runs short what is far from its limit waits, then what is regular; what
	// cannot wait overdraws it by a frame at the most. Pushes are not in it, and what
	// Run still sends as it ends is not bound by it: that would be lost.
	Budget int64

	// MaxKeys bounds the live keys (1,000,000, or what MaxBytes holds). When it
	// is reached, the key with the smallest share of its limit in use is
	// forgotten first, of a namespace that has more than an equal part. One that has 80 %
	// of it in use or more, or of what its class may use, stays limited all the same: that
	// takes up to 20 bytes for each of MaxKeys, when it comes to it.
	MaxKeys int

	// MaxBytes bounds the memory of what the node counts, waits to send and
	// remembers of forgotten keys; the View has its own bound (0: MaxKeys alone
	// bounds it). Half of it serves under a flood of keys only. It is of the
	// heap: the garbage collector needs more for itself, so give the process a
	// memory limit (GOMEMLIMIT) of a tenth more at the least.
	MaxBytes int64

	// Tenants have multipliers of limits by a store of their own, which change one by one while the
	// rules stay. They are this node's alone. Nil: documents have all.
	Tenants *limit.Tenants

	// View keeps what may be forgotten. Nil: nothing is kept.
	View View

	// Rand draws uniformly from [0, 1), for rules that drop at random; many
	// goroutines call it. Default: math/rand/v2. A simulation that is to replay
	// sets its own.
	Rand func() float64

	// Boot is a clock that nobody sets and that goes on while the machine sleeps: by it
	// strict limits judge leases, and what has left a window. Default: CLOCK_BOOTTIME,
	// where there is one. A simulation that is to replay sets its own.
	Boot func() time.Duration

	// Logger says what happens at the boundary (discarded).
	Logger *slog.Logger

	// Registerer takes the node's metrics; nil: none. Each node needs one of its own, be it
	// by a label: see prometheus.WrapRegistererWith.
	Registerer prometheus.Registerer
}

// What a node may be told to expect at the most: more can be no cluster.
const (
	mostRegionsExpected = 1 << 16
	mostEdgesExpected   = 1 << 20
)

// withDefaults fills zero fields and reports all mistakes at once.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	for _, t := range []struct{ field, token string }{{"Region", c.Region}, {"Pop", c.Pop}, {"Name", c.Name}} {
		if err := deltasync.ValidToken(t.token); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.field, err))
		}
	}
	if _, err := deltasync.NewKeyer(c.Secret); err != nil {
		errs = append(errs, fmt.Errorf("Secret: %w", err))
	}
	if c.Lanes == 0 {
		c.Lanes = 8
	}
	if c.Lanes < 1 || c.Lanes > deltasync.MaxLanes {
		errs = append(errs, fmt.Errorf("Lanes: %d, want 1 to %d", c.Lanes, deltasync.MaxLanes))
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		def   time.Duration
	}{{"Interval", &c.Interval, 100 * time.Millisecond}, {"Urgent", &c.Urgent, 20 * time.Millisecond}, {"Timeout", &c.Timeout, deltasync.EdgeTimeout}} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < time.Millisecond || *d.value > time.Minute {
			errs = append(errs, fmt.Errorf("%s: %v, want 1ms to 1m", d.field, *d.value))
		}
	}
	if c.Urgent > c.Interval {
		errs = append(errs, fmt.Errorf("Urgent: %v is above Interval, %v", c.Urgent, c.Interval))
	}
	if c.Regions < 0 || c.Regions > mostRegionsExpected {
		errs = append(errs, fmt.Errorf("Regions: %d, want 0 to %d", c.Regions, mostRegionsExpected))
	}
	if c.Edges < 0 || c.Edges > mostEdgesExpected {
		errs = append(errs, fmt.Errorf("Edges: %d, want 0 to %d", c.Edges, mostEdgesExpected))
	}
	if c.Budget < 0 {
		errs = append(errs, fmt.Errorf("Budget: %d, want 0 or more bytes a second", c.Budget))
	}
	if c.MaxBytes != 0 && c.MaxBytes < minBytes || c.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("MaxBytes: %d, want 0 or at least %d", c.MaxBytes, minBytes))
	}
	switch {
	case c.MaxKeys == 0 && c.MaxBytes > 0:
		c.MaxKeys = math.MaxInt32
	case c.MaxKeys == 0:
		c.MaxKeys = 1_000_000
	}
	if c.MaxKeys < shards*maxCounters {
		errs = append(errs, fmt.Errorf("MaxKeys: %d, want at least %d", c.MaxKeys, shards*maxCounters))
	}
	if c.View == nil {
		c.View = noView{}
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Boot == nil {
		c.Boot = boottime.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}
