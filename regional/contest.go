package regional

import (
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// contest is what is known of who asks for how much of a key whose edges decide by
// their shares of what is left (SRB; design.md §2.4). Regions tell each other what is
// asked for in each of them, and share by that: a region's part falls at once, and
// rises when the others can know. So all parts together are never more than the whole.
type contest struct {
	edges     []asker
	regions   []regionDemand // by place in Config.Peers, as they told
	told      float64        // that this region publishes
	weight    float64        // that it is weighed by, which follows from that
	window    float64        // that it told last
	spent     spent          // by the region's edges, since the contest began
	sums      sums
	exports   [exportsKept]export
	past      [pastWeighed]pastWeights // of all regions, the latest first
	own       float64                  // what this one was weighed by once all its edges had told; 0: they have not
	heard     int64                    // when somebody last told what is asked for
	born      int64                    // when somebody first did, here
	taken     bool                     // that was soon after the lane was taken over: elsewhere it is known for longer
	sought    int64                    // counter.asked, when edges were last looked for that are cut off: see absent.go
	part      float64                  // of the limit, that the region's edges were last told to share; 0: none were
	kept      float64                  // cost of the limit that is kept for edges that are silent, at keptAt
	keptAt    int64
	keptSpent float64 // what those have spent of it
	telling   kept    // what of that the other regions were told
	began     int64   // the window, as edges told, where it counts nothing from before; 0: it slides, or none told
	beganAt   int64   // when they last did
	place     int     // in lane.contests
	pop       uint64  // whose edge began it; nobody: another region told of it
	payers    []owned // the PoPs of its edges, as lane.bill counted them
	changed   int64   // when a region last had another part, as it was cut off, or is not any more; 0: none was
	noted     int64   // changed, when that was last put on the store's list, at notedAt; see bequest.go
	notedAt   int64
	will      string // that the key was last listed with
	willed    bool   // the store may have that regions have another part than of a key that is new
}

// spent is what was charged, and what of that was given back.
type spent struct{ charges, refunds uint64 }

func (s *spent) add(c crdt.Cell) {
	s.charges, s.refunds = crdt.SatAdd(s.charges, c.Charges), crdt.SatAdd(s.refunds, c.Refunds)
}

// since is the net cost since then.
func (s spent) since(then spent) uint64 {
	return crdt.SatSub(crdt.SatSub(s.charges, then.charges), crdt.SatSub(s.refunds, then.refunds))
}

// sums is what the edges' demand came to at some time: see contest.sum.
type sums struct {
	all    limit.Demand
	steady float64
	at     int64
}

// bytes is about the memory that it takes.
func (t *contest) bytes() int {
	return int(unsafe.Sizeof(contest{})) + cap(t.edges)*int(unsafe.Sizeof(asker{})) + cap(t.regions)*int(unsafe.Sizeof(regionDemand{})) + cap(t.payers)*int(unsafe.Sizeof(owned{}))
}

// kept is what was kept, as told at some time.
type kept struct {
	cost  float64
	spent float64 // beside, of the parts that it is of
	at    int64
}

// asker is an edge's demand, as it told it last.
type asker struct {
	node   uint64
	demand limit.Demand
	at     int64
	edge   *presence // nil: it is not known when the edge was heard of
	life   uint64    // its incarnation
	silent bool      // so it counts for nothing: see silent.go
	part   float64   // of the limit, that it had when it fell silent
	fair   float64   // that each edge would have
}

// export is what the other regions were told at some time.
type export struct {
	at     int64
	spent  spent   // contest.spent by then
	weight float64 // contest.weight by then
}

const (
	// exportsKept is how many exports are remembered: urgent ones leave every 20 ms.
	exportsKept = 16
	// forgetContest is how long after the last demand of an edge a contest is kept.
	forgetContest = 10 * time.Second
	// mostAskers bounds the edges of a contest; the one heard of longest ago makes way.
	mostAskers = 4096
	// fewAskers are added up at any time, more not oftener than every perAsker for each.
	fewAskers = 64
	perAsker  = 5 * time.Microsecond
	// longestAwaited is how much longer a lane is learnt at the most, until all regions
	// that are known have answered or are overdue.
	longestAwaited = 2 * time.Second
	// republished is how many contests a lane looks at in an interval.
	republished = 4096
)

// contested is the counter's contest, made when an edge first tells its demand.
func (l *lane) contested(key deltasync.Key, c *counter, unseen, now int64) *contest {
	if c.contest == nil {
		c.contest = &contest{regions: make([]regionDemand, len(l.peers)), past: [pastWeighed]pastWeights{{at: now}}, born: now, taken: l.served == 0 || now-l.served < int64(youngFor)}
		for _, cell := range c.edges.Sums().From(sliceAt(c.shape, now-unseen), nil) { // the others may not know it yet
			c.contest.spent.add(cell)
		}
		c.contest.exports[exportsKept-1] = export{at: now - unseen}
		c.contest.place = len(l.contests)
		l.lacks = l.lacks || c.contest.taken
		l.contests = append(l.contests, key)
	}
	return c.contest
}

// knows says that an edge has told its demand.
func (t *contest) knows(node uint64) bool {
	return slices.ContainsFunc(t.edges, func(a asker) bool { return a.node == node })
}

// asks takes in the demand of an edge, that is there, and says whether it is a new one.
func (t *contest) asks(node uint64, edge *presence, d *deltasync.Demand, now int64) (fresh bool) {
	t.heard = now
	switch {
	case d.Since > 0:
		began := now - int64(min(float64(d.Since)*1e9, float64(limit.MaxWindow)))
		t.began, t.beganAt = max(min(t.began, now), began), now
	case passed(t.beganAt, now, int64(forgetContest)): // edges of the build before do not tell
		t.began = 0
	}
	told := limit.Demand{Fast: float64(d.Fast), Mid: float64(d.Mid), Slow: float64(d.Slow), Window: float64(d.Window)}
	i := slices.IndexFunc(t.edges, func(a asker) bool { return a.node == node })
	asks := asker{node: node, demand: told, at: now, edge: edge}
	if edge != nil {
		asks.life = edge.incarnation
	}
	switch {
	case i >= 0:
		t.edges[i] = asks
	case len(t.edges) < mostAskers:
		t.edges = append(t.edges, asks)
	default:
		oldest := 0
		for j := range t.edges {
			if t.edges[j].at < t.edges[oldest].at {
				oldest = j
			}
		}
		t.edges[oldest] = asks
	}
	return i < 0
}

// sumOf is the sum of what a contest's edges are weighed by.
func (a *Aggregator) sumOf(c *counter, now int64) float64 {
	_, steady := c.contest.sum(limit.SpansOf(c.shape.Window()), paceOf(c.shape), a.patience(), now)
	return steady
}

// sum is the demand of all edges, and the sum of what they are weighed by. Who has
// said nothing of the key for longer than patience has had nothing to say since, while
// he is heard of. Of many edges it
// is as of a moment ago: each of them asks for it in each frame, and to add them all up
// anew each time would take as long as the square of their number.
func (t *contest) sum(s limit.Spans, pace float64, patience time.Duration, now int64) (all limit.Demand, steady float64) {
	moment := int64(len(t.edges)-fewAskers) * int64(perAsker)
	if age := now - t.sums.at; age >= 0 && age < moment {
		return t.sums.all, t.sums.steady
	}
	for i := range t.edges {
		if t.edges[i].silent {
			continue
		}
		d := t.edges[i].since(s, pace, patience, now)
		steady += d.Steady(s)
		all.Fast, all.Mid, all.Slow, all.Window = all.Fast+d.Fast, all.Mid+d.Mid, all.Slow+d.Slow, all.Window+d.Window
	}
	t.sums = sums{atMost(all, mostDemand), min(steady, mostDemand), now}
	return t.sums.all, t.sums.steady
}

// since is the asker's demand by now. No more is believed than can matter: what a hostile
// edge told once would take long to fade, and all who are asked for that much share alike,
// whether they spoke a moment ago or not.
func (e *asker) since(s limit.Spans, pace float64, patience time.Duration, now int64) limit.Demand {
	if e.claims() && !e.silent {
		now = min(now, e.edge.at+int64(patience))
	}
	d := atMost(e.demand, mostPace*pace)
	if silence := time.Duration(now-e.at) - patience; silence > 0 {
		return d.Faded(s, silence)
	}
	return d
}

// prune forgets edges that have long said nothing: what they asked for counts for
// nothing any more, as with those that are gone for good. It says whether there were any.
func (t *contest) prune(s limit.Spans, pace float64, patience time.Duration, now int64) (some bool) {
	before := len(t.edges)
	least := pace / 1000 / float64(max(1, len(t.edges)))
	t.heard = min(t.heard, now)
	for i := range t.edges { // or who went would be there as long as the clock was set back
		t.edges[i].at = min(t.edges[i].at, now)
	}
	t.edges = slices.DeleteFunc(t.edges, func(e asker) bool {
		if now-e.at <= int64(forgetContest) || e.silent && now-e.at <= int64(KeepFair) {
			return false
		}
		d := e.since(s, pace, patience, now)
		return max(d.Fast, d.Mid, d.Slow, d.Window) < least
	})
	return len(t.edges) < before
}

func atMost(d limit.Demand, most float64) limit.Demand {
	return limit.Demand{Fast: min(d.Fast, most), Mid: min(d.Mid, most), Slow: min(d.Slow, most), Window: min(d.Window, most)}
}

const (
	// mostDemand is the most that a frame can tell: edges may tell so much each.
	mostDemand = 1 << 64
	// mostPace is how many times its limit is asked for at one edge, at the most that
	// counts.
	mostPace = 1024
)

// exported notes that the other regions are told.
func (t *contest) exported(now int64) {
	last := &t.exports[exportsKept-1]
	if last.at != now {
		copy(t.exports[:], t.exports[1:])
	}
	*last = export{now, t.spent, t.weight}
}

// seen is what the other regions were told at an instant at the latest.
func (t *contest) seen(at int64) export {
	for i := exportsKept - 1; i > 0; i-- {
		if e := t.exports[i]; e.at <= at || t.exports[i-1].at == 0 {
			return e
		}
	}
	return t.exports[0]
}

// paceOf is the cost a second that a shape's limit comes to.
func paceOf(s deltasync.Shape) float64 { return float64(s.Limit) / s.Window().Seconds() }

// learns says that the lane has not been served here for long: not all edges and
// regions have told what is asked for.
func (a *Aggregator) learns(l *lane, now int64) bool {
	if l.learnt == 0 {
		way := a.between(now)
		if way == 0 && len(l.peers) > 0 {
			way = a.cfg.Interval
		}
		l.learnt, l.learned = now+int64(a.cfg.Interval+way*13/10+30*time.Millisecond), false
	}
	switch late := now - l.learnt; {
	case late < 0:
		return -late < int64(time.Minute) // or a clock was set back
	case l.learned:
		return false
	case late < int64(longestAwaited) && a.awaits(now):
		return true
	}
	l.learned = true
	return false
}

// weighed is what a region is weighed by that publishes told, and asked slow over a
// long time: where it was asked for lately, some will be asked for again.
func weighed(told, slow, pace float64) float64 { return told + min(slow, pace/2)/2 }

// patience is how long an edge that is asked may say nothing.
func (a *Aggregator) patience() time.Duration { return 2 * a.cfg.Interval }

// republish looks anew at what the region publishes of a key, and says whether that
// changed.
func (a *Aggregator) republish(c *counter, now int64) bool {
	t, s := c.contest, limit.SpansOf(c.shape.Window())
	a.keep(c, now)
	all, _ := t.sum(s, paceOf(c.shape), a.patience(), now)
	told := all.Publish(s, t.told)
	changed := told != t.told || t.keptChanged(c.shape.Limit, now) || math.Abs(all.Window-t.window) > max(t.window/4, paceOf(c.shape)/100)
	t.told, t.weight = told, weighed(told, all.Slow, paceOf(c.shape))
	return changed
}

// republishAll is republish of the lane's contests, of so many at once; it forgets those
// that are over.
func (a *Aggregator) republishAll(l *lane, now int64) {
	silent := a.aside(now)
	for range min(len(l.contests), republished) {
		if l.contestHand >= len(l.contests) {
			l.contestHand = 0
		}
		key := l.contests[l.contestHand]
		c := l.counters[key]
		a.noteWeights(c, now)
		a.freeze(c, silent, now)
		if a.renote(l, key, c, now); c.contest.over(now, len(l.contests)) {
			l.strike(c)
			l.weigh(c)
			continue
		}
		if c.contest.prune(limit.SpansOf(c.shape.Window()), paceOf(c.shape), a.patience(), now) {
			l.bill(c.contest)
		}
		a.findAbsent(l, c, now)
		if a.republish(c, now) {
			a.exportTo(l, key, c, nothing, 0, a.homes.all, now)
		}
		l.contestHand++
	}
}

// strike ends the contest of a counter, if it has one: the last of the lane's takes its
// place.
func (l *lane) strike(c *counter) {
	if c.contest == nil {
		return
	}
	l.unbill(c.contest)
	place, last := c.contest.place, len(l.contests)-1
	key := l.contests[last]
	l.counters[key].contest.place = place
	l.contests[place] = key
	l.contests = l.contests[:last]
	c.contest = nil
}

// demand is what the region tells the others of what is asked for; nil: nothing. Who has
// given the lane away hears of that no more: what he knows fades, and who has it is silent.
func (a *Aggregator) demand(key deltasync.Key, c *counter, now int64) *deltasync.Demand {
	if c.contest == nil || c.contest.heard == 0 || !a.Owns(key.Lane(len(a.lanes))) {
		return nil
	}
	if c.contest.taken && c.asked == 0 && now-c.contest.born < 4*int64(a.cfg.Interval) {
		return nil // it is not known yet what is kept
	}
	a.findAbsent(a.lanes[key.Lane(len(a.lanes))], c, now)
	a.keep(c, now)
	all, _ := c.contest.sum(limit.SpansOf(c.shape.Window()), paceOf(c.shape), a.patience(), now)
	c.contest.window, c.contest.telling = all.Window, kept{c.contest.kept, c.contest.keptSpent, now}
	return &deltasync.Demand{Mid: float32(c.contest.told), Slow: float32(all.Slow), Window: float32(all.Window), Kept: float32(c.contest.kept), KeptSpent: float32(c.contest.keptSpent)}
}

// shareOf is what edges are told for their shares; nil where none of them asks.
func (a *Aggregator) shareOf(l *lane, c *counter, now int64) *deltasync.Share {
	t := c.contest
	if t == nil || c.shape.Limit == 0 || a.learns(l, now) {
		return nil
	}
	s, pace := limit.SpansOf(c.shape.Window()), paceOf(c.shape)
	a.findAbsent(l, c, now)
	a.keep(c, now)
	all, steady := t.sum(s, pace, a.patience(), now)
	out := &deltasync.Share{Omega: 1, Sum: float32(steady), Demand: float32(t.told), Window: float32(all.Window)}
	if c.shape.Regional || len(l.peers) == 0 {
		return t.keeping(out, t.kept, t.keptSpent, c.shape.Limit)
	}
	seen := t.seen(now - a.unseen(now))
	own := min(t.weight, seen.weight)
	a.freeze(c, a.aside(now), now)
	least, others := a.least(c), 0.0
	less, gone, alone := t.kept, t.keptSpent, 0
	for j := range t.regions {
		r := &t.regions[j]
		if r.frozen == 0 {
			others += r.weight(c.shape, now) + least
			less += r.keeps(float64(r.Kept), now)
			out.Demand += r.Mid
			out.Window += float32(limit.Relaxed(float64(r.Window), float64(r.Mid), c.shape.Window(), time.Duration(now-r.at)))
			continue
		}
		alone++
		part, spent := r.frozen*float64(c.shape.Limit), 0.0 // a bucket drains: edges see to what is left of its part; see edge/aside.go
		if !c.shape.Bucket() {
			spent = min(part, float64(c.spentBy(a.nodes[j], now)))
		}
		less, gone = less+part-spent, gone+spent
	}
	if alone == len(t.regions) {
		out.Omega = 1
	} else {
		out.Omega = float32((own + least) / (own + least + others))
		out.Unseen = t.spent.since(seen.spent)
	}
	out.Doubt = a.doubt(l, c) + uint64(math.Ceil(a.blind(c, now)))
	out.Demand, out.Window = min(out.Demand, mostDemand), min(out.Window, mostDemand)
	return t.keeping(out, less, gone, c.shape.Limit)
}

// keeping is the share of a limit of which so much is kept for others, beside what they have
// spent of their parts.
func (t *contest) keeping(s *deltasync.Share, less, spent float64, limit uint64) *deltasync.Share {
	most := float64(limit)
	less = min(less, most)
	spent = min(spent, most-less)
	t.part = float64(s.Omega) * (1 - (less+spent)/most)
	s.Kept, s.Spent = uint64(less), uint64(spent)
	return s
}

// spentBy is what a region is known to have spent in the window.
func (c *counter) spentBy(node uint64, now int64) uint64 {
	v := c.regions.Of(crdt.Replica{Node: node})
	if v == nil {
		return 0
	}
	return c.spentOf(v, now)
}

// spentOf is what of somebody's counts is spent in the window, as edges count it: in one
// that slides the oldest slice counts by its overlap.
func (c *counter) spentOf(v *crdt.Vector, now int64) (sum uint64) {
	oldest := reach(c.shape, now)
	from := oldest
	if began := c.contest.began; began != 0 { // a thousandth: of a year an edge tells it in seconds
		from = max(from+1, sliceAt(c.shape, began+int64(c.shape.Width)/1000))
	}
	for _, cell := range v.From(from, nil) {
		net := cell.Net()
		if cell.Slice == oldest {
			width := int64(c.shape.Width)
			net = uint64(float64(net) * (1 - float64(now-int64(sliceAt(c.shape, now))*width)/float64(width)))
		}
		sum = crdt.SatAdd(sum, net)
	}
	return sum
}

// hearDemand takes in what is asked for, of an edge or another region, and says
// whether others should hear.
func (a *Aggregator) hearDemand(l *lane, key deltasync.Key, c *counter, up *deltasync.Up, d *deltasync.Demand, now int64) bool {
	if c.guest {
		return false
	}
	if up.Kind == deltasync.KindEdge {
		if !l.mayAsk(c, up.Node) {
			a.stats.overdrawn.Add(1)
			return false
		}
		began := c.contest == nil
		t := l.contested(key, c, a.unseen(now), now)
		if began {
			t.pop = deltasync.PopOf(up.Node)
		}
		if up.Features&deltasync.FeatureDeaf != 0 && t.knows(up.Node) {
			return false // it is silent, and has the part that it had
		}
		if t.asks(up.Node, l.present[up.Node], d, now) {
			l.bill(t)
		}
		return a.republish(c, now)
	}
	j := slices.Index(a.nodes, up.Node)
	if j < 0 || c.shape.Regional {
		return false
	}
	t := l.contested(key, c, a.unseen(now), now)
	t.heard = now // it is kept for a while, whether edges here ask or not
	r := &t.regions[j]
	before := r.Demand
	if r.Demand, r.at = *d, now; r.first == 0 {
		r.first, r.told = now, float32(r.weight(c.shape, now))
	}
	return before.Mid != d.Mid || before.Kept != d.Kept
}

// noteExport notes what a frame tells another region.
func (l *lane) noteExport(up *deltasync.Up, now int64) {
	if len(l.contests) == 0 {
		return
	}
	for i := range up.Sections {
		for j := range up.Sections[i].Deltas {
			if c := l.counters[up.Sections[i].Deltas[j].Key]; c != nil && c.contest != nil {
				c.contest.exported(now)
			}
		}
	}
}
