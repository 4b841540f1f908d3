package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// ApplyEntries puts entries of one kind in force, and returns which of them it refuses, by their places.
type ApplyEntries func([]natsentries.Entry) map[int]error

// Entries are what changes one by one beside the rules of a bucket.
type Entries struct {
	follower *natsentries.Follower
	kinds    map[string]ApplyEntries
	log      *slog.Logger
	known    bool        // some are in force from the file
	none     atomic.Bool // there is no bucket of them
}

// OpenEntries has what the file keeps in force, beside that of the rules; kinds says what is done with
// entries of a kind, others are passed over. It is nil where rules come from files. bus is asked for once Run
// begins.
func OpenEntries(s configs.RulesSettings, bus func() *natsbus.Bus, reg prometheus.Registerer, log *slog.Logger, kinds map[string]ApplyEntries) (*Entries, error) {
	if s.Source != configs.SourceKV {
		return nil, nil
	}
	e := &Entries{kinds: kinds, log: log}
	cfg := natsentries.FollowConfig{
		Open: func(ctx context.Context) (*natsentries.Store, error) {
			js, err := bus().JetStream(s.KV.Domain)
			if err != nil {
				return nil, fmt.Errorf("entries: %w", err)
			}
			return natsentries.Open(ctx, js, s.KV.Bucket)
		},
		Apply: e.apply, Tell: e.tell,
	}
	if s.KV.File != "" {
		cfg.File = s.KV.File + ".entries"
	}
	follower, err := natsentries.NewFollower(cfg)
	switch {
	case follower == nil:
		return nil, err
	case err != nil:
		e.tell(err)
	}
	e.follower = follower
	reg.MustRegister(&entryMetrics{follower.Status})
	if e.known = follower.Start(); e.known {
		log.Info("entries beside the rules are those that were known last, until NATS has newer ones", "file", cfg.File, "entries", follower.Status().Entries, "made", follower.Status().Newest.Format(time.RFC3339))
	}
	return e, nil
}

// apply hands each entry to who does something with its kind.
func (e *Entries) apply(entries []natsentries.Entry) map[int]error {
	of, places := map[string][]natsentries.Entry{}, map[string][]int{}
	for i := range entries {
		if kind := entries[i].Kind; e.kinds[kind] != nil {
			of[kind], places[kind] = append(of[kind], entries[i]), append(places[kind], i)
		}
	}
	refused := map[int]error{}
	for kind := range maps.Keys(of) {
		for i, err := range e.kinds[kind](of[kind]) {
			refused[places[kind][i]] = err
		}
	}
	return refused
}

// tell tells what is wrong with entries, and where they are not reached.
func (e *Entries) tell(err error) {
	if errors.Is(err, natsentries.ErrNone) {
		e.none.Store(true)
	}
	if errors.Is(err, natsentries.ErrUnavailable) || errors.Is(err, natsentries.ErrNone) {
		e.log.Warn("entries beside the rules cannot be read, and stay as they are", "err", fmt.Sprint(err))
		return
	}
	e.log.Error("entries beside the rules", "err", fmt.Sprint(err))
}

// Run follows them until ctx ends.
func (e *Entries) Run(ctx context.Context) { e.follower.Run(ctx) }

// firstEntries is how long an edge without a file of entries waits for them at its start.
const firstEntries = 5 * time.Second

// Await returns once it is known what stands beside the rules, be it what was known last, or when that
// has taken too long, which it tells: whoever is judged before is so by the rules alone. e may be nil.
func (e *Entries) Await(ctx context.Context) {
	if e == nil || e.known {
		return
	}
	late := time.NewTimer(firstEntries)
	defer late.Stop()
	looks := time.NewTicker(10 * time.Millisecond)
	defer looks.Stop()
	for e.follower.Status().Heard.IsZero() && !e.none.Load() {
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			e.log.Warn("rules are in force, and what stands beside them (tenants, exceptions for keys) is not known yet", "waited", firstEntries)
			return
		case <-looks.C:
		}
	}
}

// entryMetrics tell how the entries fare.
type entryMetrics struct{ status func() natsentries.Status }

var (
	entriesMade  = prometheus.NewDesc("spillgate_entries_made_timestamp_seconds", "When the newest entry in force beside the rules (a tenant's, say) was made, of rules.source: kv; 0: there is none.", nil, nil)
	entriesHeard = prometheus.NewDesc("spillgate_entries_heard_timestamp_seconds", "When the bucket of entries was last seen to have none that is not known here; 0: not since the start.", nil, nil)
	entriesKnown = prometheus.NewDesc("spillgate_entries", "Entries beside the rules, by state: in_force; refused, whose newest is not good, and the one before stays; older and lacking, of which the bucket has an older one or none, and what is known stays.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (m *entryMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *entryMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.status()
	ch <- prometheus.MustNewConstMetric(entriesMade, prometheus.GaugeValue, stamp(s.Newest))
	ch <- prometheus.MustNewConstMetric(entriesHeard, prometheus.GaugeValue, stamp(s.Heard))
	for state, n := range map[string]int{"in_force": s.Entries, "refused": s.Refused, "older": s.Older, "lacking": s.Lacks} {
		ch <- prometheus.MustNewConstMetric(entriesKnown, prometheus.GaugeValue, float64(n), state)
	}
}
