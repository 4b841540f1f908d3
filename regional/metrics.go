package regional

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// stats are the aggregator's counters.
type stats struct {
	merges, ahead, full, misshapen    atomic.Uint64
	crowded, heavy, overdrawn         atomic.Uint64
	clamped                           atomic.Uint64
	evicted, restored                 atomic.Uint64
	evictedUnexported                 atomic.Uint64
	evictedUnstored, unmet            atomic.Uint64
	cutShort                          atomic.Uint64
	toldLater, overBudget             atomic.Uint64
	storeErrors, inherited            atomic.Uint64
	framesSent, framesLost, bytesSent atomic.Uint64
	pushed, storeEpochs, badBeats     atomic.Uint64
	snapshots, takenBack              atomic.Uint64
	badAudits                         atomic.Uint64
	storeDuration                     prometheus.Histogram

	mu      sync.Mutex // guards replies
	replies map[string]int64
}

func (s *stats) stored(took time.Duration, err error) {
	if err != nil {
		s.storeErrors.Add(1)
	}
	if s.storeDuration != nil {
		s.storeDuration.Observe(took.Seconds())
	}
}

func (s *stats) heard(peer string, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replies == nil {
		s.replies = map[string]int64{}
	}
	s.replies[peer] = now
}

// lastReply is when a peer last answered.
func (s *stats) lastReply(peer string) (at int64, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, answered = s.replies[peer]
	return at, answered
}

// Stats is a reading of what the aggregator did and how it stands.
type Stats struct {
	Keys                   int
	LiveEdges, LiveRegions int
	Merges                 uint64 // cells received, since the start as all counts below
	Ahead                  uint64 // deltas with slices too far in the future
	Bytes                  int    // that the keys take
	Full                   uint64 // keys refused for want of room
	Overdrawn              uint64 // what PoPs told, or the store had of them, beyond their part of the room
	Evicted                uint64 // keys forgotten to make room, that the store has
	EvictedUnexported      uint64 // those of which some region has yet to be told; edges do when they tell all again
	EvictedUnstored        uint64 // those that made room for keys that use much of their limit while the store was away
	Restored               uint64 // keys written again as the store had shed them
	Clamped                uint64 // deltas of edges that counted, gave back or kept out more than they may
	Refused                map[string]uint64
	Muted                  int // senders that are not listened to
	OtherSecrets           int // edges with another cluster secret than most
	EdgeNamesakes          int // edges by whose name another one lives
	Duplicates             uint64
	FramesSent, FramesLost uint64
	BytesSent, Pushes      uint64
	StoreErrors, StoreLost uint64 // calls that failed; times that the store may have lost counts
	Unstored               int    // keys that the store lacks counts of
	StoreDown              bool
	ClockCorrection        time.Duration            // what is added to our clock
	ClockSteps             uint64                   // times that it was set at once
	PeerAge                map[string]time.Duration // since a peer last answered; absent: never
	Lanes, Owned           int                      // of the region; of them its own
	Members                int                      // aggregators of the region that live, this one counted
	Takeovers              uint64                   // lanes taken over from aggregators that fell silent
	Inherited              uint64                   // keys that were read from the store's list as lanes were gained
	Listening              bool                     // it started, and waits to hear whose the lanes are
	Homes                  bool                     // what is counted of a key goes to its two homes; or to all regions
	Silent                 int                      // other regions that do not answer
	Unheard                []string                 // those that have not for long, or never have
	Namesake               bool                     // another aggregator of the region has the same name
	Misfits                []Misfit                 // with other regions
}

