package deltasync

import (
	"fmt"
	"math"
	"slices"

	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
)

// AppendBinary appends the frame to dst. On an error, which wraps ErrFrame or
// ErrTooLarge, it returns dst as it was.
func (u *Up) AppendBinary(dst []byte) ([]byte, error) {
	w := writer{b: slices.Grow(dst, u.roughly())}
	return fits(dst, &w, u.append(&w), "up")
}

// roughly is how many bytes the frame takes, so that it need not move as it grows:
// not many more where its deltas have a slice or two.
func (u *Up) roughly() int {
	n := 208
	for i := range u.Sections {
		n += 96 + 13*len(u.Sections[i].Deltas)
	}
	return n
}

func (u *Up) append(w *writer) error {
	if err := u.checkHead(); err != nil {
		return err
	}
	if err := w.version(0); err != nil {
		return err
	}
	w.uint(upKind, uint64(u.Kind))
	w.text(upRegion, u.Region)
	w.text(upPop, u.Pop)
	w.text(upName, u.Name)
	w.fixed(upNode, u.Node)
	w.uint(upIncarnation, u.Incarnation)
	w.uint(upLane, uint64(u.Lane))
	w.uint(upLanes, uint64(u.Lanes))
	w.uint(upSeq, u.Seq)
	w.fixed(upSentAt, uint64(u.SentAt))
	for i := range u.Sections {
		at := w.open(upSections)
		if err := u.Sections[i].append(w); err != nil {
			return fmt.Errorf("sections[%d].%w", i, err)
		}
		w.close(at)
	}
	w.uint(upFeatures, uint64(u.Features))
	w.fixed(upHeardEpoch, u.HeardEpoch)
	w.fixed(upSecretCheck, u.SecretCheck)
	w.fixed(upHears, u.Hears)
	w.fixed(upSilent, u.Silent)
	return nil
}

// UnmarshalBinary replaces u by the frame in b, which it keeps no part of. On
// an error, which wraps ErrFrame, ErrTooLarge or a *VersionError, u is left as
// it was. It allocates no more than a small multiple of len(b).
func (u *Up) UnmarshalBinary(b []byte) error {
	var out Up
	if err := decode(b, "up", out.read); err != nil {
		return err
	}
	*u = out
	return nil
}

// headFields is how many fields a frame's head may have, and more than it has.
const headFields = 32

// lanesOf is how many lanes the sender of a frame has, as its head says, of which
// no more is read than that; 0: it does not say, or is no head.
func lanesOf(b []byte) int {
	if open(b, "up") != nil {
		return 0
	}
	m := message{rest: b}
	for range headFields {
		if !m.next() || m.num == upSections {
			return 0
		}
		if m.num == upLanes {
			lanes := m.uint("lanes", MaxLanes)
			if m.err != nil {
				return 0
			}
			return int(lanes)
		}
	}
	return 0
}

func (u *Up) read(m message) error {
	for m.next() {
		switch m.num {
		case upKind:
			u.Kind = Kind(m.uint("kind", math.MaxUint8))
		case upRegion:
			u.Region = m.token("region")
		case upPop:
			u.Pop = m.token("pop")
		case upName:
			u.Name = m.token("name")
		case upNode:
			u.Node = m.fixed("node")
		case upIncarnation:
			u.Incarnation = m.uint("incarnation", maxIncarnation)
		case upLane:
			u.Lane = int(m.uint("lane", MaxLanes-1))
		case upLanes:
			u.Lanes = int(m.uint("lanes", MaxLanes))
		case upSeq:
			u.Seq = m.uint("seq", math.MaxUint64)
		case upSentAt:
			u.SentAt = int64(m.fixed("sent_at"))
		case upHeardEpoch:
			u.HeardEpoch = m.fixed("heard_epoch")
		case upSecretCheck:
			u.SecretCheck = m.fixed("secret_check")
		case upHears:
			u.Hears = m.fixed("hears")
		case upSilent:
			u.Silent = m.fixed("silent")
		case upSections:
			var s Section
			if err := s.read(m.message("sections")); err != nil {
				return fmt.Errorf("sections[%d].%w", len(u.Sections), err)
			}
			u.Sections = append(u.Sections, s)
		case upFeatures:
			u.Features = Features(m.uint("features", math.MaxUint64))
		}
	}
	if m.err != nil {
		return m.err
	}
	return u.checkHead()
}

