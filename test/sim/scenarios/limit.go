package scenarios

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limit is a limit and its window, "100/1s".
type Limit struct {
	Limit  uint64
	Window time.Duration
}

func (l Limit) String() string {
	if l.Window%time.Second == 0 {
		return fmt.Sprintf("%d/%ds", l.Limit, l.Window/time.Second)
	}
	return fmt.Sprintf("%d/%v", l.Limit, l.Window)
}

// Set implements flag.Value.
func (l *Limit) Set(s string) (err error) {
	limit, window, ok := strings.Cut(s, "/")
	if l.Limit, err = strconv.ParseUint(limit, 10, 32); err != nil || !ok || l.Limit == 0 {
		return fmt.Errorf("%q: want a number from 1 to 4294967295 and a window, such as 100/1s", s)
	}
	if l.Window, err = time.ParseDuration(window); err != nil || l.Window < 100*time.Millisecond || l.Window > time.Hour {
		return fmt.Errorf("%q: want a window from 100ms to 1h, such as 100/1s", s)
	}
	return nil
}

// UnmarshalText reads it from data.
func (l *Limit) UnmarshalText(text []byte) error { return l.Set(string(text)) }
