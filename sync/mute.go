package deltasync

import (
	"container/list"
	"fmt"
	"time"
)

const (
	// A sender that has more than muteAfter frames refused within mutePeriod is
	// not listened to for mutePeriod, and each time that it goes on for twice as
	// long, up to longestMute: to refuse a frame costs nearly as much as to take
	// it. Who kept quiet for longestMute after a mute begins anew.
	muteAfter   = 100
	mutePeriod  = time.Minute
	longestMute = time.Hour
	// tryEvery is how often a frame of a muted sender is read all the same: if it is good,
	// as its build was rolled back or mended, the mute ends. The next bad one within
	// mutePeriod mutes it again.
	tryEvery = 10 * time.Second
	// maxOffenders bounds who is remembered; whoever offended least recently is
	// forgotten first, of those who are not muted. A muted sender that keeps on sending stays.
	maxOffenders = 1024
)

// MutedError is returned for the frame by which a sender came to be muted, and
// not for those after it, so that it can be logged once.
type MutedError struct {
	Sender Sender
	For    time.Duration
	Err    error // why the last frame was refused
}

func (e *MutedError) Error() string {
	who := "region " + e.Sender.From
	if e.Sender.Kind == KindEdge {
		who = "edge " + e.Sender.Pop + "/" + e.Sender.Name
	}
	return fmt.Sprintf("%s is muted for %v, having sent more than %d bad frames in %v, or one soon after it was muted, the last: %v", who, e.For, muteAfter, mutePeriod, e.Err)
}

func (e *MutedError) Unwrap() error { return e.Err }

// offenders remembers who sent bad frames. They are known by their subjects: by
// what frames claim, one sender could have another muted.
type offenders struct {
	known  map[Sender]*list.Element
	byLast *list.List // of *offender; who offended last stands first
}

type offender struct {
	sender  Sender
	since   int64 // when the period began in which refused are counted
	refused int
	until   int64           // it is muted before that; 0: it never was
	tried   int64           // when a frame of it was last read meanwhile, or the mute began
	inVain  bool            // it is muted for what was admitted: no frame tells that it is mended
	term    time.Duration   // of that mute
	why     error           // the last frame was refused for
	vain    [MaxLanes]uint8 // frames in a row, by lane, of which nothing was taken
}

func newOffenders() offenders {
	return offenders{known: map[Sender]*list.Element{}, byLast: list.New()}
}

// offenderID is the sender as the bus can prove it, whatever the lane.
func offenderID(from Sender) Sender {
	from.Lane = 0
	return from
}

// muted says why a sender is not listened to; nil: it is, or its frame is to be tried.
func (o *offenders) muted(now int64, from Sender) error {
	at := o.known[offenderID(from)]
	if at == nil || !at.Value.(*offender).muted(now) {
		return nil
	}
	o.byLast.MoveToFront(at)
	f := at.Value.(*offender)
	if !f.inVain && now-f.tried >= int64(tryEvery) {
		f.tried = now
		return nil
	}
	return f.why
}

// good notes that a frame was admitted: a mute for others is over.
func (o *offenders) good(now int64, from Sender) {
	at := o.known[offenderID(from)]
	if at == nil {
		return
	}
	if f := at.Value.(*offender); f.muted(now) && !f.inVain {
		f.until, f.since, f.refused = now, now, muteAfter
	}
	o.excuse(from)
}

func (f *offender) muted(now int64) bool {
	return now < f.until && f.until-now <= int64(f.term) // further ahead: a clock was set back
}

// refuse counts a bad frame, and says for how long its sender is muted from now
// on, if that is why; else 0.
func (o *offenders) refuse(now int64, from Sender, why error) time.Duration {
	f := o.offends(now, from, why)
	f.begin(now)
	if f.refused++; f.refused <= muteAfter {
		return 0
	}
	return f.mute(now)
}

// begin begins another period, when it is time.
func (f *offender) begin(now int64) {
	if now-f.since >= int64(mutePeriod) || now < f.since {
		f.since, f.refused, f.vain = now, 0, [MaxLanes]uint8{}
	}
}

// mute mutes the sender, and says for how long.
func (f *offender) mute(now int64) time.Duration {
	f.term = min(2*f.term, longestMute)
	if f.until == 0 || now-f.until >= int64(longestMute) || now < f.until {
		f.term = mutePeriod
	}
	f.muteFor(now, f.term)
	f.inVain = false
	return f.term
}

func (f *offender) muteFor(now int64, term time.Duration) {
	f.term, f.refused, f.until, f.tried, f.vain = term, 0, now+int64(term), now, [MaxLanes]uint8{}
}

// offends is what is known of a sender that sent a bad frame just now.
func (o *offenders) offends(now int64, from Sender, why error) *offender {
	id := offenderID(from)
	at := o.known[id]
	if at == nil {
		if len(o.known) >= maxOffenders {
			o.forget(now)
		}
		at = o.byLast.PushFront(&offender{sender: id})
		o.known[id] = at
	}
	o.byLast.MoveToFront(at)
	f := at.Value.(*offender)
	f.why = why
	return f
}

// forget makes room for another: names that are invented, each for a frame, end no mute.
func (o *offenders) forget(now int64) {
	last := o.byLast.Back()
	for at := last; at != nil; at = at.Prev() {
		if !at.Value.(*offender).muted(now) {
			last = at
			break
		}
	}
	delete(o.known, o.byLast.Remove(last).(*offender).sender)
}

// excuse forgets the bad frames of a region of which a good one came. Its
// aggregators share a subject, and a single one that is broken, or newer than
// we are, must not have the others muted.
func (o *offenders) excuse(from Sender) {
	if from.Kind != KindRegion {
		return
	}
	if at := o.known[offenderID(from)]; at != nil {
		at.Value.(*offender).refused = 0
	}
}

// Vain notes that nothing was taken of an edge's frame that was admitted, though it
// told something: all lay beyond the horizon, or had a shape that nobody keeps. Who
// sends such frames alone, more than muteAfter in a row in a lane within mutePeriod, is
// muted, and the MutedError says so; else it is nil. An edge whose clock was mended still has
// some to send, but few, and good ones between. The mute is no longer each time: it
// may be our clock that is wrong, and when that is mended edges are to be heard soon.
// Regions are heard all the same: what they ask for is of use, and it is up to their
// aggregators what time they have.
func (in *Inbox) Vain(now int64, u *Up, why error) error {
	if u.Kind != KindEdge {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	from := senderOf(u)
	f := in.offenders.offends(now, from, why)
	f.begin(now)
	if f.vain[u.Lane]++; f.vain[u.Lane] <= muteAfter {
		return nil
	}
	f.muteFor(now, mutePeriod)
	f.inVain = true
	return &MutedError{Sender: from, For: mutePeriod, Err: why}
}

// Took notes that something was taken of an edge's frame.
func (in *Inbox) Took(u *Up) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if at := in.offenders.known[senderOf(u)]; at != nil {
		at.Value.(*offender).vain = [MaxLanes]uint8{}
	}
}

// senderOf is the sender of an admitted frame, whatever the lane.
func senderOf(u *Up) Sender {
	return offenderID(Sender{Region: u.Region, Kind: u.Kind, Pop: u.Pop, Name: u.Name, From: u.Region})
}

// count is how many senders are muted.
func (o *offenders) count(now int64) (n int) {
	for at := o.byLast.Front(); at != nil; at = at.Next() {
		if at.Value.(*offender).muted(now) {
			n++
		}
	}
	return n
}
