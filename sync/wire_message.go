package deltasync

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
)

// writer appends fields of a message. Like every proto3 writer it leaves out
// scalars that are zero.
type writer struct{ b []byte }

func (w *writer) uint(num protowire.Number, v uint64) {
	if v != 0 {
		w.b = protowire.AppendTag(w.b, num, protowire.VarintType)
		w.b = protowire.AppendVarint(w.b, v)
	}
}

func (w *writer) sint(num protowire.Number, v int64) { w.uint(num, protowire.EncodeZigZag(v)) }

func (w *writer) fixed(num protowire.Number, v uint64) {
	if v != 0 {
		w.b = protowire.AppendTag(w.b, num, protowire.Fixed64Type)
		w.b = protowire.AppendFixed64(w.b, v)
	}
}

func (w *writer) text(num protowire.Number, s string) {
	if s != "" {
		w.b = protowire.AppendTag(w.b, num, protowire.BytesType)
		w.b = protowire.AppendString(w.b, s)
	}
}

// appendVarint appends a number of a column. Columns are appended to a variable
// of their own, for as in column a field would cost a write barrier a number.
func appendVarint(b []byte, v uint64) []byte {
	if v < 0x80 { // nearly all
		return append(b, byte(v))
	}
	return protowire.AppendVarint(b, v)
}

// open begins a message or a packed column; close, given what open returned,
// ends it. In between its content is appended.
func (w *writer) open(num protowire.Number) int {
	w.b = protowire.AppendTag(w.b, num, protowire.BytesType)
	return len(w.b)
}

// close makes room for the length, which is known only now, by moving the
// content: one copy of a few kilobytes is cheaper than sizing all of it first.
func (w *writer) close(at int) {
	n := len(w.b) - at
	if n < 0x80 {
		w.b = append(w.b, 0)
		copy(w.b[at+1:], w.b[at:])
		w.b[at] = byte(n)
		return
	}
	var length [10]byte
	k := len(protowire.AppendVarint(length[:0], uint64(n)))
	w.b = append(w.b, length[:k]...)
	copy(w.b[at+k:], w.b[at:at+n])
	copy(w.b[at:], length[:k])
}

var (
	errCut  = errors.New("truncated or malformed field")
	errType = errors.New("wrong wire type")

	errNoVersion = errors.New("version: missing, it has to stand first")
	// Tables mark an empty place by 0, and a Keyer never makes it.
	errZeroKey = errors.New("keys: 0 names no counter")
)

// message reads the fields of one message, one after the other. Its first
// error stays; reading on yields zeros.
type message struct {
	rest []byte
	err  error

	// The field that next found.
	num     protowire.Number
	typ     protowire.Type
	number  uint64 // of a varint or a fixed64
	payload []byte // of a message, string or column; a part of the input
}

// next goes to the next field and says whether there is one.
func (m *message) next() bool {
	if m.err != nil || len(m.rest) == 0 {
		return false
	}
	num, typ, k := protowire.ConsumeTag(m.rest)
	if k < 0 {
		m.err = errCut
		return false
	}
	m.num, m.typ, m.rest = num, typ, m.rest[k:]
	switch typ {
	case protowire.VarintType:
		m.number, k = protowire.ConsumeVarint(m.rest)
	case protowire.Fixed64Type:
		m.number, k = protowire.ConsumeFixed64(m.rest)
	case protowire.BytesType:
		m.payload, k = protowire.ConsumeBytes(m.rest)
	case protowire.Fixed32Type:
		_, k = protowire.ConsumeFixed32(m.rest)
	default:
		// Groups: frame.proto has none and never will, and skipping them needs
		// recursion.
		k = -1
	}
	if k < 0 {
		m.err = fmt.Errorf("field %d: %w", num, errCut)
		return false
	}
	m.rest = m.rest[k:]
	return true
}

func (m *message) fail(field string, err error) {
	if m.err == nil {
		m.err = fmt.Errorf("%s: %w", field, err)
	}
}

