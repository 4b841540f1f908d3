package deltasync

import (
	"math/bits"
	"slices"
	"time"
)

// replayWindow is how far a frame's number may lie behind the newest of its
// sender and lane. A sender has few frames under way: what comes later than
// that was told again since, and somebody plays it back.
const replayWindow = 1024

const (
	// replacedFor is after how long a newer incarnation has replaced an earlier one for
	// good, if it has not sent more than replayWindow frames before.
	replacedFor = 2 * time.Minute
	// maxFormers is how many earlier incarnations of an edge are remembered.
	maxFormers = 4
)

// arrivals is which of a sender's frames arrived in a lane.
type arrivals struct {
	last   uint64 // highest sequence number
	sentAt int64  // its time
	seen   uint64 // bit i: last-i arrived
}

// note says whether the frame arrived before. A frame too old to tell counts
// as new. A number that falls while its time rises is a sender that started
// again without a new incarnation, as aggregators do.
func (a *arrivals) note(seq uint64, sentAt int64) (duplicate bool) {
	switch {
	case seq > a.last || sentAt > a.sentAt && a.seen != 0:
		restart := seq <= a.last
		if shift := seq - a.last; restart || shift > 63 {
			a.seen = 0
		} else {
			a.seen <<= shift
		}
		a.last, a.sentAt = seq, sentAt
		a.seen |= 1
		return false
	case a.last-seq > 63:
		return false
	}
	bit := uint64(1) << (a.last - seq)
	duplicate = a.seen&bit != 0
	a.seen |= bit
	return duplicate
}

// replayed says that the frame is far behind the newest, by number and by time.
func (a *arrivals) replayed(seq uint64, sentAt int64) bool {
	return seq < a.last && a.last-seq > replayWindow && sentAt <= a.sentAt
}

// again says that the frame arrived before, or is older than can be told.
func (a *arrivals) again(seq uint64, sentAt int64) bool {
	return seq <= a.last && (a.last-seq > 63 || a.seen&(1<<(a.last-seq)) != 0) && sentAt <= a.sentAt
}

// past is what arrived of a region's aggregator far behind its newest frames: it has
// started again with its clock behind, or somebody plays it back.
type past struct {
	arrivals
	marks [16]int64 // times of the frames 1, 2, 4, 8, ...
}

// mark is where the time of a frame is kept, if it is.
func (p *past) mark(seq uint64) *int64 {
	if i := bits.TrailingZeros64(seq); i < len(p.marks) && seq == 1<<i {
		return &p.marks[i]
	}
	return nil
}

// anew says that another frame of that number arrived before: then its sender has
// started once more with its clock behind, and all that it sends is new.
func (p *past) anew(seq uint64, sentAt int64) bool {
	at := p.mark(seq)
	return at != nil && *at != 0 && *at != sentAt
}

func (p *past) note(seq uint64, sentAt int64) {
	if p.anew(seq, sentAt) {
		*p = past{}
	}
	if at := p.mark(seq); at != nil {
		*at = sentAt
	}
	p.arrivals.note(seq, sentAt)
}

// former is what arrived of an earlier incarnation of an edge.
type former struct {
	incarnation uint64
	lanes       []arrivals
}

// replayed says that a frame of the sender is not of now, but played back. Its
// number and time alone do not tell: an edge, or a region's aggregator, that starts
// again with its clock behind looks like its own past. But what it sends is new each
// time, and what is played back arrived before.
func (s *sender) replayed(now int64, u *Up) bool {
	lane := &s.lanes[u.Lane]
	switch {
	case u.Kind == KindRegion: // its aggregators have no incarnation; each has numbers of its own
		if !lane.replayed(u.Seq, u.SentAt) || s.behind == nil {
			return false
		}
		p := &s.behind[u.Lane]
		return p.again(u.Seq, u.SentAt) && !p.anew(u.Seq, u.SentAt)
	case u.Incarnation == s.incarnation:
		return lane.replayed(u.Seq, u.SentAt)
	case u.Incarnation > s.incarnation || lane.last <= replayWindow && now-s.replaced < int64(replacedFor):
		return false
	}
	f := s.former(u.Incarnation)
	return f != nil && f.lanes[u.Lane].again(u.Seq, u.SentAt) // frames under way may change places
}

// former is what arrived of an earlier incarnation; nil: nothing is known.
func (s *sender) former(incarnation uint64) *former {
	i := slices.IndexFunc(s.formers, func(f former) bool { return f.incarnation == incarnation })
	if i < 0 {
		return nil
	}
	return &s.formers[i]
}

// remember makes an earlier incarnation one of the formers; that which became one
// first is forgotten.
func (s *sender) remember(f former) *former {
	if len(s.formers) == maxFormers {
		s.formers = slices.Delete(s.formers, 0, 1)
	}
	s.formers = append(s.formers, f)
	return &s.formers[len(s.formers)-1]
}

// note takes note of a frame that is not played back, and says whether it arrived
// before.
func (s *sender) note(now int64, u *Up) (duplicate bool) {
	switch {
	case u.Incarnation < s.incarnation: // late, of an earlier start, which counted on its own
		f := s.former(u.Incarnation)
		if f == nil {
			f = s.remember(former{u.Incarnation, make([]arrivals, len(s.lanes))})
		}
		if !f.lanes[u.Lane].note(u.Seq, u.SentAt) {
			s.namesake.earlier(now)
		}
		return false
	case u.Incarnation > s.incarnation:
		s.remember(former{s.incarnation, s.lanes})
		s.incarnation, s.replaced, s.lanes = u.Incarnation, now, make([]arrivals, len(s.lanes))
	case u.Kind == KindRegion && s.lanes[u.Lane].replayed(u.Seq, u.SentAt):
		if s.behind == nil {
			s.behind = make([]past, len(s.lanes))
		}
		s.behind[u.Lane].note(u.Seq, u.SentAt)
		return false
	case u.Kind == KindEdge:
		s.namesake.own(now)
	}
	return s.lanes[u.Lane].note(u.Seq, u.SentAt)
}
