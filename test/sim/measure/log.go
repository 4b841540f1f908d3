package measure

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// limits are those of the rule: one, or three of which longer ones bind harder.
func limits(o Options) []limit.RateSpec {
	spec := func(limits, windows uint64) limit.RateSpec {
		r := limit.RateSpec{Limit: limits * o.Limit, Per: time.Duration(windows) * o.Window, Consistency: o.Consistency, Surge: o.Conditions.Surge, OnPartition: o.Conditions.OnPartition}
		if o.Consistency == Naive {
			r.Consistency = "loose"
		}
		if r.Consistency != "adaptive" {
			r.Surge, r.OnPartition = 0, ""
		}
		if r.Consistency == "strict" {
			r.StrictWait = o.Conditions.StrictWait
		}
		return shaped(r, o.Algorithm)
	}
	if o.Conditions.Rates == 3 {
		return []limit.RateSpec{spec(1, 1), spec(3, 4), spec(6, 10)}
	}
	return []limit.RateSpec{spec(1, 1)}
}

// user is one key as exact logs see it.
type user struct {
	name     string
	ideal    book    // what a log that sees all requests admits
	admitted book    // what was admitted
	filled   book    // that, and places that were free and refused
	over     float64 // most above a limit, as a part of it
	excess   uint64  // cost admitted above a limit
	wrong    uint64
}

func newUser(name string, rates []limit.RateSpec) *user {
	return &user{name: name, ideal: newBook(rates), admitted: newBook(rates), filled: newBook(rates)}
}

// asks notes one request.
func (u *user) asks(at time.Duration, cost uint64) {
	if u.ideal.fits(at, cost) {
		u.ideal.add(at, cost)
	}
}

// saw notes what became of a request, when that was decided.
func (u *user) saw(at time.Duration, cost uint64, allowed bool) {
	switch free := u.filled.fits(at, cost); {
	case allowed:
		u.filled.add(at, cost)
		u.admitted.fits(at, cost)
		u.admitted.add(at, cost)
		over, above := u.admitted.above()
		u.over, u.excess = max(u.over, over), u.excess+min(cost, above)
	case free:
		u.filled.add(at, cost)
		u.wrong += cost
	}
}

// book is exact logs of the same admissions, one for each limit.
type book struct {
	logs  []log
	total uint64
}

// log is the admissions of the last window, or the level of a bucket.
type log struct {
	kind   kind
	limit  uint64
	window time.Duration // of a bucket: in which it drains
	of     []admission
	sum    uint64
	bucket bucket
}

type admission struct {
	at   time.Duration
	cost uint64
}

func newBook(rates []limit.RateSpec) (b book) {
	for _, r := range rates {
		b.logs = append(b.logs, newLog(r))
	}
	return b
}

// fits says that no limit would be exceeded, in windows that end now.
func (b *book) fits(now time.Duration, cost uint64) bool {
	fits := true
	for i := range b.logs {
		l := &b.logs[i]
		l.turn(now)
		fits = fits && l.fits(cost)
	}
	return fits
}

func (b *book) add(now time.Duration, cost uint64) {
	for i := range b.logs {
		b.logs[i].add(now, cost)
	}
	b.total += cost
}

// above is by how much limits are exceeded: as a part of one, and as a cost.
func (b *book) above() (part float64, cost uint64) {
	for i := range b.logs {
		l := &b.logs[i]
		if over, above := l.excess(); above > 0 {
			part, cost = max(part, over), max(cost, above)
		}
	}
	return part, cost
}

// Knows says that runs can have the strategy: an error tells why not.
func Knows(strategy string) error {
	rates := limits(Options{Limit: 1, Window: time.Second, Consistency: strategy})
	_, problems := limit.Options{}.Compile(limit.Document{Namespace: "t", Rules: []limit.RuleSpec{{Name: "api", Rates: rates}}})
	for _, p := range problems {
		if len(p) > 0 {
			return p
		}
	}
	return nil
}
