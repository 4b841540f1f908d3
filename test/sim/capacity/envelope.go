package capacity

import (
	"math"

	"github.com/spillgate/spillgate/sync"
)

// Envelope is what a Plan comes to, a second and in bytes where it does not say
// else.
type Envelope struct {
	Plan   Plan   `json:"plan"`
	Edge   Edge   `json:"edge"`   // each
	Region Region `json:"region"` // each

	// Pressing, Denied are the parts of the requests that go to keys above half
	// of their limit, and those that are over it.
	Pressing float64 `json:"pressing"`
	Denied   float64 `json:"denied"`
}

// Edge is what each edge sends, hears and holds.
type Edge struct {
	Frames    float64 `json:"frames"` // beats too
	Entries   float64 `json:"entries"`
	Told      float64 `json:"told"`      // of them those with new counts,
	Refreshed float64 `json:"refreshed"` // those that tell all again,
	Asking    float64 `json:"asking"`    // and those that only ask
	Up        float64 `json:"up"`        // bytes
	Down      float64 `json:"down"`      // bytes, pushes too
	Pushes    float64 `json:"pushes"`
	PushBytes float64 `json:"push_bytes"`
	Keys      float64 `json:"keys"` // live
	Memory    float64 `json:"memory"`
}

// Region is what each region receives, exchanges with others and holds.
type Region struct {
	Entries float64 `json:"entries"` // of its edges
	Up      float64 `json:"up"`      // bytes of its edges
	Down    float64 `json:"down"`    // bytes to its edges
	Exports float64 `json:"exports"` // keys exported, each once for each region
	Frames  float64 `json:"frames"`  // of exports, beats too
	Egress  float64 `json:"egress"`  // bytes to other regions: exports, and replies to theirs
	// Frame is the larger of what there is to tell another region at a time and of the
	// reply to it, in bytes. Above MaxFrame, which no frame is (regional's
	// TestFramesFit), lanes, or what may be under way, do not suffice: then exports
	// come later, and more changes share one.
	Frame    float64 `json:"frame"`
	Messages float64 `json:"messages"`
	Merges   float64 `json:"merges"` // slices joined
	// FrameKeys is how many keys of frames its aggregators take in.
	FrameKeys        float64 `json:"frame_keys"`
	Cores            float64 `json:"cores"` // of aggregators, at the part of one that is planned with
	Writes           float64 `json:"writes"`
	Masters          float64 `json:"masters"`
	RedisMemory      float64 `json:"redis_memory"`      // of all masters and replicas
	AggregatorMemory float64 `json:"aggregator_memory"` // of all of them together
}

// Of is what a plan comes to at these costs.
func Of(p Plan, c Costs) (Envelope, error) {
	if err := p.Validate(); err != nil {
		return Envelope{}, err
	}
	s := sums{p: &p, c: &c}
	ranks := p.ranks()
	for _, r := range ranks {
		s.pace(r.keys, p.fate(p.RPS*r.part))
	}
	s.frames()
	for _, r := range ranks {
		s.add(r.keys, p.fate(p.RPS*r.part))
	}
	return s.envelope(), nil
}

// MaxFrame is the largest frame, as that of sync.
const MaxFrame = 64 << 10

// sums gathers what all keys come to.
type sums struct {
	p *Plan
	c *Costs

	// What makes edges and regions send, and does not depend on when they do.
	entries, hurried        float64 // of an edge
	changes, hurriedChanges float64 // of a region
	firsts                  float64

	edgeFrames, edgeBeats     float64 // of an edge, all its lanes
	exportFrames, exportBeats float64 // of a region to one other, all its lanes
	exportEvery               float64 // seconds

	e Edge
	r Region

	pushed                                              float64 // keys of a region, as if each was pushed alone
	heards                                              float64 // entries of an edge that say when it heard
	keyBytes, replyBytes, exportBytes, exportReplyBytes float64
	pressing, denied                                    float64
}

