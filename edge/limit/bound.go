package limit

import (
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// Bound is how far a limit may be exceeded, in cost above its ceiling. Both are zero
// where an edge decides alone, and for strict limits.
type Bound struct {
	// Now is error_bound: all edges together have admitted no more than that above the
	// ceiling in the window that ends now, with a chance of 99.9 %, given what this
	// edge sees of the demand.
	Now uint64
	// Surge is error_bound_surge: what that could come to until all have heard of each
	// other, if from now on F times the limit was asked for everywhere.
	Surge uint64
	// Known is false where an edge has yet to hear how many others there are.
	Known bool
}

// Outlook is what an edge knows of a counter that a Bound follows from, beside its
// level.
type Outlook struct {
	Own, Others    *crdt.Vector  // what this edge charged, and all others as last heard
	Fresh          crdt.Cell     // charged here, and not in Own yet
	Regions, Edges int           // that there are: regions, and edges of each
	Lost           int           // regions that were not heard of late; for a bucket, in all of Parted
	Parted         time.Duration // of a bucket: for so long regions were not heard of
	Met            time.Duration // and so long ago that ended
	Hidden         time.Duration // for so long charges of others may be unknown
	Mute           time.Duration // for so long nobody has said that he knows what was charged here; 0: they do
	Ahead          time.Duration // and those of now will be, at the most
	Blur           time.Duration // by which pictures of what is left differ in age between edges
	Cost           uint64        // that requests have, as far as is known; 0: 1. Of more than the ceiling none is ever admitted: it counts as that
	Share          *Share        // nil: the rate decides without shares
}

const (
	// deviations is the quantile of 99.9 % of a normal distribution, in deviations, and
	// skew what a Poisson's has more, (deviations² - 1) / 6, rounded up to a half: the
	// first terms of Cornish and Fisher's expansion.
	deviations = 3.09
	skew       = 1.5
	// doubt is the part of their limit by which the parts of regions that are cut off
	// from each other may add up to more: each is told what the others are asked for
	// when that has changed by a fifth (Demand.Publish), and by chance.
	doubt = 0.25
	// noticed is after how long regions take one that is silent to be cut off.
	noticed = time.Second
	// strange is what an edge is taken to have been asked for before it was heard of, so
	// that little history says little about how edges differ.
	strange = 5
	// uneven is the part of Blur by which pictures differ where edges admit by them: it
	// is that of two edges, and all are around a mean.
	uneven = 0.75
)

// quantile is what a sum of a mean is not above, with a chance of 99.9 %: a Poisson's of
// pieces of a size, that has some more variance from elsewhere.
func quantile(mean, more, piece float64) float64 {
	return mean + deviations*math.Sqrt(mean*piece+more) + skew*piece
}

// Bound follows from what others may have charged unheard, and, of a rate that decides
// by shares, from how far these can add up to more than what is left. The smaller one
// counts:
//
//   - unheard: the level, and the quantile of what others charge in the time that the
//     news takes. That is the most they were heard to charge in as long; or what is
//     asked of them, where that is told; or, if this edge surges and the others may
//     likewise, what it charged, times as much as they are asked for more than it.
//   - shares: what R4 lends, or R2 lets pass (the leeway, where F times the limit is
//     asked for, more where that is more, and less where it is less; and what passes while
//     the news is later than R2 takes it to be), and beside it, independent and so by
//     squares, what pictures of a different age admit twice, and one request by chance of
//     each edge. No more passes in either time than passed in any as long as the news
//     takes, or than is asked for. Where each edge has but a part of a request, a crowd
//     that nobody has heard of yet passes a whole one at most of them.
//
// To both comes what the oldest slice may be misjudged by, and what regions that are
// cut off may admit: of shares the doubt about their parts, more where these are a guess,
// and what both sides admit until they know of the cut; else, and where they are open then, a
// limit each. Of an edge that is not answered others may not know what it charged since, and
// admit that too: without a share it is no less, and may come to a limit.
func (r *Rate) Bound(level Level, o *Outlook, now int64) Bound {
	others := float64(o.Regions*o.Edges - 1)
	if r.Scope == ScopeEdge || r.Consistency == Strict || others <= 0 {
		return Bound{Known: true}
	}
	heard, own := r.spent(o.Others, o.Hidden, now), r.spent(o.Own, o.Hidden, now)
	own.late += r.after(o.Fresh, now-int64(o.Hidden))
	here, asked := 0.0, 0.0 // cost a second
	mean, surging := heard.most, 0.0
	if own.late > own.before+2*math.Sqrt(own.before+1) { // it surges
		surging = (own.late + deviations*math.Sqrt(own.late) + skew) * alike(heard, own, others)
		mean = max(mean, surging)
	}
	passed := max(own.most, own.late) + mean
	if s := o.Share; s != nil {
		here, asked = s.Own.Fast, max(0, s.Demand-s.Own.Fast)
		if s.Own.Surges(SpansOf(r.Window)) {
			asked = max(asked, here*alike(heard, own, others))
		}
		mean = max(mean, asked*o.Hidden.Seconds())
		asked = max(asked, surging/max(o.Hidden.Seconds(), 1e-3))
	}
	w := r.worst(level, o, now)
	pace := quantile(passed, 0, w.piece) / max(o.Hidden.Seconds(), 1e-3)
	crowd, unkept := w.first, w.beside
	if unkept > 0 { // it is no more than was spent here
		w.beside = min(unkept, o.Share.Mine)
	}
	if heard.past+own.past > w.ceiling/2 { // it has come, and all have heard of it
		w.first = 0
	}
	at := w.above(max(mean, w.first), asked+here, min(asked+here, pace))
	w.first, w.beside = crowd, unkept
	surge := max(asked+here, w.surge)
	most := max(at, w.above(max(mean, w.surge*(o.Hidden+o.Ahead).Seconds()), surge, surge))
	if o.Mute > 0 && (!w.shares || r.OnPartition == PartitionOpen) {
		span := min(o.Mute, r.Window)
		here := min(w.ceiling, r.spent(o.Own, span, now).late+r.after(o.Fresh, now-int64(span)))
		at = max(at, quantile(here, w.noise, w.piece)+w.wrong) // the others may be above their limit by chance, too
		most = max(most, at, w.ceiling)
	}
	return Bound{Now: uint64(at), Surge: uint64(most), Known: true}
}

// worst is what does not depend on what is asked for.
type worst struct {
	used, ceiling float64
	piece         float64 // in which cost is asked for
	wrong, noise  float64 // by which the oldest slice is misjudged, and its variance
	others        float64
	surge         float64 // cost a second: F times the limit
	cut           float64 // that regions which are cut off may admit beyond what is counted
	beside        float64 // what this edge may have spent while others admitted all that there is

	shares      bool
	leeway      float64
	lent        float64 // of it, for what others leave of their shares
	first       float64 // beyond shares, of a crowd at all edges at once: where these have parts of a request each passes a whole one
	blur, delay time.Duration
	late        time.Duration // that news is later than R2 takes it to be, while that lets pass anything
}

func (r *Rate) worst(level Level, o *Outlook, now int64) worst {
	w := worst{used: float64(r.Rounded(level)), ceiling: float64(r.Ceiling), piece: float64(max(1, min(o.Cost, r.Ceiling))), others: float64(o.Regions*o.Edges - 1)}
	w.surge = r.surge() * w.ceiling / max(r.Window.Seconds(), 1e-3)
	w.wrong, w.noise = r.misjudged(o, now)
	if w.shares = o.Share != nil; w.shares {
		less := o.Share.Less // it is theirs to spend
		if o.Share.Alone {   // but for what they have spent
			less = max(0, less-max(0, w.used-o.Share.Mine))
		}
		w.used += less
		w.leeway, w.blur, w.delay = r.leeway()*w.ceiling, o.Blur, o.Share.Delay
		w.lent = w.lends(w.ceiling / max(r.Window.Seconds(), 1e-3))
		if w.surge*w.delay.Seconds()-w.leeway < w.ceiling {
			w.late = max(0, o.Ahead-w.delay)
		}
		if w.piece*(w.others+1) > w.ceiling {
			w.first = w.wholes(w.piece > 1)
		}
	}
	switch lost := o.Lost; {
	case lost <= 0:
	case w.shares && r.OnPartition != PartitionOpen:
		w.cut = doubt * w.ceiling * float64(min(lost, max(1, o.Regions-lost))) / float64(o.Regions)
		w.cut = max(w.cut, w.used-w.ceiling) // as much came in too much there as here, before both knew
	default:
		w.cut = float64(lost) * w.ceiling
	}
	if w.shares {
		w.cut = max(w.cut, o.Share.Doubt)
	}
	if s := o.Share; w.shares && r.OnPartition != PartitionOpen { // so may be the parts of edges that are cut off from their region
		w.cut = max(w.cut, doubt*min(s.Less, max(0, w.ceiling-s.Less)))
		if s.Alone {
			w.cut = max(w.cut, doubt*w.ceiling*s.Omega*s.Weight)
		}
		if w.beside = s.unkept(w.ceiling); r.Bucket() { // it adds up
			w.cut, w.beside = w.cut+w.beside, 0
		}
	}
	if r.Bucket() {
		w.cut = r.keeps(w.cut, o, now)
	}
	return w
}

// unkept is the part of a limit that an edge has which is alone, where that is beside what all
// others have.
func (s *Share) unkept(ceiling float64) float64 {
	if !s.Alone || !s.Unkept {
		return 0
	}
	return ceiling * s.Omega * s.Weight
}

// keeps is what a bucket has of what regions that do not hear of each other admit too much
// a window: that adds up, beside what they admitted before they noticed. When they hear of
// each other what is of the last window is counted, where they did not share, and the rest
// drains by what less is admitted than drains: as it is known by slices alone, nobody waits
// for it.
func (r *Rate) keeps(cut float64, o *Outlook, now int64) float64 {
	if cut == 0 {
		return 0
	}
	windows := func(d time.Duration) float64 { return d.Seconds() / max(r.Window.Seconds(), 1e-3) }
	shares := o.Share != nil && r.OnPartition != PartitionOpen
	if shares { // the more lack, the further are those who are left from what each has
		cut = max(o.Share.Doubt, doubt*float64(r.Ceiling)*float64(min(o.Lost, o.Regions))/float64(o.Regions)) + o.Share.unkept(float64(r.Ceiling))
	}
	sum, blind := cut*windows(o.Parted), doubt*float64(r.Ceiling)*min(1, windows(noticed))
	if o.Met == 0 {
		return max(cut, sum) + blind
	}
	if !shares {
		sum -= cut
	}
	admitted, from := uint64(0), r.SliceAt(now)-crdt.Slice(r.Slices)
	for _, v := range []*crdt.Vector{o.Own, o.Others} {
		for i := v.Len() - 1; i >= 0 && v.At(i).Slice > from; i-- {
			admitted = crdt.SatAdd(admitted, v.At(i).Net())
		}
	}
	return max(0, sum+blind-max(0, float64(r.Ceiling)-float64(admitted))*windows(o.Met))
}

// wholes is what passes beyond shares where each edge passes a request for the part of one
// that it has. Of requests that cost more than 1 not all do; see Grant.Chance.
func (w *worst) wholes(weighted bool) float64 {
	pass, limit := w.others+1, w.ceiling/w.piece
	if weighted {
		pass = min(pass, max(limit/min(1, heavy/limit), 1))
	}
	return w.piece * max(pass-limit, wholes*pass)
}

// lends is how much of the leeway edges lend each other, at a pace of the limit: what
// comes free before they know better; see Grant.
func (w *worst) lends(pace float64) float64 { return min(w.leeway, max(1, pace*w.delay.Seconds())) }

// above is what may be admitted above the ceiling where others charged so much unheard,
// so much is asked for a second, and so much of it passes at the most.
func (w *worst) above(unheard, asked, pace float64) float64 {
	all := w.others * w.ceiling // more others admit in no window
	most := w.used + w.wrong + min(quantile(min(unheard, all), w.noise, w.piece), all+deviations*math.Sqrt(w.noise)) - w.ceiling
	if w.shares {
		twice := uneven * pace * w.blur.Seconds()
		trusted := max(w.lent, w.leeway+(asked-w.surge)*w.delay.Seconds()) + pace*w.late.Seconds()
		known := max(0, w.used-w.ceiling)
		most = min(most, known+math.Hypot(math.Hypot(trusted, w.first), w.wrong+quantile(twice, w.noise+(w.others+1)/4, w.piece)))
	}
	return max(0, most+w.cut) + w.beside
}

// misjudged is by how much more the oldest slice may count than by the part of it that
// overlaps the window, and the variance of that. Where more was charged in the slice
// after it, its own charges came late in it; where much less was, they may have come at
// once. Else they came evenly.
func (r *Rate) misjudged(o *Outlook, now int64) (wrong, noise float64) {
	if r.Algorithm != SubWindows || r.Oldest == OldestFull {
		return 0, 0
	}
	current := r.SliceAt(now)
	in := func(s crdt.Slice) float64 { return float64(crdt.SatAdd(o.Own.Get(s).Net(), o.Others.Get(s).Net())) }
	oldest, next := in(current-crdt.Slice(r.Slices)), in(current-crdt.Slice(r.Slices)+1)
	gone := float64(now-r.StartOf(current)) / float64(r.Width)
	switch {
	case next > oldest:
		wrong = min(oldest*gone, (1-gone)*(next-oldest))
	case next < oldest/2:
		wrong = oldest * gone
	}
	return wrong, oldest * gone * (1 - gone)
}

// spent is what slices tell of a span that ends now.
type spent struct {
	late   float64 // charged within it
	past   float64 // before it, and within a window
	before float64 // the most in any such span that ended before it
	most   float64 // the most in any
}

func (r *Rate) spent(v *crdt.Vector, span time.Duration, now int64) (s spent) {
	from := now - int64(span)
	edge, wide := r.SliceAt(from), crdt.Slice(span/r.Width)+1
	sum, first := 0.0, 0
	for i := range v.Len() {
		c := v.At(i)
		for sum += float64(c.Net()); v.At(first).Slice <= c.Slice-wide; first++ {
			sum -= float64(v.At(first).Net())
		}
		part := sum * float64(span) / float64(int64(wide)*int64(r.Width))
		if wide == 1 { // of the slice that goes on, no more than that has passed
			lasted := min(r.EndOf(c.Slice), now) - r.StartOf(c.Slice)
			part = sum * min(1, float64(span)/float64(max(1, lasted)))
		}
		if s.most = max(s.most, part); c.Slice < edge {
			s.past += float64(c.Net())
			s.before = s.most
			continue
		}
		s.late += r.after(c, from)
	}
	return s
}

// after is what of a cell was charged from an instant on, if it came evenly.
func (r *Rate) after(c crdt.Cell, from int64) float64 {
	start, end := r.StartOf(c.Slice), r.EndOf(c.Slice)
	if end <= from {
		return 0
	}
	return float64(c.Net()) * float64(end-max(start, from)) / float64(end-start)
}

// alike is how much more the others are asked for than this edge, as far as the past
// tells: as much as it, each, where that says nothing.
func alike(heard, own spent, others float64) float64 {
	most := heard.past + deviations*math.Sqrt(heard.past) + strange*others
	return min(others, most/(max(0, own.past-math.Sqrt(own.past))+strange))
}
