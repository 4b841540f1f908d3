package deltasync

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// ErrFrame is what the codec returns, wrapped together with the name of the
// field, for a frame that breaks a rule of frame.proto.
var ErrFrame = errors.New("bad frame")

// Limits of what a frame may say; whoever needs more is mistaken or hostile.
const (
	maxCells       = 4096 // a key: 1024 slices, and those on their way in and out
	maxSlice       = crdt.Slice(1) << 53
	maxSlices      = 1024
	minWidth       = time.Millisecond
	maxWindow      = 366 * 24 * time.Hour
	maxPace        = time.Hour
	maxLive        = 1 << 20
	maxUnits       = 1 << 53              // of a bucket: what a float64 counts exactly
	maxIncarnation = 1<<(64-LifeBits) - 1 // shares 64 bits with a life: see Up.Replica
)

func (s Shape) check() error {
	switch {
	case s.Width < minWidth || s.Width > maxWindow:
		return fmt.Errorf("shape.width: %v, want %v to %v", s.Width, minWidth, maxWindow)
	case s.Slices < 1 || s.Slices > maxSlices:
		return fmt.Errorf("shape.slices: %d, want 1 to %d", s.Slices, maxSlices)
	case s.Width > maxWindow/time.Duration(s.Slices):
		return fmt.Errorf("shape.width: %d slices of %v are more than %v", s.Slices, s.Width, maxWindow)
	case s.Refill > maxUnits:
		return fmt.Errorf("shape.refill: %d, want at most %d", s.Refill, uint64(maxUnits))
	case s.RefillPer < 0 || s.RefillPer > maxWindow:
		return fmt.Errorf("shape.refill_per: %v, want at most %v", s.RefillPer, maxWindow)
	case (s.Refill == 0) != (s.RefillPer == 0):
		return fmt.Errorf("shape.refill_per: %v for a refill of %d, want both or neither", s.RefillPer, s.Refill)
	case s.Floor > maxUnits || s.Floor > 0 && s.Refill == 0:
		return fmt.Errorf("shape.floor: %d, want at most %d, and 0 without a refill", s.Floor, uint64(maxUnits))
	}
	return nil
}

// checkCell says what is wrong with c, which follows a cell of slice prev or,
// where first, none.
func checkCell(c crdt.Cell, prev crdt.Slice, first bool) error {
	switch {
	case c.Slice < -maxSlice || c.Slice > maxSlice:
		return fmt.Errorf("slices: %d is out of range", c.Slice)
	case !first && c.Slice <= prev:
		return fmt.Errorf("slices: %d after %d, want them to ascend", c.Slice, prev)
	case c.Zero():
		return fmt.Errorf("charges: slice %d has neither charges nor refunds", c.Slice)
	}
	return nil
}

func checkCells(cells []crdt.Cell) error {
	if len(cells) > maxCells {
		return fmt.Errorf("counts: %d cells of one key, want at most %d", len(cells), maxCells)
	}
	prev := crdt.Slice(0)
	for i, c := range cells {
		if err := checkCell(c, prev, i == 0); err != nil {
			return err
		}
		prev = c.Slice
	}
	return nil
}

func checkToken(field, s string) error {
	if s == "" {
		return nil
	}
	if err := ValidToken(s); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// checkRange is for what is an int here and unsigned on the wire.
func checkRange(field string, v, limit int64) error {
	if v < 0 || v > limit {
		return fmt.Errorf("%s: %d, want 0 to %d", field, v, limit)
	}
	return nil
}

// checkHead is the rules for an Up that hold on both sides, its sections aside.
func (u *Up) checkHead() error {
	var lane error
	switch {
	case u.Lanes < 1 || u.Lanes > MaxLanes:
		lane = fmt.Errorf("lanes: %d, want 1 to %d", u.Lanes, MaxLanes)
	case u.Lane < 0 || u.Lane >= u.Lanes:
		lane = fmt.Errorf("lane: %d, want 0 to %d", u.Lane, u.Lanes-1)
	}
	var kind, incarnation error
	if u.Kind != KindEdge && u.Kind != KindRegion {
		kind = fmt.Errorf("kind: %d is unknown", u.Kind)
	}
	if u.Incarnation > maxIncarnation {
		incarnation = fmt.Errorf("incarnation: %d, want at most %d", u.Incarnation, uint64(maxIncarnation))
	}
	return firstOf(kind, lane, incarnation,
		checkToken("region", u.Region), checkToken("pop", u.Pop), checkToken("name", u.Name))
}

func (d *Down) checkHead() error {
	var status error
	if d.Status == 0 {
		status = errors.New("status: missing")
	}
	return firstOf(status, checkToken("region", d.Region),
		checkRange("totals", int64(len(d.Totals)), maxKeys),
		checkRefused(d.Refused),
		checkRange("pace", int64(d.Pace), int64(maxPace)),
		checkRange("live_edges", int64(d.LiveEdges), maxLive),
		checkRange("live_regions", int64(d.LiveRegions), maxLive),
		checkRange("named", int64(min(d.Named, math.MaxInt64)), math.MaxUint32))
}

func checkRefused(refused []uint32) error {
	for n, i := range refused {
		switch {
		case i >= maxKeys:
			return fmt.Errorf("refused: delta %d, want it below %d", i, maxKeys)
		case n > 0 && i <= refused[n-1]:
			return fmt.Errorf("refused: %d after %d, want them to ascend", i, refused[n-1])
		}
	}
	return nil
}

func (h *Hot) checkHead() error {
	return firstOf(checkToken("region", h.Region),
		checkRange("lane", int64(h.Lane), MaxLanes-1),
		checkRange("live_regions", int64(h.LiveRegions), maxLive))
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// fits returns the frame that was appended to dst, or the error that kept it
// from being one.
func fits(dst []byte, w *writer, err error, what string) ([]byte, error) {
	n := len(w.b) - len(dst)
	switch {
	case err != nil:
		return dst, fmt.Errorf("encode %s: %w: %w", what, ErrFrame, err)
	case n > MaxFrame:
		return dst, fmt.Errorf("encode %s: %w: %d bytes, want at most %d: split it", what, ErrTooLarge, n, MaxFrame)
	}
	return w.b, nil
}
