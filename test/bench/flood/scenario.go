package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// scenario is what the flood finds, and what becomes of the edge's frames.
type scenario struct {
	name  string
	limit uint64 // of each key
	each  int    // requests of a key of the flood
	cut   bool   // no frame is answered
}

var scenarios = []scenario{
	{"uplink works", 100, 1, false},
	{"uplink cut", 100, 1, true},
	{"cut, and every key of the flood uses 80 % of its limit", 10, 8, true},
	{"cut, and every key of the flood uses up its limit", 1, 1, true},
}

// result is what became of a scenario.
type result struct {
	Name          string
	Peak, Heap    int64 // bytes
	Limited       int   // keys that had 80 % of their limit used, or more
	Freed         int   // those of them that got more than they had left
	Others, Wrong int   // keys of the flood, and those that were denied
	Regular       int   // requests of clients that stay below half of their limit
	RegularWrong  int   // those of them that were denied
	Low           int   // keys at 40 %
	Won, WonMost  float64

	Live                                     int
	BlockedExact, BlockedFilter, BlockedLost int
	Micros                                   float64
}

// missed are the targets that the result misses.
func (r result) missed(o options) (errs []error) {
	miss := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("%s: %s", r.Name, fmt.Sprintf(format, args...)))
		}
	}
	miss(r.Peak > o.budget*11/10, "%d MB of memory, want %d and a tenth at most", r.Peak>>20, o.budget>>20)
	miss(r.Freed > 0, "%d of %d limited keys got more than they had left", r.Freed, r.Limited)
	miss(r.Wrong*100 > r.Others, "%d of %d other keys were denied, want 1 %% at most", r.Wrong, r.Others)
	miss(r.RegularWrong*100 > r.Regular, "%d of %d requests of regular clients were denied, want 1 %% at most", r.RegularWrong, r.Regular)
	return errs
}

const (
	window  = 10 * time.Minute
	regular = 1_000
	// perTick is how many requests of the flood come between two ticks, 0.1 s.
	perTick = 100_000
)

// The numbers of addresses that the parts have, so that none is another's.
const (
	fromLimited = iota << 28
	fromLow
	fromRegular
	fromFlood
)

// world is an edge under flood.
type world struct {
	scenario
	node   *edge.Node
	region *region
	now    time.Time
	slot   limit.Slot
	req    *limit.Request
	asked  int
}

func (s scenario) run(o options) (r result, err error) {
	debug.SetMemoryLimit(o.budget)
	w, err := s.world(o.budget / 8 * 7)
	if err != nil {
		return r, err
	}
	r.Name = s.name
	limited := min(20_000, o.keys/25)
	low := limited / 10
	had := func(i int) uint64 { // 80 to 100 % used, in equal parts
		if s.limit == 1 {
			return 1
		}
		return s.limit*4/5 + uint64(i)%(s.limit/5+1)
	}
	for i := range limited {
		w.spend(fromLimited+i, had(i))
		if i%perTick == 0 {
			w.tick()
		}
	}
	if s.limit > 1 {
		r.Low = low
		for i := range low {
			w.spend(fromLow+i, s.limit*2/5)
		}
	}
	for range 20 {
		w.tick()
	}
	started := time.Now()
	before := w.asked
	random := rand.New(rand.NewPCG(1, 2))
	for i := range o.keys / s.each {
		r.Others++
		for range s.each {
			if !w.ask(fromFlood + i) {
				r.Wrong++
				break
			}
		}
		if s.limit > 1 && i%1000 == 0 { // a regular client makes some 50 requests in the long run
			r.Regular++
			if !w.ask(fromRegular + random.IntN(regular)) {
				r.RegularWrong++
			}
		}
		if i%(perTick/s.each) == 0 {
			w.tick()
		}
	}
	r.Micros = float64(time.Since(started).Microseconds()) / float64(w.asked-before)
	for i := range limited {
		if w.spend(fromLimited+i, 2*s.limit) > s.limit-had(i) {
			r.Freed++
		}
	}
	r.Limited = limited
	for i := range r.Low {
		won := float64(w.spend(fromLow+i, 2*s.limit))/float64(s.limit) - 0.6
		r.Won += won / float64(low)
		r.WonMost = max(r.WonMost, won)
	}
	st := w.node.Stats(w.now)
	r.Live, r.BlockedExact, r.BlockedFilter, r.BlockedLost = st.Keys, st.Blocked-st.BlockedIn16, st.BlockedIn16, int(st.BlockedLost)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Heap = int64(m.HeapAlloc)
	runtime.KeepAlive(w)
	r.Peak, err = peak()
	return r, err
}

func (s scenario) world(maxBytes int64) (*world, error) {
	n, err := edge.New(edge.Config{
		Region: "eu", Pop: "fra", Name: "flood", Secret: []byte("a secret for benchmarks"), MaxBytes: maxBytes,
	})
	if err != nil {
		return nil, err
	}
	set, problems := limit.Compile(limit.Document{Namespace: "bench", Rules: []limit.RuleSpec{{
		Name: "per-address", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{Limit: s.limit, Per: window}},
	}}})
	if set == nil {
		return nil, fmt.Errorf("rules: %w", problems[0])
	}
	if err := n.SetRules(set); err != nil {
		return nil, err
	}
	ns := n.Rules().Only()
	slot, ok := ns.Slot("client_ip")
	if !ok {
		return nil, errors.New("the rule reads no client_ip")
	}
	return &world{
		scenario: s, node: n, region: newRegion(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		slot: slot, req: ns.NewRequest(),
	}, nil
}

// ask makes one request of the i-th address.
func (w *world) ask(i int) bool {
	w.req.Reset()
	w.req.SetSlot(w.slot, address(i))
	w.asked++
	return w.node.Check(w.now, w.req).Allowed
}

// spend makes requests of an address until one is denied, most of them at the
// most, and says how many passed. Between the first and the second the region
// is asked, as it would be.
func (w *world) spend(i int, most uint64) (passed uint64) {
	for passed < most && w.ask(i) {
		passed++
		if passed == 1 && !w.cut {
			w.exchange()
		}
	}
	return passed
}

// tick is what an edge does ten times a second.
func (w *world) tick() {
	w.now = w.now.Add(100 * time.Millisecond)
	w.exchange()
	w.node.Tick(w.now)
}

// exchange sends what the edge has to tell, and loses it where the uplink is
// cut.
func (w *world) exchange() {
	for rounds := 0; rounds < 64; rounds++ {
		out := w.node.Flush(w.now)
		for _, f := range out {
			if w.cut {
				w.node.Lost(w.now, f.Lane, f.Seq)
				continue
			}
			if err := w.region.answer(w.node, w.now, f); err != nil {
				panic(err) // our own bug
			}
		}
		if len(out) == 0 || w.cut {
			return
		}
	}
}

// address is the i-th address: IPv4 and IPv6, each of these in a /64 of its own.
func address(i int) string {
	if i%2 == 0 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(i)+1<<24)
		return netip.AddrFrom4(a).String()
	}
	var a [16]byte
	a[0], a[1], a[15] = 0x20, 0x01, 1
	binary.BigEndian.PutUint32(a[4:], uint32(i))
	return netip.AddrFrom16(a).String()
}

// peak is the most memory that the process has had resident.
func peak() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the peak of resident memory, which takes Linux: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}
