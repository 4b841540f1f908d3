package limit

import (
	"fmt"
	"math"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every machine

	"github.com/spillgate/spillgate/crdt"
)

func calendar(t testing.TB, period, zone string) *Rate {
	t.Helper()
	set, problems := Compile(Document{Namespace: "t", Rules: []RuleSpec{{Name: "r", Rates: []RateSpec{{Limit: 5, Period: period, Align: zone}}}}})
	if set == nil {
		t.Fatalf("Compile(%s, %s): %v", period, zone, problems)
	}
	return set.Rules()[0].Rates[0]
}

// TestPeriodsAgainstTheCalendar walks through years in steps of minutes, in
// zones with every oddity that there was: half-hour shifts, midnights that did
// not exist or came twice, a day that was skipped.
func TestPeriodsAgainstTheCalendar(t *testing.T) {
	spans := map[string]string{
		"utc": "2023-12-20", "Europe/Paris": "2024-03-01", "America/New_York": "2024-10-20",
		"Asia/Kolkata": "2024-01-01", "Australia/Lord_Howe": "2024-03-20", "America/Sao_Paulo": "2018-10-20",
		"Pacific/Apia": "2011-12-15", "Asia/Beirut": "2024-03-15", "America/Havana": "2024-10-25",
	}
	for zone, from := range spans {
		for _, period := range []string{"day", "week", "month", "year"} {
			t.Run(zone+"/"+period, func(t *testing.T) {
				r := calendar(t, period, zone)
				begin, err := time.ParseInLocation(time.DateOnly, from, r.Zone)
				if err != nil {
					t.Fatal(err)
				}
				var last string
				slice := crdt.Slice(-1 << 62)
				for at := begin; at.Before(begin.AddDate(0, 2, 0)); at = at.Add(17 * time.Minute) {
					name := periodOf(period, at)
					s := r.SliceAt(at.UnixNano())
					switch {
					case name == last && s != slice:
						t.Fatalf("%v: slice %d within %s, want %d as before", at, s, name, slice)
					case name != last && s <= slice:
						t.Fatalf("%v: slice %d when %s begins, want more than %d", at, s, name, slice)
					}
					start, end := r.StartOf(s), r.EndOf(s)
					if at.UnixNano() < start || at.UnixNano() >= end {
						t.Fatalf("%v is not in its period, %v to %v", at, time.Unix(0, start).In(r.Zone), time.Unix(0, end).In(r.Zone))
					}
					for _, edge := range []struct {
						at   int64
						same bool
					}{{start, true}, {start - 1, false}, {end - 1, true}, {end, false}} {
						if got := periodOf(period, time.Unix(0, edge.at).In(r.Zone)) == name; got != edge.same {
							t.Fatalf("%s from %v to %v: its edge %d is in it: %t, want %t", name, time.Unix(0, start).In(r.Zone), time.Unix(0, end).In(r.Zone), edge.at, got, edge.same)
						}
					}
					if kept := time.Duration(r.Span) * r.Width; time.Duration(end-start) > kept {
						t.Fatalf("%s lasts %v, and frames say %v", name, time.Duration(end-start), kept)
					}
					last, slice = name, s
				}
			})
		}
	}
}

// periodOf names the period that at falls in, by its own calendar.
func periodOf(period string, at time.Time) string {
	switch period {
	case "day":
		return at.Format(time.DateOnly)
	case "week":
		y, w := at.ISOWeek()
		return fmt.Sprint(y, "-W", w)
	case "month":
		return at.Format("2006-01")
	default:
		return at.Format("2006")
	}
}

// What is spent in a period is taken to count for as long as the period lasts, in zones
// that turn their clocks by an hour, by half an hour, by two and by three, or moved for good.
func TestPeriodsAreAtMostAsLongAsTheyAreTaken(t *testing.T) {
	longest := map[string]time.Duration{}
	for _, zone := range []string{"UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "America/Nuuk", "Africa/Casablanca", "Asia/Almaty", "America/Scoresbysund", "Pacific/Apia", "Antarctica/Casey"} {
		for _, period := range []string{"day", "week", "month"} {
			r := calendar(t, period, zone)
			at := time.Date(2018, 1, 1, 12, 0, 0, 0, r.Zone).UnixNano()
			for at < time.Date(2031, 12, 31, 0, 0, 0, 0, r.Zone).UnixNano() {
				s := r.SliceAt(at)
				start, end := r.StartOf(s), r.EndOf(s)
				long := time.Duration(end - start)
				if kept := time.Duration(r.Span) * r.Width; long > r.Lasts()-labelSkew || long > kept || long > r.Hold {
					t.Fatalf("%s of %s from %v lasts %v; what is spent in it counts for %v, frames keep it for %v, and it is held for %v", period, zone, time.Unix(0, start).In(r.Zone), long, r.Lasts(), kept, r.Hold)
				}
				longest[period] = max(longest[period], long)
				at = end + int64(time.Hour)
			}
		}
	}
	for period, want := range map[string]time.Duration{"day": 27 * time.Hour, "week": 171 * time.Hour, "month": 747 * time.Hour} {
		if longest[period] != want {
			t.Errorf("the longest %s was %v, want %v: this test sees too little", period, longest[period], want)
		}
	}
}