// Stats reads the aggregator's counters.
func (a *Aggregator) Stats(now time.Time) Stats {
	s := &a.stats
	st := Stats{
		Evicted: s.evicted.Load(), EvictedUnexported: s.evictedUnexported.Load(), EvictedUnstored: s.evictedUnstored.Load(), Restored: s.restored.Load(),
		Merges: s.merges.Load(), Ahead: s.ahead.Load(), Full: s.full.Load(), Overdrawn: s.overdrawn.Load(), Clamped: s.clamped.Load(),
		Refused: a.inbox.Refused(), Muted: a.inbox.Muted(a.clock.At(now)), Duplicates: a.inbox.Duplicates(),
		FramesSent: s.framesSent.Load(), FramesLost: s.framesLost.Load(), BytesSent: s.bytesSent.Load(),
		Pushes: s.pushed.Load(), StoreErrors: s.storeErrors.Load(), StoreLost: s.storeEpochs.Load(),
		StoreDown: a.store.away.Load() > 0, PeerAge: map[string]time.Duration{},
	}
	st.ClockCorrection, st.ClockSteps = a.clock.Correction(now), a.clock.Steps()
	st.LiveEdges, st.LiveRegions = a.live(a.clock.At(now))
	st.OtherSecrets = a.inbox.OtherSecrets(a.clock.At(now))
	st.EdgeNamesakes = a.inbox.Namesakes(a.clock.At(now))
	st.Inherited = s.inherited.Load()
	st.Homes, st.Silent = a.homes.on, a.silent(a.clock.At(now))
	st.Unheard, st.Namesake = a.unheard(a.clock.At(now)), a.hasNamesake()
	st.Misfits = a.standing(a.clock.At(now))
	a.readShare(&st, a.clock.Raw(now))
	for _, l := range a.lanes {
		l.mu.Lock()
		st.Keys += len(l.counters)
		st.Bytes += l.size()
		st.Unstored += l.retry.len(nil)
		l.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for peer, at := range s.replies {
		st.PeerAge[peer] = max(0, time.Duration(a.clock.At(now)-at))
	}
	return st
}

var (
	keysDesc     = prometheus.NewDesc("spillgate_keys_tracked", "Keys that this aggregator holds in memory.", nil, nil)
	bytesDesc    = prometheus.NewDesc("spillgate_aggregator_keys_bytes", "Memory of the keys that this aggregator holds.", nil, nil)
	evictedDesc  = prometheus.NewDesc("spillgate_aggregator_evicted_keys_total", "Keys forgotten to make room, by who else has their counts: store (they are read again), region (this one alone, until edges tell all again), edges (they made room, while the store was away, for keys that use much of their limit).", []string{"known"}, nil)
	restoredDesc = prometheus.NewDesc("spillgate_aggregator_restored_keys_total", "Keys written again because the store had shed them.", nil, nil)
	edgesDesc    = prometheus.NewDesc("spillgate_live_edges", "Edges of the region heard of lately.", nil, nil)
	mergesDesc   = prometheus.NewDesc("spillgate_aggregator_merges_total", "Counts received: one is one replica, key and slice.", nil, nil)
	refusedDesc  = prometheus.NewDesc("spillgate_sync_refused_total", "Frames, or parts of them, that were refused, by reason. For want of memory: keys_full (of a key that is new here), bytes_full (of a key that is known, from an edge or region that is new to it), pop_full (of a PoP that has more than its part of the memory, while others have some too), guests_full (what a home told; it is asked again): their senders tell them again. entries_full: a key has as many starts of edges as it may, or a frame takes too long to check. growth: an edge counted, gave back or kept out more than it may.", []string{"reason"}, nil)
	mutedDesc    = prometheus.NewDesc("spillgate_sync_muted_senders", "Senders that had so many frames refused that theirs are not even read, for a minute to an hour.", nil, nil)
	secretsDesc  = prometheus.NewDesc("spillgate_sync_other_secret_edges", "Edges of the region whose secret is not that of most: they count keys of their own.", nil, nil)
	namesakeDesc = prometheus.NewDesc("spillgate_edge_namesakes", "Edges of the region by whose name another edge of their PoP lives: both spend one share.", nil, nil)
	duplicates   = prometheus.NewDesc("spillgate_sync_duplicate_frames_total", "Frames received more than once; they change nothing.", nil, nil)
	framesDesc   = prometheus.NewDesc("spillgate_sync_frames_total", "Frames sent to other regions, by what became of them.", []string{"result"}, nil)
	sentDesc     = prometheus.NewDesc("spillgate_sync_sent_bytes_total", "Bytes of frames sent to other regions.", nil, nil)
	droppedDesc  = prometheus.NewDesc("spillgate_sync_dropped_deltas_total", "Exports held back, by reason. told_later counts keys that a peer refused, or that found no room in its outbox; they are told again in full, a second later or when there is room; budget counts exports of a lane that wait for bytes.", []string{"reason"}, nil)
	pushesDesc   = prometheus.NewDesc("spillgate_sync_pushes_total", "Pushes of hot keys published.", nil, nil)
	cutDesc      = prometheus.NewDesc("spillgate_sync_replies_cut_total", "Replies that were too large for one frame; edges ask again for the rest.", nil, nil)
	redisErrDesc = prometheus.NewDesc("spillgate_aggregator_redis_errors_total", "Calls to the store that failed.", []string{"op"}, nil)
	unstoredDesc = prometheus.NewDesc("spillgate_aggregator_unstored_keys", "Keys with counts that the store lacks.", nil, nil)
	lagDesc      = prometheus.NewDesc("spillgate_sync_peer_lag_seconds", "Time since another region last answered; absent before the first answer.", []string{"region"}, nil)
	unheardDesc  = prometheus.NewDesc("spillgate_sync_peer_silent", "1 while another region has answered nothing for 15 s, or never has: it is away, or misspelt.", []string{"region"}, nil)
	aheadDesc    = prometheus.NewDesc("spillgate_clock_correction_seconds", "What this aggregator adds to the machine's clock to count by the median of all regions'. Above a second somebody should look at it.", nil, nil)
	stepsDesc    = prometheus.NewDesc("spillgate_clock_steps_total", "Times that the correction jumped, as the machine's clock was off by more than a second.", nil, nil)
	snapDesc     = prometheus.NewDesc("spillgate_sync_snapshot_parts_total", "Parts of the keys near their limit that were told to edges as they started.", nil, nil)
	takeBackDesc = prometheus.NewDesc("spillgate_aggregator_taken_back_total", "Times that another region knew more of what this one has counted for a key than was known here: its store, aggregators and edges have lost it.", nil, nil)
	ownedDesc    = prometheus.NewDesc("spillgate_aggregator_lanes_owned", "Lanes that are this aggregator's, of those that the region's aggregators share.", nil, nil)
	membersDesc  = prometheus.NewDesc("spillgate_aggregator_members", "Aggregators of the region that are known to live, this one counted.", nil, nil)
	takenDesc    = prometheus.NewDesc("spillgate_aggregator_takeovers_total", "Lanes taken over from aggregators that fell silent.", nil, nil)
	inheritDesc  = prometheus.NewDesc("spillgate_aggregator_inherited_keys_total", "Keys near their limit that were read from the store as their lanes came to this aggregator.", nil, nil)
	paceDesc     = prometheus.NewDesc("spillgate_sync_pace_seconds", "How often edges are asked to send what is not urgent, as frames take long to answer; 0: as they like.", nil, nil)
	driftDesc    = prometheus.NewDesc("spillgate_drift_ratio", "By how much of its limit this aggregator believed too little of a region, for the worst of the keys compared of late; of its own region, of what is in the store. Hits under way count. Absent while the region does not answer.", []string{"region"}, nil)
	behindDesc   = prometheus.NewDesc("spillgate_drift_hits", "Hits of a region that this aggregator did not believe yet, of the keys compared of late.", []string{"region"}, nil)
	negativeDesc = prometheus.NewDesc("spillgate_drift_negative_hits_total", "Hits that this aggregator believed of a region and the region does not know: it has lost them, as when its store was wiped, or it is a bug. Each loss counts once; of 256 keys a lane at a time.", []string{"region"}, nil)
	auditedDesc  = prometheus.NewDesc("spillgate_audited_keys_total", "Keys of which what is believed of a region was compared with what it says.", []string{"region"}, nil)
	targetsDesc  = prometheus.NewDesc("spillgate_sync_targets", "1 for the mode that is in force: mesh (all regions are told of all keys) or homes (two are, and the others hear from them).", []string{"mode"}, nil)
	overDesc     = prometheus.NewDesc("spillgate_over_admitted_hits_total", "Cost that was admitted above limits and their margins, as found when slices had closed in all regions: what a limiter that knows all at once would have denied. Of the keys that this region reports: the sum over all regions counts nothing twice.", []string{"namespace", "rule"}, nil)
	underDesc    = prometheus.NewDesc("spillgate_under_admitted_hits_total", "Cost that was asked for and not admitted, though the limit had room: an estimate, of rates that decide by shares alone, as of others it is not known what was asked for.", []string{"namespace", "rule"}, nil)
	truthDesc    = prometheus.NewDesc("spillgate_truth_windows_total", "Windows of keys near their limit that were judged after the fact, one with each slice of each key, by how they closed: complete (all regions had told of what their edges still had to tell), or incomplete (one was silent for so long that some may be missing for good).", []string{"namespace", "rule", "closed"}, nil)
	truthOver    = prometheus.NewDesc("spillgate_truth_windows_over_total", "Those of them in which more was admitted than the limit and its margins.", []string{"namespace", "rule"}, nil)
	amendedDesc  = prometheus.NewDesc("spillgate_truth_amended_slices_total", "Slices whose count rose after they had closed.", []string{"namespace", "rule"}, nil)
	causedDesc   = prometheus.NewDesc("spillgate_over_admitted_caused_hits_total", "Cost above limits by the PoP of this region that admitted it, of all keys whose truth is known here; in each slice in proportion to what was spent.", []string{"pop"}, nil)
	watchedDesc  = prometheus.NewDesc("spillgate_truth_keys", "Keys near their limit whose truth is being told.", nil, nil)
	unwatchDesc  = prometheus.NewDesc("spillgate_truth_unwatched_total", "Times that a key near its limit found no room for its truth, about once a second each.", nil, nil)
	unnamedDesc  = prometheus.NewDesc("spillgate_truth_unknown_rates", "Rates that edges counted by of late and this aggregator's rules do not have: it has others than the edges, or none.", nil, nil)
	tellersDesc  = prometheus.NewDesc("spillgate_told_edges", "Edges of the region that said within the last minute what they decided.", nil, nil)
	untakenDesc  = prometheus.NewDesc("spillgate_told_refused_total", "Times that what an edge says that it decided was not taken, by reason: malformed, muted (it sent too much of that), older (another by its name started later), room, sender.", []string{"reason"}, nil)
	degradedDesc = prometheus.NewDesc("spillgate_degraded", "1 while this aggregator works with less than it should, by reason. region_lanes, region_secret and region_peers: another region does not fit together with this one in that setting (region_peers also where it does not name this one: strict limits drawn to this region are not granted then); log and /readyz?verbose name it.", []string{"reason"}, nil)
)

// HomesAway says that there are keys both of whose homes do not answer: of what
// others count of them, this region hears only what takes them near their limit.
func (s *Stats) HomesAway() bool { return s.Homes && s.Silent >= 2 }

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// collector reads the aggregator's stats when it is scraped.
type collector struct{ aggregator *Aggregator }

func newCollector(a *Aggregator) *collector {
	a.stats.storeDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "spillgate_aggregator_merge_duration_seconds",
		Help:    "Time to merge a frame's keys into the store.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 14),
	})
	return &collector{a}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.aggregator.Stats(time.Now())
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(keysDesc, float64(st.Keys))
	gauge(bytesDesc, float64(st.Bytes))
	count(evictedDesc, st.Evicted, "store")
	count(evictedDesc, st.EvictedUnexported, "region")
	count(evictedDesc, st.EvictedUnstored, "edges")
	count(restoredDesc, st.Restored)
	gauge(mutedDesc, float64(st.Muted))
	gauge(secretsDesc, float64(st.OtherSecrets))
	gauge(namesakeDesc, float64(st.EdgeNamesakes))
	gauge(edgesDesc, float64(st.LiveEdges))
	gauge(unstoredDesc, float64(st.Unstored))
	gauge(paceDesc, c.aggregator.pace.asked().Seconds())
	gauge(aheadDesc, st.ClockCorrection.Seconds())
	count(stepsDesc, st.ClockSteps)
	count(mergesDesc, st.Merges)
	if c.aggregator.rights != nil {
		c.rights(c.aggregator.rights.Stats(), c.aggregator.rights.Withheld(), gauge, count)
	}
	for reason, n := range st.Refused {
		count(refusedDesc, n, reason)
	}
	count(refusedDesc, st.Ahead, "slice_ahead")
	count(refusedDesc, st.Full, "keys_full")
	count(refusedDesc, st.Clamped, "growth")
	count(refusedDesc, c.aggregator.stats.crowded.Load(), "entries_full")
	count(refusedDesc, c.aggregator.stats.heavy.Load(), "bytes_full")
	count(refusedDesc, st.Overdrawn, "pop_full")
	count(refusedDesc, c.aggregator.stats.unmet.Load(), "guests_full")
	count(refusedDesc, c.aggregator.stats.misshapen.Load(), "shape")
	count(duplicates, st.Duplicates)
	count(framesDesc, st.FramesSent, "sent")
	count(framesDesc, st.FramesLost, "lost")
	count(sentDesc, st.BytesSent)
	count(droppedDesc, c.aggregator.stats.toldLater.Load(), "told_later")
	count(droppedDesc, c.aggregator.stats.overBudget.Load(), "budget")
	count(pushesDesc, st.Pushes)
	gauge(ownedDesc, float64(st.Owned))
	gauge(membersDesc, float64(st.Members))
	count(takenDesc, st.Takeovers)
	count(takeBackDesc, c.aggregator.stats.takenBack.Load())
	count(inheritDesc, st.Inherited)
	count(refusedDesc, c.aggregator.stats.badBeats.Load(), "beat")
	count(refusedDesc, c.aggregator.stats.badAudits.Load(), "audit")
	count(snapDesc, c.aggregator.stats.snapshots.Load())
	count(cutDesc, c.aggregator.stats.cutShort.Load())
	count(redisErrDesc, st.StoreErrors, "merge")
	for _, peer := range c.aggregator.cfg.Peers {
		gauge(unheardDesc, one(slices.Contains(st.Unheard, peer)), peer)
	}
	gauge(degradedDesc, one(st.Namesake), "same_name")
	for _, s := range settings {
		gauge(degradedDesc, one(slices.ContainsFunc(st.Misfits, func(m Misfit) bool { return m.Setting == s })), string(s))
	}
	for peer, age := range st.PeerAge {
		gauge(lagDesc, age.Seconds(), peer)
	}
	gauge(degradedDesc, one(st.StoreDown), "store_down")
	gauge(degradedDesc, one(st.HomesAway()), "homes_away")
	for _, d := range c.aggregator.Drift(time.Now()) {
		count(auditedDesc, d.Compared, d.Region)
		count(negativeDesc, d.Ahead, d.Region)
		if !d.Audited.IsZero() {
			gauge(driftDesc, d.Ratio, d.Region)
			gauge(behindDesc, float64(d.Behind), d.Region)
		}
	}
	c.collectTruth(gauge, count)
	tellers, refused := c.aggregator.decided.tellers(time.Now())
	gauge(tellersDesc, float64(tellers))
	for _, reason := range toldReasons {
		count(untakenDesc, refused[reason.Error()], reason.Error())
	}
	gauge(targetsDesc, one(!st.Homes), "mesh")
	gauge(targetsDesc, one(st.Homes), "homes")
	c.aggregator.stats.storeDuration.Collect(ch)
}

