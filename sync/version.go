package deltasync

import (
	"cmp"
	"fmt"
	"math"
)

// VersionError is returned for a frame of a version that is not spoken here.
type VersionError struct {
	Got uint32 // version of the frame
	Max uint32 // newest version that is read here
}

func (e *VersionError) Error() string {
	if e.Got > e.Max {
		return fmt.Sprintf("frame of version %d, newest known is %d: upgrade the receiver first", e.Got, e.Max)
	}
	return fmt.Sprintf("frame of version %d is no longer read (newest known is %d): upgrade the sender", e.Got, e.Max)
}

// versions are those that a build speaks.
type versions struct {
	newest  uint32 // that it reads
	written uint32 // in which it writes what answers nothing: the build before reads it too
	oldest  uint32 // that it reads: what the build before writes
}

// spokenBy are those of the build whose newest is v.
func spokenBy(v uint32) versions {
	return versions{newest: v, written: max(v, 2) - 1, oldest: max(v, 3) - 2}
}

// speaks is a variable for tests alone, which stand for a build to come.
var speaks = spokenBy(Version)

// AnswerVersion is the version in which to answer a frame, refused or not: its own,
// as its sender reads that. What is no frame is answered as if none had been asked,
// and a version that is not spoken here by the one next to it.
func AnswerVersion(frame []byte) uint32 {
	v, err := versionOf(frame)
	if err != nil {
		return speaks.written
	}
	return min(max(v, speaks.oldest), speaks.newest)
}

// version appends what every frame begins with; of 0 the version that is written
// where nothing was asked.
func (w *writer) version(v uint32) error {
	v = cmp.Or(v, speaks.written)
	if v < speaks.oldest || v > speaks.newest {
		return fmt.Errorf("version: %d, want %d to %d", v, speaks.oldest, speaks.newest)
	}
	w.uint(upVersion, uint64(v))
	return nil
}

// versionOf is the version that a frame says it is of, spoken here or not.
func versionOf(b []byte) (uint32, error) {
	m := message{rest: b}
	if !m.next() || m.num != upVersion {
		return 0, errNoVersion
	}
	v := uint32(m.uint("version", math.MaxUint32))
	switch {
	case m.err != nil:
		return 0, m.err
	case v == 0: // it has never existed: it would look like a frame that names none
		return 0, errNoVersion
	}
	return v, nil
}

// open checks size and version of a frame, before anything else is read.
func open(b []byte, what string) error {
	if len(b) > MaxFrame {
		return fmt.Errorf("decode %s: %w: %d bytes, want at most %d", what, ErrTooLarge, len(b), MaxFrame)
	}
	v, err := versionOf(b)
	switch {
	case err != nil:
		return fmt.Errorf("decode %s: %w: %w", what, ErrFrame, err)
	case v < speaks.oldest || v > speaks.newest:
		return fmt.Errorf("decode %s: %w", what, &VersionError{Got: v, Max: speaks.newest})
	}
	return nil
}

// decode opens a frame and has its fields read.
func decode(b []byte, what string, read func(message) error) error {
	if err := open(b, what); err != nil {
		return err
	}
	if err := read(message{rest: b}); err != nil {
		return fmt.Errorf("decode %s: %w: %w", what, ErrFrame, err)
	}
	return nil
}
