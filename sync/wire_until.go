package deltasync

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// untils are ends of penalties, one a key.
type untils struct {
	n  int
	at func(i int) *int64
}

// untils appends the column of ends of penalties, unless it is all zero.
func (w *writer) untils(num protowire.Number, u untils) error {
	some := false
	for i := range u.n {
		until := *u.at(i)
		if err := checkUntil(until); err != nil {
			return err
		}
		some = some || until != 0
	}
	if !some {
		return nil
	}
	at := w.open(num)
	for i := range u.n {
		w.b = protowire.AppendVarint(w.b, uint64(*u.at(i)))
	}
	w.close(at)
	return nil
}

func checkUntil(until int64) error {
	if until < 0 {
		return fmt.Errorf("until: %d is before 1970", until)
	}
	return nil
}

// readUntils hands out the ends of penalties; an absent column is zeros. How
// far ahead one may lie is for those to judge who know the time.
func readUntils(c *column, to untils) error {
	switch {
	case !c.set:
		return nil
	case c.len() != to.n:
		return fmt.Errorf("until: %d of them for %d keys", c.len(), to.n)
	}
	for i := range to.n {
		v, ok := c.next()
		switch {
		case !ok:
			return fmt.Errorf("until: %w", errCut)
		case v > math.MaxInt64:
			return fmt.Errorf("until: %d, want at most %d", v, int64(math.MaxInt64))
		}
		*to.at(i) = int64(v)
	}
	return nil
}
