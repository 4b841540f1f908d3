package deltasync

import (
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendBinary appends the shape alone to dst, as it stands in a section: 64
// bytes at most. On an error, which wraps ErrFrame, it returns dst as it was.
func (s Shape) AppendBinary(dst []byte) ([]byte, error) {
	w := writer{b: dst}
	return fits(dst, &w, s.append(&w), "shape")
}

// UnmarshalBinary replaces s by the shape in b. On an error, which wraps
// ErrFrame, s is left as it was.
func (s *Shape) UnmarshalBinary(b []byte) error {
	var out Shape
	in := message{rest: b}
	out.read(&in)
	err := in.err
	if err == nil {
		err = out.check()
	}
	if err != nil {
		return fmt.Errorf("decode shape: %w: %w", ErrFrame, err)
	}
	*s = out
	return nil
}

func (w *writer) shape(num protowire.Number, s Shape) error {
	start := len(w.b)
	at := w.open(num)
	if err := s.append(w); err != nil {
		w.b = w.b[:start]
		return err
	}
	w.close(at)
	return nil
}

func (s Shape) append(w *writer) error {
	if err := s.check(); err != nil {
		return err
	}
	w.fixed(shapeGeneration, s.Generation)
	w.uint(shapeWidth, uint64(s.Width))
	w.uint(shapeSlices, uint64(s.Slices))
	w.uint(shapeLimit, s.Limit)
	if s.Regional {
		w.uint(shapeRegional, 1)
	}
	w.uint(shapeRefill, s.Refill)
	w.uint(shapeRefillPer, uint64(s.RefillPer))
	w.uint(shapeFloor, s.Floor)
	w.uint(shapeEager, s.Eager)
	return nil
}

func (m *message) shape(s *Shape) {
	in := m.message("shape")
	s.read(&in)
	if in.err != nil && m.err == nil {
		m.err = fmt.Errorf("shape.%w", in.err)
	}
}

func (s *Shape) read(in *message) {
	for in.next() {
		switch in.num {
		case shapeGeneration:
			s.Generation = in.fixed("generation")
		case shapeWidth:
			s.Width = time.Duration(in.uint("width", uint64(maxWindow)))
		case shapeSlices:
			s.Slices = int(in.uint("slices", maxSlices))
		case shapeLimit:
			s.Limit = in.uint("limit", math.MaxUint64)
		case shapeRegional:
			s.Regional = in.uint("regional", math.MaxUint64) != 0
		case shapeRefill:
			s.Refill = in.uint("refill", maxUnits)
		case shapeRefillPer:
			s.RefillPer = time.Duration(in.uint("refill_per", uint64(maxWindow)))
		case shapeFloor:
			s.Floor = in.uint("floor", maxUnits)
		case shapeEager:
			s.Eager = min(in.uint("eager", math.MaxUint64), 101) // of 1 builds before say that it is
		}
	}
}
