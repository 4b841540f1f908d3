package deltasync

import (
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
)

// AppendBinary appends the frame to dst. On an error, which wraps ErrFrame or
// ErrTooLarge, it returns dst as it was.
func (d *Down) AppendBinary(dst []byte) ([]byte, error) {
	w := writer{b: dst}
	return fits(dst, &w, d.append(&w), "down")
}

func (d *Down) append(w *writer) error {
	if err := d.checkHead(); err != nil {
		return err
	}
	if err := w.version(d.Version); err != nil {
		return err
	}
	w.uint(downStatus, uint64(d.Status))
	w.text(downRegion, d.Region)
	w.fixed(downNode, d.Node)
	w.uint(downSeq, d.Seq)
	w.fixed(downEchoSentAt, uint64(d.EchoSentAt))
	w.fixed(downReceivedAt, uint64(d.ReceivedAt))
	w.fixed(downSentAt, uint64(d.SentAt))
	w.fixed(downStoreEpoch, d.StoreEpoch)
	w.uint(downPace, uint64(d.Pace))
	w.uint(downLiveEdges, uint64(d.LiveEdges))
	w.uint(downLiveRegions, uint64(d.LiveRegions))
	if len(d.Totals) > 0 {
		// The block of peers alone says how many keys there are: never left out.
		if err := w.totals(downTotals, len(d.Totals), func(i int) *Totals { return &d.Totals[i] }, false); err != nil {
			return err
		}
	}
	if len(d.Refused) > 0 {
		at := w.open(downRefused)
		for _, i := range d.Refused {
			w.b = protowire.AppendVarint(w.b, uint64(i))
		}
		w.close(at)
	}
	w.fixed(downStore, d.Store)
	w.uint(downMistake, uint64(d.Mistake))
	w.uint(downLanes, uint64(d.Lanes))
	w.uint(downBetween, uint64(d.Between))
	w.uint(downRegions, uint64(d.Regions))
	w.fixed(downHears, d.Hears)
	w.uint(downNamed, d.Named)
	return nil
}

// UnmarshalBinary replaces d by the frame in b, which it keeps no part of. On
// an error, which wraps ErrFrame, ErrTooLarge or a *VersionError, d is left as
// it was. It allocates no more than a small multiple of len(b).
func (d *Down) UnmarshalBinary(b []byte) error {
	var out Down
	if err := out.open(b, func(n int) []Totals { return make([]Totals, n) }, newCells); err != nil {
		return err
	}
	*d = out
	return nil
}

// open reads a frame into d, which is empty, and room that it is given.
func (d *Down) open(b []byte, totals func(int) []Totals, cells func(int) []crdt.Cell) error {
	return decode(b, "down", func(m message) error { return d.read(m, totals, cells) })
}

func (d *Down) read(m message, room func(int) []Totals, cells func(int) []crdt.Cell) error {
	var (
		totals  totalColumns
		refused column
	)
	for m.next() {
		switch m.num {
		case downStatus:
			d.Status = Status(m.uint("status", math.MaxUint8))
		case downRegion:
			d.Region = m.token("region")
		case downNode:
			d.Node = m.fixed("node")
		case downSeq:
			d.Seq = m.uint("seq", math.MaxUint64)
		case downEchoSentAt:
			d.EchoSentAt = int64(m.fixed("echo_sent_at"))
		case downReceivedAt:
			d.ReceivedAt = int64(m.fixed("received_at"))
		case downSentAt:
			d.SentAt = int64(m.fixed("sent_at"))
		case downStoreEpoch:
			d.StoreEpoch = m.fixed("store_epoch")
		case downPace:
			d.Pace = time.Duration(m.uint("pace", uint64(maxPace)))
		case downLiveEdges:
			d.LiveEdges = int(m.uint("live_edges", maxLive))
		case downStore:
			d.Store = m.fixed("store")
		case downMistake:
			d.Mistake = Mistake(m.uint("mistake", math.MaxUint8))
		case downLanes:
			d.Lanes = int(m.uint("lanes", MaxLanes))
		case downLiveRegions:
			d.LiveRegions = int(m.uint("live_regions", maxLive))
		case downBetween:
			d.Between = time.Duration(m.uint("between", uint64(maxPace)))
		case downRegions:
			d.Regions = int(m.uint("regions", maxLive))
		case downHears:
			d.Hears = m.fixed("hears")
		case downNamed:
			d.Named = m.uint("named", math.MaxUint32)
		case downTotals:
			m.totals(&totals)
		case downRefused:
			m.varints("refused", &refused)
		}
	}
	if m.err != nil {
		return m.err
	}
	if err := d.readRefused(&refused); err != nil {
		return err
	}
	n := totals.peers.lists()
	if n > maxKeys {
		return fmt.Errorf("totals.peers.counts: %d keys, want at most %d", n, maxKeys)
	}
	if n > 0 {
		d.Totals = room(n)
	}
	if err := totals.read(n, cells, func(i int) *Totals { return &d.Totals[i] }); err != nil {
		return err
	}
	return d.checkHead()
}

