package edge

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillgate/spillgate/sync"
)

// stats are the node's counters. They are atomics beside the ledger, so that
// metrics cost a decision nothing; decisions themselves are counted by the
// surface that asked for them.
type stats struct {
	evicted, evictedUnsent                       atomic.Uint64
	outboxFull, overBudget, unencodable          atomic.Uint64
	framesSent, framesLost, bytesSent            atomic.Uint64
	badReplies, badPushes, lateReplies, refusals atomic.Uint64
	otherVersion                                 atomic.Uint64 // frames
	pushes, resends, foreign                     atomic.Uint64
	lastReply                                    atomic.Int64 // ns since 1970
	lastRefusal                                  atomic.Int64 // ns since 1970
	lastStatus                                   atomic.Uint32
}

func (s *stats) replied(now int64, status deltasync.Status) {
	s.lastReply.Store(now)
	s.lastStatus.Store(uint32(status))
}

func (s *stats) refused(now int64, status deltasync.Status) {
	s.refusals.Add(1)
	s.lastRefusal.Store(now)
	s.lastStatus.Store(uint32(status))
}

// Stats is a reading of what the node did and how it stands.
type Stats struct {
	Keys        int
	Outbox      int    // deltas that wait or are in flight
	FramesSent  uint64 // since the start, as all counts below
	FramesLost  uint64
	BytesSent   uint64
	BadReplies  uint64 // and pushes
	Foreign     uint64 // replies and pushes of other regions, which are dropped
	Refused     uint64 // frames that the aggregator would not have
	Evicted     uint64 // keys forgotten to make room, their counts known elsewhere
	EvictedLost uint64 // keys forgotten with counts that nobody else had yet
	Blocked     int    // keys that are not live here and stay limited until they may be
	BlockedIn16 int    // those of them that are known by 16 bits only, or were until of late
	BlockedLost uint64 // keys that should be, and for which there was no room
	Resends     uint64 // times that everything live was sent again
	Pushes      uint64
	Snapshot    uint64        // keys that the region told as the node started
	SnapshotIn  time.Duration // how long that took; 0: not all are there

	ViewAge         time.Duration // since the last reply; -1: there was none
	ClockOffset     time.Duration // of the region's aggregators against ours
	ClockCorrection time.Duration // what is added to ours
	ClockSteps      uint64        // times that it was set at once
	Status          deltasync.Status
}

// Stats reads the node's counters.
func (n *Node) Stats(now time.Time) Stats {
	st := Stats{
		Keys:       n.Keys(),
		FramesSent: n.stats.framesSent.Load(), FramesLost: n.stats.framesLost.Load(), BytesSent: n.stats.bytesSent.Load(),
		BadReplies: n.stats.badReplies.Load() + n.stats.badPushes.Load() + n.stats.otherVersion.Load(), Foreign: n.stats.foreign.Load(), Refused: n.stats.refusals.Load(),
		Evicted: n.stats.evicted.Load(), EvictedLost: n.stats.evictedUnsent.Load(),
		Resends: n.stats.resends.Load(), Pushes: n.stats.pushes.Load(),
		ViewAge: -1, Status: deltasync.Status(n.stats.lastStatus.Load()),
	}
	if last := n.stats.lastReply.Load(); last != 0 && last <= n.clock.At(now)+int64(maxAhead) {
		st.ViewAge = max(0, time.Duration(n.clock.At(now)-last))
	}
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		table, filter := s.blocked.count(n.clock.At(now))
		st.Blocked += table + filter
		st.BlockedIn16 += filter
		st.BlockedLost += s.blocked.filter.full
		s.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	st.Snapshot, st.SnapshotIn = n.snapshot.keys, n.snapshot.took
	for _, box := range n.outboxes {
		st.Outbox += box.Held()
	}
	st.ClockOffset, _ = n.clock.Offset(now)
	st.ClockCorrection, st.ClockSteps = n.clock.Correction(now), n.clock.Steps()
	return st
}

// Degraded says why decisions rest on less than they should: "" when they do
// not, else "sync" (nobody answered for ten intervals, at least a second), what
// the region sees wrong in our settings ("lanes" or "secret"), or the status that
// it answers with. A refusal is an answer: to look for
// a broken network then would be to look in the wrong place.
func (n *Node) Degraded(now time.Time) string {
	status, mistake := deltasync.Status(n.stats.lastStatus.Load()), n.mistake()
	switch {
	case !n.answered(n.clock.At(now)):
		return "sync"
	case mistake != 0:
		return mistake.String()
	case status != deltasync.StatusOK:
		return status.String()
	}
	return ""
}

// answered says that the region answered of late.
func (n *Node) answered(now int64) bool {
	last := max(n.stats.lastReply.Load(), n.stats.lastRefusal.Load())
	return last != 0 && now-last <= int64(max(time.Second, 10*n.cfg.Interval))
}