func (s *Section) lists() lists {
	return lists{len(s.Deltas), func(i int) []crdt.Cell { return s.Deltas[i].Cells }}
}

func (s *Section) carries() carries {
	return carries{len(s.Deltas), func(i int) *crdt.Carry { return &s.Deltas[i].Carry }}
}

func (s *Section) untils() untils {
	return untils{len(s.Deltas), func(i int) *int64 { return &s.Deltas[i].Until }}
}

func (s *Section) heards() heards {
	return heards{len(s.Deltas), func(i int) *crdt.Slice { return &s.Deltas[i].Heard }}
}

func (s *Section) append(w *writer) error {
	if err := w.shape(sectionShape, s.Shape); err != nil {
		return err
	}
	if err := checkRange("life", int64(s.Life), MaxLife); err != nil {
		return err
	}
	w.uint(sectionLife, uint64(s.Life))
	if len(s.Deltas) == 0 {
		return nil
	}
	cells, carries := s.lists(), s.carries()
	base := firstSlice(carries, cells)
	if base == 0 {
		base = s.heards().first()
	}
	w.sint(sectionBase, int64(base))
	at, b := w.open(sectionKeys), w.b
	var flags Flags
	for i := range s.Deltas {
		if s.Deltas[i].Key == 0 {
			return errZeroKey
		}
		b = protowire.AppendFixed64(b, uint64(s.Deltas[i].Key))
		flags |= s.Deltas[i].Flags
	}
	w.b = b
	w.close(at)
	if flags != 0 {
		at, b := w.open(sectionFlags), w.b
		for i := range s.Deltas {
			b = appendVarint(b, uint64(s.Deltas[i].Flags))
		}
		w.b = b
		w.close(at)
	}
	if err := w.cells(sectionCells, base, cells, true); err != nil {
		return fmt.Errorf("cells.%w", err)
	}
	if err := w.untils(sectionUntil, s.untils()); err != nil {
		return err
	}
	if err := w.carries(sectionCarrySlices, sectionCarryLevels, base, carries); err != nil {
		return err
	}
	if err := w.demands(s.Deltas, demandFields[:demandsBefore]); err != nil {
		return err
	}
	if err := w.heards(sectionHeard, base, s.heards()); err != nil {
		return err
	}
	return w.demands(s.Deltas, demandFields[demandsBefore:])
}

func (s *Section) read(m message) error {
	var (
		base        crdt.Slice
		keys, flags column
		cells       cellColumns
		until       column
		heard       column
		carry       carryColumns
		demands     demandColumns
	)
	for m.next() {
		switch m.num {
		case sectionShape:
			m.shape(&s.Shape)
		case sectionLife:
			s.Life = uint32(m.uint("life", MaxLife))
		case sectionBase:
			base = m.slice("base")
		case sectionKeys:
			m.column("keys", &keys)
		case sectionFlags:
			m.varints("flags", &flags)
		case sectionCells:
			m.cells("cells", &cells)
		case sectionUntil:
			m.varints("until", &until)
		case sectionHeard:
			m.varints("heard", &heard)
		case sectionCarrySlices:
			m.varints("carry_slices", &carry.slices)
		case sectionCarryLevels:
			m.varints("carry_levels", &carry.levels)
		default:
			demands.take(&m)
		}
	}
	if m.err != nil {
		return m.err
	}
	if err := s.Shape.check(); err != nil {
		return err
	}
	n, err := keys.keys()
	if err != nil {
		return err
	}
	if flags.set && flags.len() != n {
		return fmt.Errorf("flags: %d of them for %d keys", flags.len(), n)
	}
	if n > 0 {
		s.Deltas = make([]Delta, n)
	}
	for i := range s.Deltas {
		if s.Deltas[i].Key, err = keys.key(); err != nil {
			return err
		}
		if flags.set {
			// Bits above the eighth are a later version's: dropped.
			v, ok := flags.next()
			if !ok {
				return fmt.Errorf("flags: %w", errCut)
			}
			s.Deltas[i].Flags = Flags(v)
		}
	}
	if err := cells.read(n, base, newCells, func(i int, c []crdt.Cell) { s.Deltas[i].Cells = c }); err != nil {
		return fmt.Errorf("cells.%w", err)
	}
	if err := readUntils(&until, s.untils()); err != nil {
		return err
	}
	if err := demands.read(s.Deltas); err != nil {
		return err
	}
	if err := readHeards(&heard, base, s.heards()); err != nil {
		return err
	}
	return carry.read(base, s.carries())
}
