package deltasync

import (
	"fmt"
	"math"
)

// Snap asks, for an edge that starts, the owner of a lane for what is counted for
// keys near their limit, the nearest first. A Hot answers it.
type Snap struct {
	Region string
	Lane   int
	Lanes  int    // as the sender is configured
	From   uint64 // 0 for the first part, then Hot.Next of the one before
}

// MaxSnapshot is how many keys the parts of a snapshot have, of all lanes
// together.
const MaxSnapshot = 200_000

// AppendBinary appends the frame to dst. On an error, which wraps ErrFrame, it
// returns dst as it was.
func (s *Snap) AppendBinary(dst []byte) ([]byte, error) {
	w := writer{b: dst}
	return fits(dst, &w, s.append(&w), "snap")
}

func (s *Snap) append(w *writer) error {
	if err := s.check(); err != nil {
		return err
	}
	if err := w.version(0); err != nil {
		return err
	}
	w.text(snapRegion, s.Region)
	w.uint(snapLane, uint64(s.Lane))
	w.uint(snapLanes, uint64(s.Lanes))
	w.uint(snapFrom, s.From)
	return nil
}

// UnmarshalBinary replaces s by the frame in b, which it keeps no part of. On
// an error, which wraps ErrFrame, ErrTooLarge or a *VersionError, s is left as
// it was.
func (s *Snap) UnmarshalBinary(b []byte) error {
	var out Snap
	if err := decode(b, "snap", out.read); err != nil {
		return err
	}
	*s = out
	return nil
}

func (s *Snap) read(m message) error {
	for m.next() {
		switch m.num {
		case snapRegion:
			s.Region = m.token("region")
		case snapLane:
			s.Lane = int(m.uint("lane", MaxLanes-1))
		case snapLanes:
			s.Lanes = int(m.uint("lanes", MaxLanes))
		case snapFrom:
			s.From = m.uint("from", math.MaxUint64)
		}
	}
	if m.err != nil {
		return m.err
	}
	return s.check()
}

func (s *Snap) check() error {
	var lane error
	if s.Lanes < 1 || s.Lanes > MaxLanes {
		lane = fmt.Errorf("lanes: %d, want 1 to %d", s.Lanes, MaxLanes)
	} else if s.Lane < 0 || s.Lane >= s.Lanes {
		lane = fmt.Errorf("lane: %d, want 0 to %d", s.Lane, s.Lanes-1)
	}
	return firstOf(checkToken("region", s.Region), lane)
}
