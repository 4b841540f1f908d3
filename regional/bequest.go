package regional

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// What regions that are cut off have of a limit only its owner knows, by what was asked
// for before the cut. So it notes that with the key in the store's list, for whoever takes
// the lane: in front of the shape, as a field of its message that builds of before pass
// over. Its first two bytes tell which regions are meant, and then there are two for each,
// by their nodes: its part in 65535ths, 0 of one that is not cut off. The next field is
// when that became so, in ms since 1970: a store may list a key with more than one note,
// and the latest counts. So what was noted during a cut is noted anew when that is over, as
// of nobody: or it would be the latest in the next one, of which there is nothing to note.

// bequestTag is the field's: number 15, of bytes.
const bequestTag = 15<<3 | 2

// sinceTag is that of the next: number 14, a varint.
const sinceTag = 14 << 3

// byNode is the places of the peers, by their nodes, and a number that tells of which.
func (a *Aggregator) byNode() (places []int, which uint16) {
	for j, node := range a.nodes {
		places = append(places, j)
		which ^= uint16(node ^ node>>16 ^ node>>32 ^ node>>48)
	}
	slices.SortFunc(places, func(x, y int) int { return cmp.Compare(a.nodes[x], a.nodes[y]) })
	return places, which
}

// bequeaths says that the key is to be listed with what regions have that are cut off:
// that is not known anyhow, or the store has it otherwise.
func (c *counter) bequeaths() bool {
	return c.contest != nil && !c.shape.Regional && (c.contest.uneven() || c.contest.willed)
}

// bequeath appends what regions have that are cut off.
func (a *Aggregator) bequeath(note []byte, c *counter) []byte {
	places, which := a.byNode()
	note = append(note, bequestTag, byte(2+2*len(places)))
	note = binary.BigEndian.AppendUint16(note, which)
	for _, j := range places {
		note = binary.BigEndian.AppendUint16(note, uint16(c.contest.regions[j].frozen*65535+1e-3)) // one that was read stays the same
	}
	return binary.AppendUvarint(append(note, sinceTag), uint64(max(0, c.contest.changed/int64(time.Millisecond))))
}

// aheadOf is how much later than it is here something may have been noted: more than clocks
// differ that are right. What a wrong one noted is older than all else, or it would be the
// latest until then.
const aheadOf = int64(time.Second)

// bequest is what a note says that regions have, by place, and since when; nil: nothing.
func (a *Aggregator) bequest(note string, now int64) (parts []float64, since int64) {
	places, which := a.byNode()
	if len(note) < 2 || note[0] != bequestTag || int(note[1]) != 2+2*len(places) || len(note) < 2+int(note[1]) {
		return nil, 0
	}
	b := []byte(note[2:])
	if binary.BigEndian.Uint16(b) != which {
		return nil, 0
	}
	parts = make([]float64, len(places))
	sum := 0.0
	for i, j := range places {
		parts[j] = float64(binary.BigEndian.Uint16(b[2+2*i:])) / 65535
		sum += parts[j]
	}
	if sum > 1 {
		return nil, 0
	}
	if b = b[2+2*len(places):]; len(b) > 0 && b[0] == sinceTag { // else of the build before
		ms, _ := binary.Uvarint(b[1:])
		since = int64(min(ms, math.MaxInt64/uint64(time.Millisecond))) * int64(time.Millisecond)
	}
	if since > now && since-now > aheadOf {
		since = 0
	}
	return parts, since
}

// inheritParts takes over what earlier owners noted of keys, while it is not known better:
// as soon as a region is heard of it is forgotten, and what has changed here since is newer.
func (a *Aggregator) inheritParts(l *lane, heirs []heir, now int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range heirs {
		c := l.counters[h.key]
		if h.parts == nil {
			continue
		}
		some := slices.Max(h.parts) > 0
		if c == nil && some && !l.crowded() { // nobody asked for it here for a window, or more
			c = a.open(l, h.key, h.shape, nobody, false, now)
		}
		if c == nil || c.shape.Limit == 0 || c.contest == nil && !some {
			continue
		}
		t := l.contested(h.key, c, a.unseen(now), now)
		old := h.since < t.changed
		t.heard, t.changed, t.willed = max(t.heard, now), max(t.changed, min(h.since, now)), t.willed || some
		if t.will == "" {
			t.will = h.note
		}
		for j, part := range h.parts {
			r := &t.regions[j]
			if old && !r.guessed && !a.spoken.read(j).recalled {
				continue
			}
			if r.bequest = part; r.frozen != 0 && part != 0 {
				r.frozen, r.guessed = part, false
			}
		}
		l.weigh(c)
	}
}

// notes says that a key may be listed: it is known here who is cut off, and, where somebody
// is, what was noted of that is read, which who owns the lane does. Else what is there stays.
func (a *Aggregator) notes(key deltasync.Key, now int64) bool {
	lane := key.Lane(len(a.lanes))
	return !a.awaits(now) && (a.Owns(lane) && a.listed(lane) || a.aside(now) == 0)
}

// noteOf is what the store lists a key with, what no more, and until when; empty: with
// nothing, or as it is. What regions have in a cut is listed though nobody asks for the key
// here, and its counts are over: for as long as the contest is kept.
func (a *Aggregator) noteOf(l *lane, key deltasync.Key, c *counter, now int64) (note, former string, until int64) {
	note = l.note(c, now)
	if note == "" || !a.notes(key, now) {
		return "", "", 0
	}
	if !c.bequeaths() {
		return note, "", 0
	}
	t := c.contest
	t.noted, t.notedAt, t.willed = t.changed, now, t.uneven()
	var room [MaxNote]byte
	with := append(a.bequeath(room[:0], c), note...)
	if len(with) > MaxNote {
		return note, "", 0 // of so many regions each is taken to have as much
	}
	former, t.will = t.will, string(with)
	return t.will, former, now + int64(keepFrozen)
}

// unnoted has a key be listed anew, as the store did not take what it was listed with.
func (c *counter) unnoted(note string) {
	if t := c.contest; t != nil && note != "" && note == t.will {
		t.noted, t.willed = 0, true
	}
}

// renote has a key written, though nobody asks for it, where it is to be listed otherwise.
func (a *Aggregator) renote(l *lane, key deltasync.Key, c *counter, now int64) {
	t := c.contest
	if t.willed && t.uneven() && t.over(now, len(l.contests)) {
		t.level(now)
	}
	if c.bequeaths() && (t.changed != t.noted || passed(t.notedAt, now, int64(keepFrozen/2))) && a.notes(key, now) {
		l.again(key, c)
	}
}

// level has regions that are cut off have what they have of a key that is new, as a contest
// is forgotten though they still are; and this be noted, if it was noted otherwise.
func (t *contest) level(now int64) {
	for j := range t.regions {
		r := &t.regions[j]
		if r.bequest = 0; r.frozen != 0 {
			r.frozen = 1 / float64(len(t.regions)+1)
		}
	}
	t.changed = now
}
