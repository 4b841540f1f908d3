package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// maxVersion is the modulus of versions: doubles are exact up to the sum of two
// of them.
const maxVersion = 1 << 52

// errReply is wrapped in errors about answers that the script does not give.
var errReply = errors.New("unexpected reply")

// call is one call of the script: its arguments, and where the answers go.
type call struct {
	prefix string
	keys   []string
	args   []any
	places []place
	tag    int // of all its items, in a cluster
	reply  *redis.Cmd
	err    error
}

// place is what a call knows of one of its items.
type place struct {
	at    int           // in the batch
	item  regional.Item // without vectors
	size  int64         // of its groups, in slices
	first int64         // the first of the groups asked for
	count int64         // of the groups asked for, what lasts not counted
}

func newCall(prefix string, nonce uint64) *call {
	return &call{prefix: prefix, args: []any{nonce, int64(0)}}
}

// stamp says what time it is where the call is made.
func (c *call) stamp(now time.Time) { c.args[1] = now.UnixMilli() }

// add appends an item, which is the batch's item number at.
func (c *call) add(at int, it regional.Item, now time.Time) {
	first, last := it.Live(now)
	size := groupSize(&it)
	p := place{at: at, item: it, size: size, first: floorDiv(int64(first), size)}
	p.item = regional.Item{Key: it.Key, Width: it.Width, Slices: it.Slices, Floor: it.Floor}
	p.count = floorDiv(int64(last), size) - p.first + 1
	c.places = append(c.places, p)

	// A version above maxVersion is none of ours, nor is the one that it is made.
	head := make([]byte, 0, headBytes+groupBytes*(p.count+1))
	head = appendUint(head, min(it.Version, maxVersion+1), headBytes-1)
	headAt := len(c.args)
	switch c.args = append(c.args, nil); {
	case it.Note == "":
		head = append(head, 0)
	case it.NotedUntil == 0 && (it.Former == "" || it.Former == it.Note):
		head = append(head, 1)
		c.args = append(c.args, member(it.Key, it.Note))
	default:
		former := ""
		if it.Former != "" && it.Former != it.Note {
			former = member(it.Key, it.Former)
		}
		head = append(head, 2)
		c.args = append(c.args, member(it.Key, it.Note), former, it.NotedUntil/int64(time.Millisecond))
	}
	var room [64]byte
	name := appendName(room[:0], c.prefix, &it)
	carries := cellsOf(it.Carries)
	millis, kept := it.Width.Milliseconds(), it.Kept().Milliseconds()
	for g := p.first; g < p.first+p.count; g++ {
		from, end := crdt.Slice(g*size), crdt.Slice((g+1)*size)
		c.keys = append(c.keys, string(strconv.AppendInt(name, g, 10)))
		n := 0
		for i := range it.Vectors {
			v := &it.Vectors[i]
			if cells := between(v.Cells, max(first, from), min(last+1, end)); len(cells) > 0 {
				c.args = append(c.args, appendField(nil, v.Source, v.Replica), appendVector(nil, from, cells))
				n++
			}
		}
		if cells := between(carries, max(first, from), min(last+1, end)); len(cells) > 0 {
			c.args = append(c.args, fieldCarry, appendVector(nil, from, cells))
			n++
		}
		head = appendGroup(head, n, int64(end)*millis+kept)
	}
	n, expires := c.addLasting(&it, string(append(name, "rest"...)), now)
	c.args[headAt] = appendGroup(head, n, expires)
	if it.Note != "" {
		c.keys = append(c.keys, listName(c.prefix, tagOf(it.Key)))
	}
}

// addLasting appends what outlasts the slices, as the last of the item's groups:
// what rests of a bucket, of which the level is the charges of its one cell, and
// the boundary the refunds; and a penalty, of which the charges are the end. It
// returns how many these are, and when the last of them expires.
func (c *call) addLasting(it *regional.Item, name string, now time.Time) (n int, last int64) {
	c.keys = append(c.keys, name)
	put := func(field string, cell crdt.Cell, kept int64) {
		c.args = append(c.args, field, appendVector(nil, 0, []crdt.Cell{cell}))
		n, last = n+1, max(last, kept)
	}
	since, until := it.Rests(now)
	if r := it.Rest; it.Floor && r.Level > 0 && r.Boundary >= since && r.Boundary <= until {
		put(fieldRest, crdt.Cell{Charges: r.Level, Refunds: uint64(r.Boundary)},
			(int64(r.Boundary)+1)*it.Width.Milliseconds()+regional.RestKept.Milliseconds())
	}
	if end := it.Punished(now); end != 0 {
		put(fieldUntil, crdt.Cell{Charges: uint64(end)}, end/int64(time.Millisecond)+1)
	}
	return n, last
}

