package regional

import (
	"slices"
	"unsafe"

	"github.com/spillgate/spillgate/sync"
)

// Whoever asks for a share of a key need not have counted anything: so contests may take a
// part of a lane alone, and of that a PoP as much as of the lane (see popbytes.go): some
// times what is left of it, and half of its even part whatever is left. Beyond that its
// edges are told no shares of keys that they newly ask for, and others' are.

// contestShare is the part of a lane's room that contests may take; half as much again
// where many PoPs have their even parts.
const contestShare = 4

const (
	contestBytes = int(unsafe.Sizeof(contest{}))
	askerBytes   = int(unsafe.Sizeof(asker{}))
)

// mayAsk says that an edge may be told its share of a key.
func (l *lane) mayAsk(c *counter, node uint64) bool {
	more := askerBytes
	if c.contest == nil {
		more += contestBytes
	} else if c.contest.knows(node) {
		return true
	}
	pop, most, pops := deltasync.PopOf(node), l.room.bytes/contestShare, len(l.room.askers)
	has := l.room.askers[pop]
	if has == 0 {
		pops++
	}
	has += more
	return has <= most/(2*pops) || has <= popBytesShare*(most-l.room.asking-more)
}

// bill has the PoPs pay for a contest whose edges became others.
func (l *lane) bill(t *contest) {
	l.unbill(t)
	if t.pop != nobody {
		t.payers = append(t.payers, owned{t.pop, contestBytes})
	}
	for i := range t.edges {
		pop := deltasync.PopOf(t.edges[i].node)
		at := slices.IndexFunc(t.payers, func(o owned) bool { return o.pop == pop })
		if at < 0 {
			at, t.payers = len(t.payers), append(t.payers, owned{pop: pop})
		}
		t.payers[at].bytes += askerBytes
	}
	if l.room.askers == nil {
		l.room.askers = map[uint64]int{}
	}
	for _, o := range t.payers {
		l.room.askers[o.pop] += o.bytes
	}
}

// unbill gives everybody back what a contest took.
func (l *lane) unbill(t *contest) {
	for _, o := range t.payers {
		if l.room.askers[o.pop] -= o.bytes; l.room.askers[o.pop] == 0 {
			delete(l.room.askers, o.pop)
		}
	}
	t.payers = t.payers[:0]
}
