package main

import "time"

// quota is what a contestant is to enforce for each key.
type quota struct {
	limit uint64
	per   time.Duration
}

// ample is a quota that no round uses up: one request a nanosecond.
var ample = quota{limit: uint64(time.Minute), per: time.Minute}

// decide asks for one key and says whether it was admitted; of a cache, whether
// the key was found.
type decide func(key string) bool

// hand is what one goroutine writes with each request, on cache lines of its own: beside
// another's it would be measured how fast lines move between processors.
type hand struct {
	_   [64]byte
	now time.Time
	at  int
	_   [64]byte
}

// population is what a contestant is filled with before it is measured.
type population struct {
	keys  []string
	quota quota
	// aged is keys in order of arrival over one window before the first round.
	// Contestants whose cost depends on a key's past walk through it.
	aged []string
}

// subject is a contestant that was built.
type subject struct {
	// worker makes the decide of one goroutine. For those that take the time as
	// an argument it starts at start and moves by step with every call.
	worker func(start time.Time, step time.Duration) decide
	// count is how much was counted in all, where the contestant can tell.
	count func() uint64
	// during, if set, starts what runs beside a round; stop ends it.
	during func() (stop func())
	// close ends the contestant's goroutines; nil: it has none.
	close func()
}

// contestant is one row of the tables.
type contestant struct {
	name string
	// cache says that it finds keys and limits nothing.
	cache bool
	// denies says that it is built with a limit that is used up.
	denies bool
	// batched says that it decides many requests at once: what it answers is
	// about the request a batch before.
	batched bool
	// small says that it is left out of populations above large.
	small bool
	// build fills the contestant. Instants are counted from origin.
	build func(p population, origin time.Time) (*subject, error)
}

// The rows that targets are judged by.
const (
	rowEdge      = "**edge.Check**"
	rowEdgeNow   = "edge.Check, time.Now each"
	rowEdgeClock = "edge.Check, clock of 0.5 ms"
	rowThree     = "edge.Check, three rates"
	rowBatch     = "edge.CheckBatch of 64"
	rowTen       = "edge.Check, ten rules, one matching"
	rowDenied    = "edge.Check, all denied"
	rowTable     = "bare table, 64-byte records, one atomic add"
	rowPacked    = "bare table, 16-byte records, one atomic add"
	rowGoLimiter = "sethvargo/go-limiter memorystore"
	rowEmpty     = "the harness alone"
)

// contestants are all rows in the order of the tables.
func contestants() []contestant {
	return []contestant{
		{name: rowEmpty, cache: true, build: buildEmpty},
		{name: rowTable, cache: true, build: buildTable},
		{name: rowPacked, cache: true, build: buildPacked},
		{name: rowEdge, build: buildEdge(oneRate, givenTime)},
		{name: rowBatch, small: true, batched: true, build: buildEdge(oneRate, inBatches)},
		{name: rowEdgeNow, small: true, build: buildEdge(oneRate, systemTime)},
		{name: rowEdgeClock, small: true, build: buildEdge(oneRate, refreshedTime)},
		{name: rowThree, small: true, build: buildEdge(threeRates, givenTime)},
		{name: rowTen, small: true, build: buildEdge(tenRules, givenTime)},
		{name: rowDenied, small: true, denies: true, build: buildEdge(oneRate, givenTime)},
		{name: rowGoLimiter, build: buildGoLimiter},
		{name: "throttled/v2 GCRA memstore", build: buildThrottled},
		{name: "ulule/limiter/v3 memory", build: buildUlule},
		{name: "x/time/rate in a map and a Mutex", build: buildRateMap},
		{name: "x/time/rate in a sync.Map", build: buildRateSyncMap},
		{name: "mennanov/limiters TokenBucket in memory", build: buildMennanov},
		{name: "ristretto/v2 Get alone", cache: true, build: buildRistretto},
		{name: "otter/v2 Get alone", cache: true, build: buildOtter},
	}
}
