package configs

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

const maxDurationText = 64

var (
	durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h|d|w))+$`)
	durationPart = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h|d|w)`)
	looseForm    = regexp.MustCompile(`^([0-9]+)[ _-]*([A-Za-z]*)$`)

	errNotDuration = errors.New("is not a duration")

	flowForm = regexp.MustCompile(`^([0-9][0-9_]{0,24})[ ]*/[ ]*([0-9.]*(?:ns|us|µs|ms|s|m|h|d|w))$`)
)

// ParseFlow reads so many units in a time: "5/s", "300/m", "10/500ms".
func ParseFlow(s string) (limit.Flow, error) {
	if len(s) > maxDurationText {
		return limit.Flow{}, fmt.Errorf("%q is not a number in a time", clip(s))
	}
	m := flowForm.FindStringSubmatch(s)
	if m == nil {
		return limit.Flow{}, fmt.Errorf("%q is not a number in a time", clip(s))
	}
	units, err := strconv.ParseUint(strings.ReplaceAll(m[1], "_", ""), 10, 64)
	if err != nil {
		return limit.Flow{}, fmt.Errorf("%q is more than can be counted", m[1])
	}
	if strings.Trim(m[2][:1], "0123456789.") != "" {
		m[2] = "1" + m[2]
	}
	per, err := ParseDuration(m[2])
	if err != nil {
		return limit.Flow{}, err
	}
	return limit.Flow{Units: units, Per: per}, nil
}

// ParseDuration reads Go's durations, with d (24 h) and w (7 d) beside the
// other units: "1m30s", "1d", "2w".
func ParseDuration(s string) (time.Duration, error) {
	if len(s) > maxDurationText || !durationForm.MatchString(s) {
		return 0, fmt.Errorf("%q %w", clip(s), errNotDuration)
	}
	total := time.Duration(0)
	for _, part := range durationPart.FindAllStringSubmatch(s, -1) {
		number, unit, times := part[1], part[2], time.Duration(1)
		switch unit {
		case "d":
			unit, times = "h", 24
		case "w":
			unit, times = "h", 7*24
		}
		d, err := time.ParseDuration(number + unit)
		if err != nil || d > math.MaxInt64/times || total > math.MaxInt64-d*times {
			return 0, fmt.Errorf("%q is longer than 292 years", s)
		}
		total += d * times
	}
	return total, nil
}

// durationHint is what was probably meant by text that is not a duration.
func durationHint(s string) string {
	m := looseForm.FindStringSubmatch(strings.TrimSpace(clip(s)))
	if m == nil {
		return `such as 30s, 1m, 1m30s, 24h or 7d`
	}
	for _, u := range []struct{ prefix, unit string }{
		{"ms", "ms"}, {"milli", "ms"}, {"mo", ""}, {"m", "m"}, {"s", "s"}, {"h", "h"}, {"d", "d"}, {"w", "w"}, {"", "s"},
	} {
		if strings.HasPrefix(strings.ToLower(m[2]), u.prefix) && (u.prefix != "" || m[2] == "") {
			if u.unit == "" {
				return "month is a month of the calendar, 30d a fixed window of 30 days"
			}
			if _, err := ParseDuration(m[1] + u.unit); err == nil {
				return m[1] + u.unit
			}
		}
	}
	return `such as 30s, 1m, 1m30s, 24h or 7d`
}

var sizeUnits = []struct {
	name string
	size uint64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// parseSize reads a number of bytes: "64MiB", "1GB", "4096".
func parseSize(s string) (uint64, error) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil {
			break
		}
		if n > math.MaxInt64/u.size {
			return 0, fmt.Errorf("%q is more than can be addressed", clip(s))
		}
		return n * u.size, nil
	}
	return 0, fmt.Errorf("%q is not a size", clip(s))
}

// clip shortens what a message quotes.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
