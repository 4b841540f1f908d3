package regional

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/boottime"
)

// Config is what an aggregator is made from. Region and Name must be given;
// the zero value of every other field is its default.
type Config struct {
	// Region is the one that this aggregator serves; Name tells it from
	// others of the region.
	Region, Name string

	// Peers are the other regions, 64 at most.
	Peers []string

	// Targets says to which of them subtotals go: to each (TargetsMesh), or of each
	// key to two (TargetsHomes), from which the others hear of it: a round trip
	// later, for a fraction of the traffic. What is near its limit goes to each in
	// any case. All regions should have the same Peers and Targets; while they do
	// not, some hear late of some keys, and nothing is counted twice. "":
	// TargetsAuto, homes where there are more than 8 regions.
	Targets Targets

	// Lanes must be the same at every edge and aggregator (8).
	Lanes int

	// Incarnation tells this life of the process from earlier ones, in
	// milliseconds since 1970. 0: the clock.
	Incarnation uint64

	// Interval is the longest that a changed subtotal waits to be sent to
	// other regions (100 ms), Urgent the shortest distance of two exchanges or
	// pushes (20 ms). Timeout bounds an exchange (1 s) and StoreTimeout the time
	// that a frame, or a batch of a backlog, waits for the store (200 ms: edges
	// wait 250).
	Interval, Urgent, Timeout, StoreTimeout time.Duration

	// Budget is how many bytes a second exports and audits to each other region and
	// the replies to them may take, up to a second's worth saved up (0: any number).
	// What is near its limit may overdraw it by a frame.
	Budget int64

	// MaxBytes bounds the memory of what is held of keys, and of what waits to be
	// told to other regions: a quarter, where there are any (512 MiB). Under a flood
	// of keys the one with the smallest share of its limit in use is forgotten first,
	// as the store has it: it is read again when somebody tells or asks of it. What
	// the store does not have stays: where that fills the memory, keys that are new
	// and far from their limit are refused with StatusOverloaded. It is of the heap:
	// the garbage collector needs more, so give the process a memory limit
	// (GOMEMLIMIT) of a third more.
	MaxBytes int64

	// MaxKeys bounds the number of keys besides, in equal parts for all lanes
	// (0: MaxBytes alone bounds it). Simulations with few keys set it.
	MaxKeys int

	// Rules are those of the edges, by which the truth is told of what they admitted,
	// rule by rule: counters name none. Nil: it is not told, until SetRules.
	Rules *limit.Set

	// Rights is the log of the rights in strict limits; nil: nothing is granted here,
	// and strict limits whose home this region is deny everything. All aggregators of
	// a region must have the same. RightsLease is how long rights are good for without
	// being renewed (15 s).
	Rights      escrow.Log
	RightsLease time.Duration

	// Boot is a clock that nobody sets, by which leases are judged and round trips are
	// measured, and Token draws what nobody drew before, for who takes a lane of Rights. Nil: CLOCK_BOOTTIME,
	// and at random. A simulation that is to replay sets both.
	Boot  func() time.Duration
	Token func() uint64

	// Now measures how long an answer took, which it is stamped with: by that
	// the time that the store took is not taken for the network's. Nil:
	// time.Now. A simulation that is to replay sets its own.
	Now func() time.Time

	// Logger says what happens at the boundary (discarded).
	Logger *slog.Logger

	// Registerer takes the aggregator's metrics; nil: none.
	Registerer prometheus.Registerer
}

// maxPeers is the number of bits in counter.again.
const maxPeers = 64

// withDefaults fills zero fields and reports all mistakes at once.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	for _, t := range []struct{ field, token string }{{"Region", c.Region}, {"Name", c.Name}} {
		if err := deltasync.ValidToken(t.token); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.field, err))
		}
	}
	if len(c.Peers) > maxPeers {
		errs = append(errs, fmt.Errorf("Peers: %d regions, want at most %d", len(c.Peers), maxPeers))
	}
	for i, p := range c.Peers {
		switch err := deltasync.ValidToken(p); {
		case err != nil:
			errs = append(errs, fmt.Errorf("Peers[%d]: %w", i, err))
		case p == c.Region:
			errs = append(errs, fmt.Errorf("Peers[%d]: %q is the own region", i, p))
		case slices.Contains(c.Peers[:i], p):
			errs = append(errs, fmt.Errorf("Peers[%d]: %q stands there twice", i, p))
		}
	}
	switch c.Targets {
	case "", TargetsAuto, TargetsMesh, TargetsHomes:
	default:
		errs = append(errs, fmt.Errorf("Targets: %q, want %s, %s or %s", c.Targets, TargetsAuto, TargetsMesh, TargetsHomes))
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
	}{
		{"Interval", &c.Interval, 100 * time.Millisecond}, {"Urgent", &c.Urgent, 20 * time.Millisecond},
		{"Timeout", &c.Timeout, deltasync.RegionTimeout}, {"StoreTimeout", &c.StoreTimeout, 200 * time.Millisecond},
	} {
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
	if c.Budget < 0 {
		errs = append(errs, fmt.Errorf("Budget: %d, want 0 or more bytes a second", c.Budget))
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 512 << 20
	}
	if least := LeastBytes(c.Lanes, len(c.Peers)); c.MaxBytes < least {
		errs = append(errs, fmt.Errorf("MaxBytes: %d, want at least %d for %d lanes and %d peers", c.MaxBytes, least, c.Lanes, len(c.Peers)))
	}
	if c.MaxKeys != 0 && c.MaxKeys < c.Lanes {
		errs = append(errs, fmt.Errorf("MaxKeys: %d, want at least one a lane", c.MaxKeys))
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Boot == nil {
		c.Boot = boottime.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}