// collectTruth sums the truth of a rule's rates, and of all rules what PoPs caused.
func (c *collector) collectTruth(gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	if !c.aggregator.HasRules() {
		return
	}
	type rule struct{ namespace, name string }
	var rules []rule
	sums, under, pops, keys := map[rule]*Sums{}, map[rule]bool{}, map[string]float64{}, 0
	for _, r := range c.aggregator.Truth("", "") {
		name := rule{r.Namespace, r.Rule}
		if !r.Judged { // 0 would be a claim
			continue
		}
		if sums[name] == nil {
			sums[name], rules = &Sums{}, append(rules, name)
		}
		sums[name].add(&r.Reported)
		under[name] = under[name] || r.Reported.Known > 0
		keys += r.Keys
		for _, p := range r.PoPs {
			pops[p.Name] += p.Hits
		}
	}
	for _, name := range rules {
		s := sums[name]
		count(overDesc, s.Hits, name.namespace, name.name)
		count(truthDesc, s.Windows-s.Incomplete, name.namespace, name.name, "complete")
		count(truthDesc, s.Incomplete, name.namespace, name.name, "incomplete")
		count(truthOver, s.Over, name.namespace, name.name)
		count(amendedDesc, s.Amended, name.namespace, name.name)
		if under[name] {
			count(underDesc, s.Under, name.namespace, name.name)
		}
	}
	for pop, hits := range pops {
		count(causedDesc, uint64(hits), cmp.Or(pop, others))
	}
	gauge(watchedDesc, float64(keys))
	gauge(unnamedDesc, float64(c.aggregator.UnknownRates(time.Now())))
	count(unwatchDesc, c.aggregator.tallies.unwatched.Load())
}