// What the head of a key takes beside its groups, and each of these.
const (
	headBytes  = 7 + 1
	groupBytes = 3 + 6
)

// appendGroup appends what the head of a key says of a group: how many of its
// vectors come, and when it expires, in milliseconds since 1970.
func appendGroup(head []byte, vectors int, expires int64) []byte {
	head = appendUint(head, uint64(vectors), 3)
	return appendUint(head, uint64(max(expires, 0)), 6)
}

// cellsOf is carries as a vector: a cell a boundary, ascending, whose charges
// are the level.
func cellsOf(carries []crdt.Carry) []crdt.Cell {
	if len(carries) == 0 {
		return nil
	}
	var v crdt.Vector
	for _, c := range carries {
		v.Join(crdt.Cell{Slice: c.Boundary, Charges: c.Level})
	}
	return v.Cells(nil)
}

func (c *call) evalsha(ctx context.Context, p redis.Pipeliner) *redis.Cmd {
	return p.EvalSha(ctx, mergeScript.Hash(), c.keys, c.args...)
}

func (c *call) eval(ctx context.Context, p redis.Pipeliner) *redis.Cmd {
	return p.Eval(ctx, mergeSource, c.keys, c.args...)
}

// read puts the answers in their places of out.
func (c *call) read(out []regional.Item) error {
	reply, err := c.reply.Slice()
	if err != nil {
		return fmt.Errorf("%w: %w", errReply, err)
	}
	if len(reply) != 1+len(c.places) {
		return fmt.Errorf("%w: %d answers to %d keys", errReply, len(reply)-1, len(c.places))
	}
	millis, ok := reply[0].(int64)
	if !ok {
		return fmt.Errorf("%w: the time is %v", errReply, reply[0])
	}
	now := time.UnixMilli(max(millis, c.args[1].(int64)))
	for i := range c.places {
		p := &c.places[i]
		if out[p.at], err = p.read(reply[1+i], now); err != nil {
			return fmt.Errorf("key %016x: %w", uint64(p.item.Key), err)
		}
	}
	return nil
}

// read reads the answer to one item, given at now: by Redis's clock, set back as
// merge.lua does, or by the caller's if that is ahead.
func (p *place) read(reply any, now time.Time) (regional.Item, error) {
	out := p.item
	if version, ok := reply.(int64); ok {
		out.Version = uint64(version)
		return out, nil
	}
	answer, _ := reply.([]any)
	if len(answer)%2 == 0 {
		return out, fmt.Errorf("%w: %T with %d parts", errReply, reply, len(answer))
	}
	version, ok := answer[0].(int64)
	if !ok {
		return out, fmt.Errorf("%w: the version is %v", errReply, answer[0])
	}
	out.Version = uint64(version)
	var parts []part
	for i := 1; i < len(answer); i += 2 {
		group, ok := answer[i].(int64)
		fields, ok2 := answer[i+1].([]any)
		if !ok || !ok2 || group < 0 || group > p.count || len(fields)%2 != 0 {
			return out, fmt.Errorf("%w: group %v is %T", errReply, answer[i], answer[i+1])
		}
		if group == p.count {
			p.lasting(&out, fields, now)
			continue
		}
		for j := 0; j < len(fields); j += 2 {
			if pt, ok := partOf(fields[j], fields[j+1], p.first+group); ok {
				parts = append(parts, pt)
			}
		}
	}
	first, _ := out.Live(now)
	for _, v := range joinParts(parts, p.size, first) {
		if v.Source != carrySource {
			out.Vectors = append(out.Vectors, v)
			continue
		}
		for _, c := range v.Cells {
			if c.Charges > 0 { // else it was not written by us
				out.Carries = append(out.Carries, crdt.Carry{Boundary: c.Slice, Level: c.Charges})
			}
		}
	}
	return out, nil
}

