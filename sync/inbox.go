package deltasync

import (
	"container/list"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// maxSenders bounds what an Inbox remembers, 12 KB of each at the most; whoever was
// silent longest is forgotten first, of the PoP that has more than half of the places, if
// one does: its edges may be invented. That costs figures, and that what he sent could
// be played back.
const maxSenders = 4096

// Reasons for which an Inbox refuses a frame, as Refused names them.
const (
	reasonSubject   = "subject"   // not the subject of an Up
	reasonForeign   = "foreign"   // addressed to another region
	reasonNewer     = "newer"     // of a version that is not spoken here yet
	reasonOlder     = "older"     // of one that is no longer
	reasonOversized = "oversized" // larger than a frame may be
	reasonMalformed = "malformed" // cut short, or not a frame at all
	reasonIdentity  = "identity"  // frame and subject name different senders
	reasonLoop      = "loop"      // from a region to itself
	reasonLanes     = "lanes"     // other lanes than ours
	reasonReplayed  = "replayed"  // of long ago, as its number says
	reasonMuted     = "muted"     // not even read: its sender had too many refused
)

var errMuted = errors.New("its sender is muted")

// Inbox is where an aggregator takes frames in: it reads them, checks that they
// come from whom the subject says, and remembers who was heard of. It is safe
// for concurrent use.
type Inbox struct {
	region string
	lanes  int

	mu         sync.Mutex // guards everything below
	senders    map[senderID]*list.Element
	byArrival  *list.List // of *sender; who was heard of last stands first
	refused    map[string]uint64
	offenders  offenders
	secrets    secrets
	census     census
	places     places
	lanesNews  news
	duplicates uint64
}

// senderID is one process that sends. A region's aggregators share a node.
type senderID struct {
	kind Kind
	node uint64
	name string
}

type sender struct {
	id          senderID
	since, seen int64
	incarnation uint64
	secret      uint64 // Up.SecretCheck; 0: not told
	estranged   bool   // it has another than most
	lanes       []arrivals

	replaced int64    // when an edge's incarnation replaced another, or was first heard of
	formers  []former // earlier incarnations of an edge
	namesake namesake
	behind   []past // of a region's aggregator, far behind lanes; nil: nothing
}

// NewInbox makes the Inbox of an aggregator of region.
func NewInbox(region string, lanes int) *Inbox {
	return &Inbox{
		region: region, lanes: lanes,
		senders: map[senderID]*list.Element{}, byArrival: list.New(), refused: map[string]uint64{},
		offenders: newOffenders(), places: places{of: map[uint64]int{}},
	}
}

// Admit reads a frame that arrived on subject and checks that its sender is who
// the subject says. On an error there is no frame, and the status is what to
// answer; a MutedError says that its sender is not listened to from now on. A
// frame that was seen before is admitted again: joining it changes nothing, and
// its sender may have missed the answer.
func (in *Inbox) Admit(now int64, subject string, payload []byte) (*Up, Status, error) {
	from, reason, err := in.address(subject)
	if err != nil { // there is no sender, or one whom the bus should not have let through
		in.mu.Lock()
		defer in.mu.Unlock()
		in.refused[reason]++
		return nil, StatusForbidden, err
	}
	if why := in.muted(now, from); why != nil {
		return nil, StatusForbidden, fmt.Errorf("admit frame on %s: %w: %w", subject, errMuted, why)
	}
	u, status, reason, err := in.check(from, subject, payload)
	in.mu.Lock()
	defer in.mu.Unlock()
	if err == nil && !in.note(now, u) {
		status, reason = StatusForbidden, reasonReplayed
		err = fmt.Errorf("admit frame on %s: number %d of incarnation %d is played back: it arrived before, or is more than %d behind its sender's newest", subject, u.Seq, u.Incarnation, replayWindow)
	}
	if err != nil {
		in.refused[reason]++
		if l := (*LanesError)(nil); errors.As(err, &l) {
			l.News = in.lanesNews.first(now, from)
			return nil, status, err
		}
		if term := in.offenders.refuse(now, from, err); term > 0 {
			err = &MutedError{Sender: from, For: term, Err: err}
		}
		return nil, status, err
	}
	in.offenders.good(now, from)
	return u, StatusOK, nil
}

// address reads the subject of a frame, and checks that it is to this region.
func (in *Inbox) address(subject string) (from Sender, reason string, err error) {
	from, err = ParseUp(subject)
	if err != nil {
		return from, reasonSubject, fmt.Errorf("admit frame: %w", err)
	}
	if from.Region != in.region {
		return from, reasonForeign, fmt.Errorf("admit frame on %s: it is addressed to %s, this is %s", subject, from.Region, in.region)
	}
	return from, "", nil
}

// muted says why a frame is refused unread, and counts it then; nil: it is not.
func (in *Inbox) muted(now int64, from Sender) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	why := in.offenders.muted(now, from)
	if why != nil {
		in.refused[reasonMuted]++
	}
	return why
}

// Muted is the number of senders that are not listened to.
func (in *Inbox) Muted(now int64) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.offenders.count(now)
}