func (m *message) is(typ protowire.Type, field string) bool {
	if m.typ != typ {
		m.fail(field, errType)
	}
	return m.err == nil
}

// uint is the field's value, at most limit.
func (m *message) uint(field string, limit uint64) uint64 {
	if !m.is(protowire.VarintType, field) {
		return 0
	}
	if m.number > limit {
		m.fail(field, fmt.Errorf("%d, want at most %d", m.number, limit))
		return 0
	}
	return m.number
}

// slice is the field's value as a slice.
func (m *message) slice(field string) crdt.Slice {
	if !m.is(protowire.VarintType, field) {
		return 0
	}
	s := crdt.Slice(protowire.DecodeZigZag(m.number))
	if s < -maxSlice || s > maxSlice {
		m.fail(field, fmt.Errorf("%d is out of range", s))
		return 0
	}
	return s
}

func (m *message) fixed(field string) uint64 {
	if !m.is(protowire.Fixed64Type, field) {
		return 0
	}
	return m.number
}

// token is a copy of the field's text. The length is checked first, so that
// what is not a token is not copied.
func (m *message) token(field string) string {
	if !m.is(protowire.BytesType, field) {
		return ""
	}
	if len(m.payload) > MaxToken {
		m.fail(field, fmt.Errorf("%d bytes, want at most %d", len(m.payload), MaxToken))
		return ""
	}
	return string(m.payload)
}

// message is the content of a field that is a message.
func (m *message) message(field string) message {
	if !m.is(protowire.BytesType, field) {
		return message{}
	}
	return message{rest: m.payload}
}

// column is the content of a packed column; it refuses a second part.
func (m *message) column(field string, c *column) {
	switch {
	case !m.is(protowire.BytesType, field):
	case c.set:
		m.fail(field, errors.New("stands twice"))
	default:
		*c = column{b: m.payload, set: true}
	}
}

// varints is a packed column of varints.
func (m *message) varints(field string, c *column) {
	m.column(field, c)
	if n := len(c.b); m.err == nil && n > 0 && c.b[n-1] >= 0x80 {
		m.fail(field, errCut)
	}
}

// column is a packed column: varints, or numbers of eight bytes. It is read by
// moving an index: moving the slice would cost a write barrier a number.
type column struct {
	b   []byte
	at  int
	set bool
}

// len is the number of varints: of bytes that end one.
func (c *column) len() int {
	n, b := 0, c.b
	for ; len(b) >= 8; b = b[8:] {
		n += 8 - bits.OnesCount64(binary.LittleEndian.Uint64(b)&0x8080808080808080)
	}
	for _, x := range b {
		if x < 0x80 {
			n++
		}
	}
	return n
}

// ahead is the next n bytes; nil where there are fewer.
func (c *column) ahead(n int) []byte {
	if len(c.b)-c.at < n {
		return nil
	}
	return c.b[c.at : c.at+n]
}

// next takes the next varint; ok is false at the end and for a malformed one.
func (c *column) next() (v uint64, ok bool) {
	if c.at < len(c.b) && c.b[c.at] < 0x80 {
		c.at++
		return uint64(c.b[c.at-1]), true
	}
	return c.long()
}

// long is next of more than a byte.
func (c *column) long() (v uint64, ok bool) {
	v, k := protowire.ConsumeVarint(c.b[c.at:])
	if k < 0 {
		return 0, false
	}
	c.at += k
	return v, true
}

// orZero is next, or zero where there is no column.
func (c *column) orZero() (v uint64, ok bool) {
	if !c.set {
		return 0, true
	}
	return c.next()
}

// keys is the number of keys in a column of keys.
func (c *column) keys() (int, error) {
	if len(c.b)%8 != 0 {
		return 0, fmt.Errorf("keys: %d bytes are no multiple of 8", len(c.b))
	}
	return len(c.b) / 8, nil
}

// key takes the next key; there must be one.
func (c *column) key() (Key, error) {
	v := binary.LittleEndian.Uint64(c.b[c.at:])
	c.at += 8
	if v == 0 {
		return 0, errZeroKey
	}
	return Key(v), nil
}