// lasting reads what rests of a bucket, and a penalty; what does not parse is
// none of ours.
func (p *place) lasting(out *regional.Item, fields []any, now time.Time) {
	since, _ := p.item.Rests(now)
	for i := 0; i < len(fields); i += 2 {
		packed, ok := fields[i+1].(string)
		if !ok || fields[i] != fieldRest && fields[i] != fieldUntil {
			continue
		}
		cells, err := appendCells(nil, packed, 0, 1)
		if err != nil {
			continue
		}
		switch c := cells[0]; {
		case fields[i] == fieldUntil:
			out.Until = int64(min(c.Charges, math.MaxInt64))
			out.Until = out.Punished(now)
		case p.item.Floor && c.Charges > 0 && c.Refunds <= uint64(maxSlice) && crdt.Slice(c.Refunds) >= since:
			out.Rest = crdt.Carry{Boundary: crdt.Slice(c.Refunds), Level: c.Charges}
		}
	}
}

// carrySource marks parts of the carries among those of replicas.
const carrySource regional.Source = 0

// part is what a replica counted in one group, or the carries of the group.
type part struct {
	source  regional.Source
	replica crdt.Replica
	group   int64
	packed  string
}

// partOf reads a field of a group; ok is false for the version and for fields
// that are none of ours.
func partOf(name, value any, group int64) (p part, ok bool) {
	field, ok := name.(string)
	if !ok {
		return part{}, false
	}
	if p.packed, ok = value.(string); !ok {
		return part{}, false
	}
	p.group = group
	if field == fieldCarry {
		p.source = carrySource
		return p, true
	}
	p.source, p.replica, ok = replicaOf(field)
	return p, ok
}

// joinParts puts together the vectors of each replica over its groups, without
// the slices before first. What does not parse was not written by us: it is
// left out, since no count of anybody's is lost with it, and it expires.
func joinParts(parts []part, size int64, first crdt.Slice) []regional.Vector {
	slices.SortFunc(parts, func(a, b part) int {
		if a.source != b.source {
			return int(a.source) - int(b.source)
		}
		if c := a.replica.Compare(b.replica); c != 0 {
			return c
		}
		return int(a.group - b.group)
	})
	var out []regional.Vector
	for i := 0; i < len(parts); {
		v := regional.Vector{Source: parts[i].source, Replica: parts[i].replica}
		for ; i < len(parts) && parts[i].source == v.Source && parts[i].replica == v.Replica; i++ {
			cells, err := appendCells(v.Cells, parts[i].packed, crdt.Slice(parts[i].group*size), size)
			if err == nil {
				v.Cells = cells
			}
		}
		v.Cells = between(v.Cells, first, maxSlice)
		if len(v.Cells) > 0 {
			out = append(out, v)
		}
	}
	return out
}

// groupSize is the number of slices in a group of the item's key: a window, but
// at least four slices and 2 s, so that what lives is in few groups.
func groupSize(it *regional.Item) int64 {
	const shortest = 2 * time.Second
	return max(int64(it.Slices), 4, int64((shortest+it.Width-1)/it.Width))
}

// appendName appends what the names of a key's groups begin with.
func appendName(dst []byte, prefix string, it *regional.Item) []byte {
	const digits = "0123456789abcdef"
	hex := func(b byte) { dst = append(dst, digits[b>>4], digits[b&15]) }
	dst = append(append(dst, prefix...), '{')
	hex(byte(tagOf(it.Key)))
	dst = append(dst, '}')
	for shift := 56; shift > 0; shift -= 8 {
		hex(byte(it.Key >> shift))
	}
	dst = strconv.AppendInt(append(dst, ':'), it.Width.Milliseconds(), 10)
	dst = strconv.AppendInt(append(dst, 'x'), int64(it.Slices), 10)
	return append(dst, ':')
}

// tags is the number of hash tags.
const tags = 256

func tagOf(k deltasync.Key) int { return int(k % tags) }

const maxSlice = crdt.Slice(1<<63 - 1)

// between is the cells of slices from up to, and without, end.
func between(cells []crdt.Cell, from, end crdt.Slice) []crdt.Cell {
	order := func(c crdt.Cell, s crdt.Slice) int {
		if c.Slice < s {
			return -1
		}
		return 1
	}
	i, _ := slices.BinarySearchFunc(cells, from, order)
	j, _ := slices.BinarySearchFunc(cells[i:], end, order)
	return cells[i : i+j]
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