func (in *Inbox) check(from Sender, subject string, payload []byte) (u *Up, status Status, reason string, err error) {
	if from.Kind == KindRegion && from.From == in.region {
		return nil, StatusForbidden, reasonLoop, fmt.Errorf("admit frame on %s: a region does not send to itself", subject)
	}
	if lanes := lanesOf(payload); lanes != 0 && lanes != in.lanes {
		err := &LanesError{Sender: from, Lanes: lanes, Want: in.lanes}
		return nil, StatusUnsupported, reasonLanes, fmt.Errorf("admit frame on %s: %w", subject, err)
	}
	u = new(Up)
	if err := u.UnmarshalBinary(payload); err != nil {
		return nil, StatusUnsupported, unreadable(err), fmt.Errorf("admit frame on %s: %w", subject, err)
	}
	if err := identify(from, u); err != nil {
		return nil, StatusForbidden, reasonIdentity, fmt.Errorf("admit frame on %s: %w", subject, err)
	}
	if err := in.fit(from, u); err != nil {
		return nil, StatusUnsupported, reasonLanes, fmt.Errorf("admit frame on %s: %w", subject, err)
	}
	return u, StatusOK, "", nil
}

// unreadable is the reason for which the codec would not read a frame.
func unreadable(err error) string {
	v := (*VersionError)(nil)
	switch {
	case errors.As(err, &v) && v.Got > v.Max:
		return reasonNewer
	case v != nil:
		return reasonOlder
	case errors.Is(err, ErrTooLarge):
		return reasonOversized
	}
	return reasonMalformed
}

// identify says where the frame and its subject name different senders. The frame's node
// is then the sender's NodeID.
func identify(from Sender, u *Up) error {
	switch {
	case u.Kind != from.Kind:
		return fmt.Errorf("kind: %d, subject says %d", u.Kind, from.Kind)
	case u.Region != from.From:
		return fmt.Errorf("region: %q, subject says %q", u.Region, from.From)
	case u.Kind == KindEdge && u.Pop != from.Pop:
		return fmt.Errorf("pop: %q, subject says %q", u.Pop, from.Pop)
	case u.Kind == KindEdge && u.Name != from.Name:
		return fmt.Errorf("name: %q, subject says %q", u.Name, from.Name)
	}
	// from.Pop and from.Name are empty of a region.
	node := NodeID(from.From, from.Pop, from.Name)
	if want := WireNodeID(from.From, from.Pop, from.Name); u.Node != want && u.Node != node {
		return fmt.Errorf("node: %016x, want %016x", u.Node, want)
	}
	u.Node = node
	return nil
}

// fit says where the frame's lane is not one of ours.
func (in *Inbox) fit(from Sender, u *Up) error {
	switch {
	case u.Lanes != in.lanes: // its head did not say so: no sender writes such a frame by mistake
		return fmt.Errorf("lanes: %d after all, its head does not say so", u.Lanes)
	case u.Lane != from.Lane:
		return fmt.Errorf("lane: %d, subject says %d", u.Lane, from.Lane)
	}
	for i := range u.Sections {
		for j := range u.Sections[i].Deltas {
			if k := u.Sections[i].Deltas[j].Key; k.Lane(u.Lanes) != u.Lane {
				return fmt.Errorf("keys: %016x belongs to lane %d, frame is of lane %d", uint64(k), k.Lane(u.Lanes), u.Lane)
			}
		}
	}
	return nil
}

// note remembers that the frame's sender was heard of; false: it is not its
// sender of now, but a frame played back.
func (in *Inbox) note(now int64, u *Up) bool {
	id := senderID{u.Kind, u.Node, u.Name}
	at := in.senders[id]
	if at == nil {
		if len(in.senders) >= maxSenders {
			in.forget()
		}
		in.places.add(id, 1)
		at = in.byArrival.PushFront(&sender{id: id, since: now, incarnation: u.Incarnation, replaced: now, lanes: make([]arrivals, in.lanes)})
		in.senders[id] = at
		in.census.of = nil
	}
	s := at.Value.(*sender)
	if s.replayed(now, u) {
		return false
	}
	in.byArrival.MoveToFront(at)
	s.seen = now
	if u.Kind == KindEdge && u.SecretCheck != 0 && u.Incarnation >= s.incarnation {
		s.secret = u.SecretCheck
	}
	if s.note(now, u) {
		in.duplicates++
	}
	return true
}

// Live is the number of this region's edges, and of regions, this one counted,
// that were heard of not longer than within before now.
func (in *Inbox) Live(now int64, within time.Duration) (edges, regions int) {
	var others []uint64 // a region has few peers, and several aggregators
	in.mu.Lock()
	defer in.mu.Unlock()
	for at := in.byArrival.Front(); at != nil; at = at.Next() {
		switch s := at.Value.(*sender); {
		case now-s.seen > int64(within):
		case s.id.kind == KindEdge:
			edges++
		case !slices.Contains(others, s.id.node):
			others = append(others, s.id.node)
		}
	}
	return edges, len(others) + 1
}

// Refused is the number of frames refused so far, by reason.
func (in *Inbox) Refused() map[string]uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return maps.Clone(in.refused)
}

// Duplicates is the number of admitted frames that had arrived before.
func (in *Inbox) Duplicates() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.duplicates
}