// readRefused takes the indices out of their column.
func (d *Down) readRefused(c *column) error {
	n := c.len()
	if n > maxKeys {
		return fmt.Errorf("refused: %d of them, want at most %d", n, maxKeys)
	}
	for range n {
		v, ok := c.next()
		if !ok {
			return fmt.Errorf("refused: %w", errCut)
		}
		d.Refused = append(d.Refused, uint32(min(v, maxKeys))) // checkHead refuses maxKeys
	}
	return nil
}

// maxKeys is the number of keys that an Up can ask about: a key takes eight
// bytes in it.
const maxKeys = MaxFrame / 8

// totals appends the totals of n keys; optional ones are left out if no key
// has a cell or a carry.
func (w *writer) totals(num protowire.Number, n int, at func(i int) *Totals, optional bool) error {
	others := lists{n, func(i int) []crdt.Cell { return at(i).Others }}
	peers := lists{n, func(i int) []crdt.Cell { return at(i).Peers }}
	own := lists{n, func(i int) []crdt.Cell { return at(i).Own }}
	until := untils{n, func(i int) *int64 { return &at(i).Until }}
	carry := carries{n, func(i int) *crdt.Carry { return &at(i).Carry }}
	base := firstSlice(carry, others, peers, own)
	start := len(w.b)
	block := w.open(num)
	w.sint(totalsBase, int64(base))
	if err := w.cells(totalsOthers, base, others, true); err != nil {
		return fmt.Errorf("totals.others.%w", err)
	}
	if err := w.cells(totalsPeers, base, peers, optional); err != nil {
		return fmt.Errorf("totals.peers.%w", err)
	}
	if err := w.cells(totalsOwn, base, own, true); err != nil {
		return fmt.Errorf("totals.own.%w", err)
	}
	shared := sharesOf(n, at)
	if err := w.shares(shared, before); err != nil {
		return fmt.Errorf("totals.%w", err)
	}
	if err := w.untils(totalsUntil, until); err != nil {
		return fmt.Errorf("totals.%w", err)
	}
	if err := w.carries(totalsCarrySlices, totalsCarryLevels, base, carry); err != nil {
		return fmt.Errorf("totals.%w", err)
	}
	if err := w.shares(shared, behind); err != nil {
		return fmt.Errorf("totals.%w", err)
	}
	if len(w.b) == block {
		w.b = w.b[:start]
		return nil
	}
	w.close(block)
	return nil
}

// totalColumns is the totals as they stand on the wire.
type totalColumns struct {
	base               crdt.Slice
	others, peers, own cellColumns
	until              column
	carry              carryColumns
	shares             shareColumns
}

func (m *message) totals(t *totalColumns) {
	in := m.message("totals")
	for in.next() {
		switch in.num {
		case totalsBase:
			t.base = in.slice("base")
		case totalsOthers:
			in.cells("others", &t.others)
		case totalsPeers:
			in.cells("peers", &t.peers)
		case totalsOwn:
			in.cells("own", &t.own)
		case totalsUntil:
			in.varints("until", &t.until)
		case totalsCarrySlices:
			in.varints("carry_slices", &t.carry.slices)
		case totalsCarryLevels:
			in.varints("carry_levels", &t.carry.levels)
		default:
			t.shares.take(&in)
		}
	}
	if in.err != nil && m.err == nil {
		m.err = fmt.Errorf("totals.%w", in.err)
	}
}

func (t *totalColumns) read(n int, room func(int) []crdt.Cell, at func(i int) *Totals) error {
	if err := t.others.read(n, t.base, room, func(i int, c []crdt.Cell) { at(i).Others = c }); err != nil {
		return fmt.Errorf("totals.others.%w", err)
	}
	if err := t.peers.read(n, t.base, room, func(i int, c []crdt.Cell) { at(i).Peers = c }); err != nil {
		return fmt.Errorf("totals.peers.%w", err)
	}
	if err := t.own.read(n, t.base, room, func(i int, c []crdt.Cell) { at(i).Own = c }); err != nil {
		return fmt.Errorf("totals.own.%w", err)
	}
	if err := readUntils(&t.until, untils{n, func(i int) *int64 { return &at(i).Until }}); err != nil {
		return fmt.Errorf("totals.%w", err)
	}
	if err := t.shares.read(n, at); err != nil {
		return fmt.Errorf("totals.%w", err)
	}
	if err := t.carry.read(t.base, carries{n, func(i int) *crdt.Carry { return &at(i).Carry }}); err != nil {
		return fmt.Errorf("totals.%w", err)
	}
	return nil
}
