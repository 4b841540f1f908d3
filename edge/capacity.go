package edge

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// capacities are the signals of spare capacity that elastic margins read. A
// signal is good for as long as whoever sets it said; after that nothing is
// known, and what is not known to be spare is not.
type capacities struct {
	mu     sync.RWMutex // guards byName; held for a look-up
	byName map[string]signal
}

type signal struct {
	value float64
	until int64 // ns since 1970
	ttl   time.Duration
}

const (
	// maxSignals bounds the names that are remembered at once.
	maxSignals = 1024
	// MaxCapacityTTL is the longest that a capacity signal may be good.
	MaxCapacityTTL = time.Hour
)

// SetCapacity says how much of a named capacity is in use, as a part (0.7: 70
// percent), good for ttl from now. Elastic margins that name it open and close
// with it, from the next decision on. Errors: a name, value or ttl that is none,
// or more than 1,024 names in use.
func (n *Node) SetCapacity(now time.Time, name string, used float64, ttl time.Duration) error {
	switch err := limit.ValidSignal(name); {
	case err != nil:
		return err
	case math.IsNaN(used) || math.IsInf(used, 0) || used < 0:
		return fmt.Errorf("capacity %s: %v is no part in use (0.7 is 70 percent)", name, used)
	case ttl <= 0 || ttl > MaxCapacityTTL:
		return fmt.Errorf("capacity %s: a ttl of %v is out of range (above 0, at most %v)", name, ttl, MaxCapacityTTL)
	}
	t := n.clock.At(now)
	c := &n.capacities
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.byName[name]; !known && len(c.byName) >= maxSignals {
		maps.DeleteFunc(c.byName, func(_ string, s signal) bool { return !s.good(t) })
		if len(c.byName) >= maxSignals {
			return fmt.Errorf("capacity %s: %d other names are in use; let some run out", name, maxSignals)
		}
	}
	if c.byName == nil {
		c.byName = map[string]signal{}
	}
	c.byName[name] = signal{value: used, until: t + int64(ttl), ttl: ttl}
	return nil
}

// ForgetCapacity has nothing be known of a named capacity.
func (n *Node) ForgetCapacity(name string) {
	n.capacities.mu.Lock()
	defer n.capacities.mu.Unlock()
	delete(n.capacities.byName, name)
}

// Capacity is what is known of a named capacity: the part in use, and how long
// that is good; ok is false where nothing is known.
func (n *Node) Capacity(now time.Time, name string) (used float64, ttl time.Duration, ok bool) {
	s, ok := n.capacities.get(n.clock.At(now), name)
	return s.value, min(time.Duration(s.until-n.clock.At(now)), s.ttl), ok
}

func (c *capacities) get(now int64, name string) (signal, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.byName[name]
	if !s.good(now) {
		return signal{until: now}, false
	}
	return s, true
}

// sweep forgets signals that are over, or would be good again where the clock was set back
// and comes to their time once more.
func (c *capacities) sweep(now int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.byName, func(_ string, s signal) bool { return !s.good(now) })
}

// good says that the signal still holds. One that would for longer than it was
// set for was set before the clock was set back: nothing is known then.
func (s signal) good(now int64) bool {
	return now < s.until && s.until-now <= int64(s.ttl+maxAhead)
}
