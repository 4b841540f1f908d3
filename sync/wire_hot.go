package deltasync

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendBinary appends the frame to dst. On an error, which wraps ErrFrame or
// ErrTooLarge, it returns dst as it was.
func (h *Hot) AppendBinary(dst []byte) ([]byte, error) {
	w := writer{b: dst}
	return fits(dst, &w, h.append(&w), "hot")
}

func (h *Hot) append(w *writer) error {
	if err := h.checkHead(); err != nil {
		return err
	}
	if err := w.version(0); err != nil {
		return err
	}
	w.text(hotRegion, h.Region)
	w.uint(hotLane, uint64(h.Lane))
	w.fixed(hotSentAt, uint64(h.SentAt))
	w.uint(hotLiveRegions, uint64(h.LiveRegions))
	for i := range h.Sections {
		at := w.open(hotSections)
		if err := h.Sections[i].append(w); err != nil {
			return fmt.Errorf("sections[%d].%w", i, err)
		}
		w.close(at)
	}
	w.uint(hotNext, h.Next)
	return nil
}

// UnmarshalBinary replaces h by the frame in b, which it keeps no part of. On
// an error, which wraps ErrFrame, ErrTooLarge or a *VersionError, h is left as
// it was. It allocates no more than a small multiple of len(b).
func (h *Hot) UnmarshalBinary(b []byte) error {
	var out Hot
	if err := decode(b, "hot", out.read); err != nil {
		return err
	}
	*h = out
	return nil
}

func (h *Hot) read(m message) error {
	for m.next() {
		switch m.num {
		case hotRegion:
			h.Region = m.token("region")
		case hotLane:
			h.Lane = int(m.uint("lane", MaxLanes-1))
		case hotSentAt:
			h.SentAt = int64(m.fixed("sent_at"))
		case hotLiveRegions:
			h.LiveRegions = int(m.uint("live_regions", maxLive))
		case hotSections:
			var s HotSection
			if err := s.read(m.message("sections")); err != nil {
				return fmt.Errorf("sections[%d].%w", len(h.Sections), err)
			}
			h.Sections = append(h.Sections, s)
		case hotNext:
			h.Next = m.uint("next", math.MaxUint64)
		}
	}
	if m.err != nil {
		return m.err
	}
	return h.checkHead()
}

func (s *HotSection) append(w *writer) error {
	if err := w.shape(hotSectionShape, s.Shape); err != nil {
		return err
	}
	if len(s.Keys) == 0 {
		return nil
	}
	at := w.open(hotSectionKeys)
	for i := range s.Keys {
		if s.Keys[i].Key == 0 {
			return errZeroKey
		}
		w.b = protowire.AppendFixed64(w.b, uint64(s.Keys[i].Key))
	}
	w.close(at)
	return w.totals(hotSectionTotals, len(s.Keys), s.totals, true)
}

func (s *HotSection) totals(i int) *Totals { return &s.Keys[i].Totals }

func (s *HotSection) read(m message) error {
	var (
		keys   column
		totals totalColumns
	)
	for m.next() {
		switch m.num {
		case hotSectionShape:
			m.shape(&s.Shape)
		case hotSectionKeys:
			m.column("keys", &keys)
		case hotSectionTotals:
			m.totals(&totals)
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
	if n > 0 {
		s.Keys = make([]HotKey, n)
	}
	for i := range s.Keys {
		if s.Keys[i].Key, err = keys.key(); err != nil {
			return err
		}
	}
	return totals.read(n, newCells, s.totals)
}