// pace adds what a key does to the pace of frames.
func (s *sums) pace(n float64, k key) {
	edges := float64(s.p.Edges)
	s.entries += n * (k.told - k.first + k.again)
	s.firsts += n * k.first
	if k.used >= pressingFrom {
		s.entries -= n * k.told
		s.hurried += n * k.hurried
		s.hurriedChanges += n * edges * k.charged
	}
	if k.used < pressingFrom {
		s.entries += n * k.touched
	}
	s.changes += n * edges * (k.told + k.again)
	s.hurriedChanges += n * edges * k.first
	s.pressing += boolean(k.used >= pressingFrom) * n * k.asked
	s.denied += n * (k.asked - k.charged)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// paced is how many frames a second leave of a lane that has so much to tell
// with the next interval, and so much at once, when two may be under way.
func (s *sums) paced(regular, hurried, rtt float64) float64 {
	interval, urgent := seconds(s.p.Interval), seconds(s.p.Urgent)
	offered := -math.Expm1(-(regular*interval+hurried*urgent))/interval + (1/urgent-1/interval)*after(hurried, urgent)
	most := s.inFlight(rtt) / rtt
	// Near the most they get into each other's way, sooner than one might think:
	// what was urgent while two were under way leaves with the next interval. The
	// bend is fitted to the simulator; both ends are not.
	const bend = 2.5
	return offered / math.Pow(1+math.Pow(offered/most, bend), 1/bend)
}

// inFlight is how many frames may be under way that take so long: one more for each
// interval that the oldest waits.
func (s *sums) inFlight(rtt float64) float64 {
	return min(deltasync.MostInFlight, mostInFlight+math.Floor(rtt/seconds(s.p.Interval)))
}

// beats is how many empty frames leave where so many others do.
func (s *sums) beats(frames float64) float64 {
	silent := beatEvery * seconds(s.p.Interval)
	if frames*silent < 1e-6 {
		return 1 / silent
	}
	return frames / math.Expm1(frames*silent)
}

func (s *sums) frames() {
	p, lanes := s.p, float64(s.p.Lanes)
	lane := s.paced(s.entries/lanes, (s.hurried+s.firsts)/lanes, seconds(p.EdgeRTT))
	s.edgeFrames, s.edgeBeats = lanes*lane, s.beats(lane)

	s.exportEvery = seconds(p.Interval)
	if peers := s.p.peers(); peers > 0 {
		part := peers / float64(p.Regions-1) / lanes // of what changes that one lane tells one region
		lane = s.paced((s.changes-s.hurriedChanges)*part, s.hurriedChanges*part, seconds(p.RegionRTT))
		s.exportFrames, s.exportBeats = lanes*lane, s.beats(lane)
		s.exportEvery = max(seconds(p.Urgent), seconds(p.RegionRTT)/s.inFlight(seconds(p.RegionRTT)), min(seconds(p.Interval), 1/lane))
	}
}

// coldly is how often a second cold entries of a key leave for a peer, of which
// each edge has so many a second. All edges tell a key in the same part of a
// second, which is that of its shard, so that the region tells it once or a few
// times, however many they are. A shard that had nothing then tells what comes
// at once: edges that have little to tell do not meet.
func (s *sums) coldly(entries float64) float64 {
	edges, apart := float64(s.p.Edges), seconds(s.p.Apart)
	meet := after(s.entries/shards, coldEvery)
	alone := every(edges*entries, s.exportEvery)
	any := -math.Expm1(edges * math.Log1p(-min(entries*coldEvery, 1-1e-9)))
	if apart > 0 {
		any *= pieces(edges*entries*coldEvery/apart, apart, s.exportEvery)
	}
	return meet*min(alone, any/coldEvery) + (1-meet)*alone
}

// pushes is how often a second a region's totals of a key are pushed: with what
// its own edges change, and what every other region tells that its edges did. A
// key that is over its limit changes while there is room, at the pace that it is
// asked, and then not.
func (s *sums) pushes(k key) float64 {
	if k.used < pushedFrom {
		return 0
	}
	asked, urgent := k.asked*float64(s.p.Edges), seconds(s.p.Urgent)
	told, peers := every(asked, s.exportEvery), float64(s.p.Regions-1)
	pushed := every(asked+peers*told, urgent)
	if far := s.p.far(); far > 0 {
		// Who is no home hears with the replies of two, and at times of all.
		others := homes*told + peers*every(asked, s.p.often())
		pushed += far / peers * (every(asked+min(others, peers*told), urgent) - pushed)
	}
	return k.charged / k.asked * pushed
}

// abroad is how often a second a region tells of a key those that are no homes of it,
// and asks its homes without telling them anything.
func (s *sums) abroad(k key, changed float64) (spread, asks float64) {
	if s.p.far() == 0 {
		return 0, 0
	}
	often := s.p.often()
	if k.used >= pressingFrom {
		hundredths := k.charged * float64(s.p.Edges) * 100 / s.p.Limit
		spread = max(every(changed, often), every(min(changed, hundredths), seconds(s.p.Interval)))
	}
	return spread, math.Exp(-changed*often) * every(float64(s.p.Edges)*k.touched, often)
}

// cell is how many bytes a slice takes on the wire with so many counts in it;
// Costs has those of one byte.
func (s *sums) cell(rate float64) float64 {
	mean := rate * s.p.width() / max(1e-12, after(rate, s.p.width()))
	return s.c.Cell + boolean(mean >= 1<<7) + boolean(mean >= 1<<14)
}

// add adds what a key takes.
func (s *sums) add(n float64, k key) {
	p, c := s.p, s.c
	edges, regions, peers := float64(p.Edges), float64(p.Regions), p.peers()
	own, region, abroad := s.cell(k.charged), s.cell(k.charged*edges), s.cell(k.charged*edges*(regions-1))

	// An edge.
	s.e.Told += n * k.told
	s.e.Refreshed += n * k.again
	s.e.Asking += n * k.touched
	entries := n * (k.told + k.again + k.touched)
	s.keyBytes += entries*c.Key + n*(k.told*k.cells+k.again*k.full)*own
	// Who comes back soon is told what changed since.
	again, ago := n*max(0, k.told-k.first+k.touched), 1/max(1e-9, k.told+k.again+k.touched)
	others := p.recent(k.charged*edges*(regions-1), ago+astray+p.width()/2)
	peersOf := p.recent(k.charged*(edges-1), ago+astray+p.width()/2)
	if ago >= seconds(p.Window) {
		others, peersOf = k.others, k.peers
	}
	first := entries - again
	replied := first*(k.others+k.peers) + again*(others+peersOf) // slices
	s.replyBytes += entries*c.ReplyKey + (first*k.others+again*others)*abroad + (first*k.peers+again*peersOf)*region
	s.heards += again * after(k.charged*(edges*regions-1), p.reach())
	live := after(k.charged, k.stays)
	s.e.Keys += n * live
	known := after(k.charged*(edges*regions-1), p.reach())
	s.e.Memory += n * live * ((1-known)*c.EdgeSparse +
		known*(c.EdgeWhole+c.EdgeCell*(p.live(k.charged)+p.live(k.charged*(edges*regions-1)))))

	// What is exported: what rose, and what edges told again.
	changed, refreshed := every(edges*(k.told+k.again), s.exportEvery), every(edges*k.again*k.still, s.exportEvery)
	if k.cold {
		changed = s.coldly(k.told-k.first+k.again) + every(edges*k.first, s.exportEvery)
		refreshed = s.coldly(k.again * k.still)
	}
	rose := max(0, changed-refreshed)
	spans := p.spans(k.charged*edges, s.exportEvery)
	if k.used < pressingFrom {
		spans = max(spans, k.cells)
	}
	if k.cold {
		spans = p.spans(k.charged*edges, coldEvery)
	}
	long := 1 - 0.5*after(k.charged, p.reach())/max(1e-12, k.charged*p.reach()) // a rare key tells from its one slice on
	all := max(1, k.subtotal*long)
	spread, asks := s.abroad(k, changed)
	far := p.far()
	exports := peers*(changed+asks) + far*spread
	cells := peers*(rose*spans+refreshed*all) + far*spread*p.spans(k.charged*edges, p.often())
	replies := exports * k.subtotal // slices in them
	if far > 0 {                    // of regions that are neither the one that asks nor the home
		replies += peers * (changed + asks) * p.live(k.charged*edges*(regions-2))
	}
	s.r.Exports += n * exports
	s.exportBytes += n * (exports*c.Key + cells*region)
	s.exportReplyBytes += n * (exports*c.ReplyKey + replies*region)

	// What aggregators take in.
	s.r.Entries += edges * entries
	s.r.FrameKeys += edges*entries + 2*n*exports // replies to their exports too
	s.r.Merges += n * (edges*(k.told*k.cells+k.again*k.full) + cells)
	s.r.Cores += c.MergeKey*(edges*entries+2*n*exports) + c.MergeReplyCell*(edges*replied+n*replies)
	// What rose is written, and what a frame names that was not asked for a second.
	written := edges*k.told + peers*rose + far*spread
	s.r.Writes += n * (written + edges*(k.again+k.touched)*math.Exp(-written))

	s.memory(n, k)

	if pushes, urgent := s.pushes(k), seconds(p.Urgent); pushes > 0 {
		s.pushed -= n * math.Log1p(-min(pushes*urgent, 1-1e-9)) / urgent
		between := min(toldAll, seconds(p.Window)/4)
		all := every(pushes, between)
		s.e.PushBytes += n * (pushes*c.PushKey + all*(k.others*abroad+k.subtotal*region) +
			(pushes-all)*(p.recent(k.charged*edges*(regions-1), between/2)*abroad+p.recent(k.charged*edges, between/2)*region))
	}
}

// memory adds what a key takes in a region's Redis and aggregators. A group of
// slices lives from its first count to a window after its end.
func (s *sums) memory(n float64, k key) {
	p, c := s.p, s.c
	window := seconds(p.Window)
	held := func(rate float64) float64 { return after(rate, window) }
	edges, peers, others := float64(p.Edges), p.peers(), float64(p.Regions-1)
	entries, told := peers, 0.0 // of other regions, and of what homes told of all of them
	if far := p.far(); far > 0 {
		told = far / others
		entries += told * homes // they told what they counted themselves
		if k.used >= pressingFrom {
			entries = others
		}
	}
	fields := edges*held(k.charged) + entries*held(k.charged*edges) + told*held(k.charged*edges*others)
	cells := float64(p.Slices) * (edges*after(k.charged, p.width()) + entries*after(k.charged*edges, p.width()) +
		told*after(k.charged*edges*others, p.width()))
	touched := held(k.charged * edges * (1 + peers))
	groups := 1.5 + 0.5*touched + (max(1, 2*p.width()))/window // of a window and what is kept after it
	s.r.RedisMemory += n * groups * (touched*c.RedisGroup + fields*c.RedisField + cells*c.RedisCell) * c.RedisReplicas
	s.r.AggregatorMemory += n * (touched*c.HeldKey + fields*c.HeldReplica + cells*c.HeldCell)
}

func (s *sums) envelope() Envelope {
	p, c := *s.p, s.c
	e, r := s.e, s.r
	edges, peers := float64(p.Edges), float64(p.Regions-1)
	e.Entries = e.Told + e.Refreshed + e.Asking
	e.Frames = s.edgeFrames + s.edgeBeats
	e.Up = e.Frames*(c.UpHead+c.HeardHead) + s.edgeFrames*c.Section + s.keyBytes
	if s.heards > 0 {
		e.Up += s.edgeFrames*c.HeardColumn*after(s.heards/s.edgeFrames, 1) + s.heards*c.Heard
	}
	e.Pushes = float64(p.Lanes) * every(s.pushed/float64(p.Lanes), seconds(p.Urgent)) // keys that change at once share one
	e.PushBytes += e.Pushes * c.PushHead
	e.Down = e.Frames*c.DownHead + s.replyBytes + e.PushBytes

	r.Up, r.Down = edges*e.Up, edges*e.Down
	r.Frames = peers * (s.exportFrames + s.exportBeats)
	r.Egress = r.Frames*(c.UpHead+c.DownHead+2*c.Hears) + peers*s.exportFrames*c.Section + s.exportBytes + s.exportReplyBytes
	if s.exportFrames > 0 {
		perFrame := 1 / (peers * s.exportFrames)
		r.Frame = max(c.UpHead+c.Section+s.exportBytes*perFrame, c.DownHead+s.exportReplyBytes*perFrame) + c.Hears
	}
	r.Messages = edges*(2*e.Frames+e.Pushes) + 4*r.Frames // its exports and others', each answered
	r.Cores /= c.AggregatorBusy
	r.Masters = math.Ceil(r.Writes * c.RedisKey / c.RedisBusy)
	return Envelope{Plan: p, Edge: e, Region: r, Pressing: s.pressing / p.RPS, Denied: s.denied / p.RPS}
}