func TestCalendarDay(t *testing.T) {
	r := calendar(t, "day", "Europe/Paris")
	noon := time.Date(2026, 3, 29, 10, 0, 0, 0, time.UTC).UnixNano() // the day that has 23 hours
	cells := []crdt.Cell{{Slice: r.SliceAt(noon) - 2, Charges: 5}, {Slice: r.SliceAt(noon), Charges: 5}}
	if got := r.Used(cells, Carry{}, noon); got.Whole != 5 || got.Part {
		t.Errorf("used %+v, want today's 5", got)
	}
	if got, want := r.RetryAfter(cells, Carry{}, 1, noon), 12*time.Hour; got != want {
		t.Errorf("retry after %v, want %v: midnight in Paris is 22:00 UTC in summer", got, want)
	}
	midnight := r.EndOf(r.SliceAt(noon))
	if got := r.Room(r.Used(cells, Carry{}, midnight)); got != 5 {
		t.Errorf("room at midnight %d, want 5", got)
	}
	if got := r.Room(r.Used(cells, Carry{}, midnight-1)); got != 0 {
		t.Errorf("room a nanosecond before midnight %d, want none", got)
	}
}

func TestCalendarSpellings(t *testing.T) {
	for _, c := range []struct {
		name   string
		spec   RateSpec
		period Period
		policy string
		code   string
	}{
		{"24 h in UTC", RateSpec{Per: 24 * time.Hour, Align: "utc"}, Day, "r.day", ""},
		{"7 d in a zone", RateSpec{Per: 7 * 24 * time.Hour, Align: "Asia/Tokyo", Name: "w"}, Week, "r.w", ""},
		{"month", RateSpec{Period: "month"}, Month, "r.month", ""},
		{"12 h in a zone", RateSpec{Per: 12 * time.Hour, Align: "utc"}, 0, "", "E145"},
		{"no zone", RateSpec{Period: "day", Align: "Europe/Atlantis"}, 0, "", "E149"},
		{"the machine's own zone", RateSpec{Period: "day", Align: "Local"}, 0, "", "E149"},
		{"the same by a file", RateSpec{Period: "day", Align: "localtime"}, 0, "", "E149"},
		{"another of its files", RateSpec{Period: "day", Align: "posixrules"}, 0, "", "E149"},
		{"with leap seconds", RateSpec{Period: "day", Align: "right/Europe/Paris"}, 0, "", "E149"},
		{"without, by name", RateSpec{Period: "day", Align: "posix/Europe/Paris"}, 0, "", "E149"},
		{"month of the epoch", RateSpec{Period: "month", Align: "epoch"}, 0, "", "E148"},
		{"sliding month", RateSpec{Period: "month", Algorithm: "sub_windows"}, 0, "", "E147"},
		{"fortnight", RateSpec{Period: "fortnight"}, 0, "", "E180"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.Limit = 5
			set, problems := Compile(Document{Namespace: "t", Rules: []RuleSpec{{Name: "r", Rates: []RateSpec{c.spec}}}})
			switch {
			case c.code != "":
				if set != nil || len(problems[0]) != 1 || problems[0][0].Code != c.code {
					t.Errorf("problems %v, want one %s", problems, c.code)
				}
			case set == nil:
				t.Errorf("problems %v, want none", problems)
			default:
				if r := set.Rules()[0].Rates[0]; r.Period != c.period || r.Policy != c.policy {
					t.Errorf("%+v, want period %s and policy %s", r, c.period, c.policy)
				}
			}
		})
	}
}

// TestClockSetBack: what was charged before a clock was set back by more than
// a window must not count until its time comes round again.
func TestClockSetBack(t *testing.T) {
	r := &Rate{Limit: 5, Ceiling: 5, Window: time.Minute, Slices: 40, Span: 40, Width: 1500 * time.Millisecond, Algorithm: SubWindows, Oldest: OldestLinear, Round: RoundNone}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	cells := []crdt.Cell{{Slice: r.SliceAt(now), Charges: 5}}
	for _, c := range []struct {
		back time.Duration
		used uint64
	}{{0, 5}, {time.Second, 5}, {30 * time.Second, 5}, {time.Minute, 5}, {70 * time.Second, 0}, {time.Hour, 0}} {
		if got := r.Used(cells, Carry{}, now-int64(c.back)).Whole; got != c.used {
			t.Errorf("set back by %v: used %d, want %d", c.back, got, c.used)
		}
	}
	for back := time.Duration(0); back < 2*time.Minute; back += 100 * time.Millisecond {
		if wait := r.RetryAfter(cells, Carry{}, 5, now-int64(back)); wait > 2*time.Minute+5*time.Second {
			t.Errorf("set back by %v: retry after %v, want at most two windows", back, wait)
		}
	}
}

// The last period of 64 bits ends with them, and is found as fast as any.
func TestLastPeriodEnds(t *testing.T) {
	for _, period := range []string{"day", "week", "month", "year"} {
		r := calendar(t, period, "UTC")
		now := int64(math.MaxInt64) - 1
		if end := r.EndOf(r.SliceAt(now)); end <= now {
			t.Errorf("%s: the window of the last instant ends at %d", period, end)
		}
	}
}
