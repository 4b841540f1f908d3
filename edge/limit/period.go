package limit

import (
	"math"
	"time"
)

// Period is a period of the calendar, in a time zone: a fixed window whose
// length the calendar says.
type Period uint8

// The periods. Weeks start on Monday (ISO 8601).
const (
	NoPeriod Period = iota
	Day
	Week
	Month
	Year
)

var periodNames = map[string]Period{"day": Day, "week": Week, "month": Month, "year": Year}

func (p Period) String() string { return nameOf(periodNames, p) }

// periodGrain is the width of the slices that periods are named by. Every
// period is longer, even a day of 23 hours, so no two share a slice, and
// shorter than 2^10 of them, so that a year fits in a frame.
const periodGrain = 12 * time.Hour

// longest is the longest that the period can be: clocks are turned back by up to
// three hours (Antarctica/Casey, until 2023). Of years only a leap year is longer whose zone
// moved west for good in it, by that: the wire has none longer than 366 days.
func (p Period) longest() time.Duration {
	const day, turned = 24 * time.Hour, 3 * time.Hour
	switch p {
	case Day:
		return day + turned
	case Week:
		return 7*day + turned
	case Month:
		return 31*day + turned
	default:
		return 366 * day
	}
}

// nominal is what the period is called in headers: a day has 24 hours there.
func (p Period) nominal() time.Duration {
	const day = 24 * time.Hour
	switch p {
	case Day:
		return day
	case Week:
		return 7 * day
	case Month:
		return 31 * day
	default:
		return 366 * day
	}
}

// start is when the period that now falls in started, both in nanoseconds
// since the Unix epoch. Where a zone has no midnight on that day, the period
// starts with the first instant of the day.
func (p Period) start(now int64, zone *time.Location) int64 {
	return p.of(time.Unix(0, now).In(zone), 0, zone)
}

// next is when the period after the one that started at start starts. Zones
// have skipped whole days; then it is the one after. What would start after the last
// instant of 64 bits (in 2262) starts then.
func (p Period) next(start int64, zone *time.Location) int64 {
	t := time.Unix(0, start).In(zone)
	for n := 1; n <= 3; n++ {
		if next := p.of(t, n, zone); next > start {
			return next
		}
	}
	return math.MaxInt64
}

// of is the start of the period n after the one that t falls in.
func (p Period) of(t time.Time, n int, zone *time.Location) int64 {
	y, m, d := t.Date()
	switch p {
	case Day:
		d += n
	case Week:
		d -= (int(t.Weekday()) + 6) % 7
		d += 7 * n
	case Month:
		m, d = m+time.Month(n), 1
	default:
		y, m, d = y+n, time.January, 1
	}
	return firstOf(y, m, d, zone).UnixNano()
}

// firstOf is the first instant of a day. Date gives some instant near a
// midnight that does not exist, or the first or the second of two: from the
// hour before it the first instant of the day is at most two steps away.
func firstOf(y int, m time.Month, d int, zone *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	_, _, want := time.Date(y, m, d, 12, 0, 0, 0, zone).Date()
	for t.Day() != want { // midnight was skipped and Date fell into the day before
		t = t.Add(30 * time.Minute)
	}
	for earlier := t.Add(-30 * time.Minute); earlier.Day() == want; earlier = t.Add(-30 * time.Minute) {
		t = earlier // midnight came twice
	}
	return t
}
