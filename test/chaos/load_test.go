package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// callers call an edge side by side, so that a call that hangs stops a few
	// others only.
	callers = 4
	// patience is how long a caller waits for an answer.
	patience = 5 * time.Second
	// mostFailures bounds what is kept of failed calls.
	mostFailures = 5
)

// driver calls one edge, and knows what of its answers must be kept.
type driver struct {
	url   string
	http  *http.Client
	truth *truth

	// gate is held by each call; who has it all knows that none is under way.
	gate sync.RWMutex
	// away: the edge is stopped or dead, and nobody calls it. doomed: that is
	// about to happen, is so, or is just over, so that its calls may fail.
	away, doomed atomic.Bool

	mu     sync.Mutex
	admits map[key]uint64 // guarded by mu; what it admitted in its present life
	marked map[key]uint64 // guarded by mu; the part of it that the region had acknowledged
}

func newDriver(t testing.TB, url string, truth *truth) *driver {
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * callers}
	t.Cleanup(transport.CloseIdleConnections)
	return &driver{
		url: url, http: &http.Client{Transport: transport, Timeout: patience}, truth: truth,
		admits: map[key]uint64{}, marked: map[key]uint64{},
	}
}

// call is what /v1/check is asked.
type call struct {
	Attributes map[string]string `json:"attributes"`
	Peek       bool              `json:"peek,omitempty"`
}

// reply is what it answers.
type reply struct {
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule"`
	Basis   struct {
		Local  uint64 `json:"local"`
		Merged uint64 `json:"merged"`
	} `json:"basis"`
}

func (r *reply) used() uint64 { return r.Basis.Local + r.Basis.Merged }

func (d *driver) post(path string, ask, answer any) error {
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	resp, err := d.http.Post(d.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("reply of %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("reply of %s: %s: %.200s", path, resp.Status, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("reply of %s: %.200q: %w", path, text, err)
	}
	return nil
}

// sample is a call that had to be answered.
type sample struct {
	faulty bool // a fault had begun
	took   time.Duration
}

// check makes one call and enters it into the truth. sampled is false if it was
// not made, or if it could not be expected to be answered.
func (d *driver) check(k key) (took time.Duration, sampled bool, err error) {
	d.gate.RLock()
	defer d.gate.RUnlock()
	if d.away.Load() {
		return 0, false, nil
	}
	excused := d.doomed.Load()
	d.truth.begin(k)
	var r reply
	start := time.Now()
	err = d.post("/v1/check", call{Attributes: map[string]string{k.attribute: k.value}}, &r)
	took = time.Since(start)
	if err == nil && r.Rule == "" {
		err = fmt.Errorf("no rule decided on %v", k)
	}
	excused = excused || d.doomed.Load()
	switch {
	case err != nil:
		wrong := d.truth.end(k, unknown, 0)
		if excused && wrong == nil {
			return 0, false, nil
		}
		return took, true, fmt.Errorf("after %v: %w", took, err)
	case r.Allowed:
		err = d.truth.end(k, allowed, r.used())
		d.mu.Lock()
		d.admits[k]++
		d.mu.Unlock()
	default:
		err = d.truth.end(k, denied, r.used())
	}
	return took, !excused, err
}

// peek asks what is used, which counts nothing.
func (d *driver) peek(keys []key) (map[key]uint64, error) {
	used := map[key]uint64{}
	const most = 100 // in a batch
	for len(keys) > 0 {
		some := keys[:min(most, len(keys))]
		keys = keys[len(some):]
		var calls []call
		for _, k := range some {
			calls = append(calls, call{Attributes: map[string]string{k.attribute: k.value}, Peek: true})
		}
		var answer struct{ Results []reply }
		if err := d.post("/v1/check/batch", map[string]any{"checks": calls}, &answer); err != nil {
			return nil, err
		}
		if len(answer.Results) != len(some) {
			return nil, fmt.Errorf("%d replies to %d calls", len(answer.Results), len(some))
		}
		for i, k := range some {
			used[k] = answer.Results[i].used()
		}
	}
	return used, nil
}

// quiet waits until no call is under way, and keeps all back while do runs.
func (d *driver) quiet(do func()) {
	d.gate.Lock()
	defer d.gate.Unlock()
	do()
}

// begin begins a scenario, of which nothing was admitted yet.
func (d *driver) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.admits)
	clear(d.marked)
}

// mark says that the region has acknowledged all that the edge has admitted.
func (d *driver) mark() (acknowledged uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marked = maps.Clone(d.admits)
	for _, n := range d.marked {
		acknowledged += n
	}
	return acknowledged
}

// died says that the edge is gone, with what it had not told.
func (d *driver) died() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, n := range d.admits {
		d.truth.lose(k, n-d.marked[k])
	}
	clear(d.admits)
	clear(d.marked)
}

// load calls all edges at a pace, until it is stopped.
type load struct {
	stop    context.CancelFunc
	callers sync.WaitGroup
	faulty  atomic.Bool

	mu       sync.Mutex
	samples  []sample // guarded by mu
	machine  []sample // guarded by mu; of calls to the control
	failed   int      // guarded by mu
	failures []error  // guarded by mu; the first of them
}

// startLoad has each edge called a number of times a second, for keys that a
// Zipf distribution draws, and the control as often as one edge.
func startLoad(edges []*edge, control *control, keys []key, perSecond int, seed uint64) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop}
	for i := range callers {
		l.callers.Go(func() { control.ping(ctx, l, i, perSecond) }) // ends with ctx; finish waits for it
	}
	for i, e := range edges {
		for j := range callers {
			dice := rand.New(rand.NewPCG(seed, uint64(i*callers+j)))
			zipf := rand.NewZipf(dice, 1.1, 1, uint64(len(keys)-1))
			// Ends with ctx; finish waits for it.
			l.callers.Go(func() { l.call(ctx, e, perSecond, func() key { return keys[zipf.Uint64()] }) })
		}
	}
	return l
}

// call calls one edge at its share of the pace.
func (l *load) call(ctx context.Context, e *edge, perSecond int, draw func() key) {
	var mine []sample
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.samples = append(l.samples, mine...)
	}()
	pace := time.NewTicker(time.Second * callers / time.Duration(perSecond))
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		faulty := l.faulty.Load()
		took, sampled, err := e.check(draw())
		if sampled {
			mine = append(mine, sample{faulty, took})
		}
		if err != nil {
			l.fail(fmt.Errorf("%s: %w", e.name, err))
		}
	}
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
	if len(l.failures) < mostFailures {
		l.failures = append(l.failures, err)
	}
}

// finish stops the load and waits for calls under way. Then l.samples, l.machine,
// l.failed and l.failures stand still.
func (l *load) finish() {
	l.stop()
	l.callers.Wait()
}

// parted are what calls took before the faults, and since.
func parted(samples []sample) (before, during []time.Duration) {
	for _, s := range samples {
		if s.faulty {
			during = append(during, s.took)
		} else {
			before = append(before, s.took)
		}
	}
	return before, during
}