// degradations are the reasons that Degraded may give, each a series.
var degradations = []string{
	"sync", deltasync.MistakeLanes.String(), deltasync.MistakeSecret.String(), deltasync.StatusNotOwner.String(), deltasync.StatusClock.String(), deltasync.StatusOverloaded.String(),
	deltasync.StatusStoreDown.String(), deltasync.StatusUnsupported.String(), deltasync.StatusForbidden.String(),
}

// metrics reads the node's stats when it is scraped.
type metrics struct{ node *Node }

func newMetrics(reg prometheus.Registerer, n *Node) (*metrics, error) {
	m := &metrics{node: n}
	if reg == nil {
		return m, nil
	}
	if err := reg.Register(m); err != nil {
		return nil, fmt.Errorf(`Registerer: %w; give each node one of its own, such as prometheus.WrapRegistererWith(prometheus.Labels{"node": "a"}, registerer)`, err)
	}
	return m, nil
}

var (
	keysDesc     = prometheus.NewDesc("spillgate_keys_tracked", "Live keys in the ledger of this edge.", nil, nil)
	evictedDesc  = prometheus.NewDesc("spillgate_keys_evicted_total", "Keys forgotten to make room: acked, when others hold their counts; unsent, when some counts were lost.", []string{"reason"}, nil)
	blockedDesc  = prometheus.NewDesc("spillgate_keys_blocked", "Keys that had 80 % of their limit used or more when they were forgotten, or when the region pushed them, and stay limited: exact, with what each had left; filter, by 16 bits each.", []string{"in"}, nil)
	unblocked    = prometheus.NewDesc("spillgate_keys_blocked_lost_total", "Keys that should stay limited though they were forgotten, and for which there was no room.", nil, nil)
	outboxDesc   = prometheus.NewDesc("spillgate_sync_outbox_deltas", "Keys whose counts wait to be sent or acknowledged.", nil, nil)
	droppedDesc  = prometheus.NewDesc("spillgate_sync_dropped_deltas_total", "Deltas held back or dropped, by reason. outbox_full and budget count flushes that wait in the ledger for room in the outbox, or for bytes, and lose nothing.", []string{"reason"}, nil)
	sentDesc     = prometheus.NewDesc("spillgate_sync_sent_bytes_total", "Bytes of frames sent to the region's aggregators.", nil, nil)
	framesDesc   = prometheus.NewDesc("spillgate_sync_frames_total", "Frames sent, by what became of them.", []string{"result"}, nil)
	viewAgeDesc  = prometheus.NewDesc("spillgate_view_age_seconds", "Time since the region last answered this edge; -1 before the first answer.", nil, nil)
	degradedDesc = prometheus.NewDesc("spillgate_degraded", "1 while decisions rest on less than they should, by reason.", []string{"reason"}, nil)
	foreignDesc  = prometheus.NewDesc("spillgate_sync_foreign_total", "Replies and pushes of another region than this edge's, which were dropped.", nil, nil)
	offsetDesc   = prometheus.NewDesc("spillgate_clock_offset_seconds", "Clock of the region's aggregators less the clock of this machine. Above a second somebody should look at it.", nil, nil)
	aheadDesc    = prometheus.NewDesc("spillgate_clock_correction_seconds", "What this edge adds to the machine's clock to count by the region's.", nil, nil)
	stepsDesc    = prometheus.NewDesc("spillgate_clock_steps_total", "Times that the correction jumped, as the machine's clock was off by more than a second.", nil, nil)
	unreadDesc   = prometheus.NewDesc("spillgate_sync_unread_total", "Frames of aggregators that could not be read, or say what cannot be, and were dropped: of another version, or replies and pushes that are malformed.", []string{"reason"}, nil)
	pushesDesc   = prometheus.NewDesc("spillgate_sync_pushes_total", "Pushes of hot keys received.", nil, nil)
	snapshotDesc = prometheus.NewDesc("spillgate_sync_snapshot_keys", "Keys near their limit that the region told this edge as it started.", nil, nil)
	snapTimeDesc = prometheus.NewDesc("spillgate_sync_snapshot_seconds", "How long it took until the region had told this edge, as it started, what is near its limit; absent until it has.", nil, nil)
	failedDesc   = prometheus.NewDesc("spillgate_condition_failures_total", "Times that the condition of a rule could not be evaluated, be it for text that is no number; the rule did not apply then. It starts again with each set of rules.", nil, nil)
	triedDesc    = prometheus.NewDesc("spillgate_candidate_decisions_total", "Requests that a rule with a candidate was asked about, by what its own limits say of them and what the candidate's do: allow or deny. It starts again with each set of rules.", []string{"namespace", "rule", "live", "candidate"}, nil)
	boundDesc    = prometheus.NewDesc("spillgate_error_bound_ratio", "How far limits of the rule may be exceeded, by all edges together, with a chance of 99.9 %: the largest part of its limit of any key that was past half of it in the last 15 to 30 s, or of a sample where they are many; 0 where none was, and no series of a limit that descriptors bring; nor, until the region has told this edge how many others there are, of one that is not strict: see spillgate_view_age_seconds.", []string{"namespace", "rule"}, nil)
	surgeDesc    = prometheus.NewDesc("spillgate_error_bound_surge_ratio", "What spillgate_error_bound_ratio could come to if from now on as many times the limit as the rule's surge says was asked for everywhere: error_bound_surge, as a part of the limit, of the same keys.", []string{"namespace", "rule"}, nil)
	waitsDesc    = prometheus.NewDesc("spillgate_strict_waits_total", "Requests that waited for an edge's first rights in a strict limit (strict_wait), by what became of them: passed, denied, gone (the client was, before), full (too many waited, so it was denied at once).", []string{"result"}, nil)
	waitingDesc  = prometheus.NewDesc("spillgate_strict_waiting_requests", "Requests that wait for an edge's first rights in a strict limit.", nil, nil)
	unnotedDesc  = prometheus.NewDesc("spillgate_loans_unnoted_total", "Requests that borrowed of a rule's parent, beyond what this edge has room to note: what they borrowed is given back when they give it back themselves, and not as soon as the rule has room of its own.", nil, nil)
	resendsDesc  = prometheus.NewDesc("spillgate_sync_resends_total", "Times that all live counts were sent again because the region may have lost them: its store was new, or an aggregator fell silent or has some in memory alone.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	st := m.node.Stats(now)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(keysDesc, float64(st.Keys))
	gauge(outboxDesc, float64(st.Outbox))
	gauge(viewAgeDesc, seconds(st.ViewAge))
	gauge(offsetDesc, st.ClockOffset.Seconds())
	gauge(aheadDesc, st.ClockCorrection.Seconds())
	count(stepsDesc, st.ClockSteps)
	gauge(blockedDesc, float64(st.Blocked-st.BlockedIn16), "exact")
	gauge(blockedDesc, float64(st.BlockedIn16), "filter")
	count(unblocked, st.BlockedLost)
	count(evictedDesc, st.Evicted, "acked")
	count(evictedDesc, st.EvictedLost, "unsent")
	count(droppedDesc, m.node.stats.outboxFull.Load(), "outbox_full")
	count(droppedDesc, m.node.stats.overBudget.Load(), "budget")
	count(droppedDesc, m.node.stats.unencodable.Load(), "unencodable")
	count(sentDesc, st.BytesSent)
	count(framesDesc, st.FramesSent, "sent")
	count(framesDesc, st.FramesLost, "lost")
	count(framesDesc, st.Refused, "refused")
	count(framesDesc, m.node.stats.lateReplies.Load(), "late")
	count(unreadDesc, m.node.stats.otherVersion.Load(), "version")
	count(unreadDesc, m.node.stats.badReplies.Load(), "reply")
	count(unreadDesc, m.node.stats.badPushes.Load(), "push")
	count(pushesDesc, st.Pushes)
	gauge(snapshotDesc, float64(st.Snapshot))
	if st.SnapshotIn > 0 {
		gauge(snapTimeDesc, st.SnapshotIn.Seconds())
	}
	count(foreignDesc, st.Foreign)
	count(resendsDesc, st.Resends)
	queue := &m.node.cluster.escrow.queue
	gauge(waitingDesc, float64(queue.waits()))
	count(waitsDesc, queue.served.Load(), "passed")
	count(waitsDesc, queue.vain.Load(), "denied")
	count(waitsDesc, queue.gone.Load(), "gone")
	count(waitsDesc, queue.full.Load(), "full")
	count(unnotedDesc, m.node.loans.unnoted.Load())
	count(failedDesc, m.node.conditionFailures())
	for _, r := range m.node.Rules().Rules() {
		if r.Candidate == nil {
			continue
		}
		for live, of := range r.Trials() {
			for candidate, times := range of {
				count(triedDesc, times, r.Namespace, r.Name, verdicts[live], verdicts[candidate])
			}
		}
	}
	for _, b := range m.node.boundsByRule(m.node.clock.At(now)) {
		gauge(boundDesc, b.now, b.namespace, b.rule)
		gauge(surgeDesc, b.surge, b.namespace, b.rule)
	}
	current := m.node.Degraded(now)
	for _, reason := range degradations {
		v := 0.0
		if reason == current {
			v = 1
		}
		gauge(degradedDesc, v, reason)
	}
}

// verdicts are what limits say of a request: that it is admitted, or denied.
var verdicts = [2]string{"allow", "deny"}

// conditionFailures sums over the rules in force.
func (n *Node) conditionFailures() (sum uint64) {
	set := n.Rules()
	if set == nil {
		return 0
	}
	for _, r := range set.Rules() {
		sum += r.Failures()
	}
	return sum
}

func seconds(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return d.Seconds()
}

// unread counts a frame that could not be read: as one of another version, or as malformed.
func (s *stats) unread(err error, malformed *atomic.Uint64) {
	if _, other := errors.AsType[*deltasync.VersionError](err); other {
		malformed = &s.otherVersion
	}
	malformed.Add(1)
}
