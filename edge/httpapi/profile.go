package httpapi

import (
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// answer is a decision together with what its header fields are made of.
type answer struct {
	decision limit.Decision
	states   []limit.State // of all rates asked; empty where the namespace needs none
	bound    limit.Bound   // of a call that asked for it
	told     limit.State   // the rate that fields with room for one are about; no Rate: none
	now      time.Time
	clock    time.Time     // the limiter's, then
	retry    uint64        // Retry-After in seconds; 0 where allowed
	id       []byte        // of the decision, where it was told already
	spent    time.Duration // when rights of strict limits were, for what was charged
	proves   uint64        // what its id is to prove: the digest of what was charged; 0: nothing, as of denials and peeks
}

// profile writes one named set of response fields. The letters of the IETF's
// draft still move, so every set has a name and rules say which they send.
type profile func(*fields, *answer)

// profiles has one entry for each of limit.HeaderProfiles; "none" writes
// nothing.
var profiles = map[string]profile{
	"draft-11":    draft11,
	"x-ratelimit": xRateLimit,
	"github":      github,
	"ietf-06":     ietf06,
	"envoy":       envoy,
	"none":        nil,
}

var (
	retryAfter      = fieldName{"Retry-After", "Retry-After"}
	rateLimit       = fieldName{"Ratelimit", "RateLimit"}
	rateLimitPolicy = fieldName{"Ratelimit-Policy", "RateLimit-Policy"}
	rateLimitLimit  = fieldName{"Ratelimit-Limit", "RateLimit-Limit"}
	rateLimitLeft   = fieldName{"Ratelimit-Remaining", "RateLimit-Remaining"}
	rateLimitReset  = fieldName{"Ratelimit-Reset", "RateLimit-Reset"}
	xRateLimitLimit = fieldName{"X-Ratelimit-Limit", "X-RateLimit-Limit"}
	xRateLimitLeft  = fieldName{"X-Ratelimit-Remaining", "X-RateLimit-Remaining"}
	xRateLimitUsed  = fieldName{"X-Ratelimit-Used", "X-RateLimit-Used"}
	xRateLimitReset = fieldName{"X-Ratelimit-Reset", "X-RateLimit-Reset"}
	xRateLimitRetry = fieldName{"X-Ratelimit-Retry-After", "X-RateLimit-Retry-After"}
)

// maxStructuredInt is the largest integer of RFC 9651, section 3.3.1; limits
// may be larger.
const maxStructuredInt = 999_999_999_999_999

// write writes the fields of an answer: Retry-After on every denial, since it
// is the only one that every retrying client obeys, then the rule's profiles.
func (f *fields) write(v *view, a *answer) {
	f.reset()
	if a.retry > 0 {
		f.addUint(&retryAfter, a.retry)
	}
	a.choose()
	if a.told.Rate == nil {
		return
	}
	for _, p := range v.rules[a.told.Rule.Index].profiles {
		p(f, a)
	}
}

// shows says whether clients are told of a rule. A shadow rule is a trial:
// clients that slow down for it would spoil it.
func shows(rule *limit.Rule) bool { return rule.Show != limit.ShowNone && rule.Mode != limit.Shadow }

// choose picks the rate that is told: the one that decided. Where that one is
// not shown, an admitted client is told of the tightest that is, and a denied
// one of nothing, since no other rate explains its wait. None does where the edge is
// cut off.
func (a *answer) choose() {
	d := &a.decision
	a.told = limit.State{}
	switch {
	case d.Rate == nil || d.Basis.CutOff:
	case shows(d.Rule):
		a.told = limit.State{Rule: d.Rule, Rate: d.Rate, Remaining: d.Remaining, RetryAfter: waitOf(d), Denied: !d.Allowed}
	case d.Allowed:
		share := math.Inf(1)
		for i := range a.states {
			s := &a.states[i]
			if left := float64(s.Remaining) / float64(max(1, s.Rate.Limit)); shows(s.Rule) && left < share {
				a.told, share = *s, left
			}
		}
	}
}

// draft11 is draft-ietf-httpapi-ratelimit-headers-11: two lists of strings.
func draft11(f *fields, a *answer) {
	if f.begin(&rateLimitPolicy) {
		a.eachShown(func(s *limit.State) { f.item(s.Rate.Policy).policy(s.Rate) })
		f.end()
	}
	if f.begin(&rateLimit) {
		a.eachShown(func(s *limit.State) { f.item(s.Rate.Policy).quota(a, s) })
		f.end()
	}
}

// item starts an item of the list that is being written. Names of policies are
// letters, digits, "_", "." and "-", so they need no escapes.
func (f *fields) item(name string) *fields {
	if len(f.text) > f.list[len(f.list)-1].start {
		f.text = append(f.text, ", "...)
	}
	f.text = append(append(append(f.text, '"'), name...), '"')
	return f
}

func (f *fields) policy(rate *limit.Rate) {
	f.parameter(";q=", rate.Limit)
	if rate.Lease > 0 { // it has no window: its unit says what it counts
		f.text = append(f.text, `;qu="concurrent-requests"`...)
		return
	}
	// A window that is no whole number of seconds is left out: rounding it
	// would tell another rate.
	if w := WindowOf(rate); w%time.Second == 0 {
		f.parameter(";w=", uint64(w/time.Second))
	}
}

// WindowOf is the time in which the quota comes back: of a bucket, that in which
// it fills or drains. (The window that its slices make is as long or longer.)
func WindowOf(rate *limit.Rate) time.Duration {
	if !rate.Bucket() {
		return rate.Window
	}
	hi, lo := bits.Mul64(capacityOf(rate), uint64(rate.Drain.Per))
	if hi >= rate.Drain.Refill {
		return rate.Window
	}
	w, _ := bits.Div64(hi, lo, rate.Drain.Refill)
	return time.Duration(min(w, uint64(rate.Window)))
}

// quota says what is left, and within which time no more than that may be used.
// Slots that are held come back when somebody is done with them, which is no
// time that one could name.
func (f *fields) quota(a *answer, s *limit.State) {
	f.parameter(";r=", s.Remaining)
	if s.Rate.Lease == 0 {
		f.parameter(";t=", wholeSeconds(a.effective(s)))
	}
}

func (f *fields) parameter(name string, v uint64) {
	f.text = strconv.AppendUint(append(f.text, name...), min(v, maxStructuredInt), 10)
}

// eachShown calls show for the rates that clients are told of: the one chosen,
// or where its rule shows all, those of all rules that do. Of a policy that was asked for
// several readings of a path the tightest is told: a list has each name once.
func (a *answer) eachShown(show func(*limit.State)) {
	if a.told.Rule.Show != limit.ShowAll || len(a.states) == 0 {
		show(&a.told)
		return
	}
	for i := range a.states {
		if s := &a.states[i]; s.Rule.Show == limit.ShowAll && shows(s.Rule) && !a.hasBefore(i) {
			show(a.tightest(i))
		}
	}
}

// hasBefore says that the policy of a state is that of another before it.
func (a *answer) hasBefore(i int) bool {
	for j := range a.states[:i] {
		if a.states[j].Rate.Policy == a.states[i].Rate.Policy {
			return true
		}
	}
	return false
}

// tightest is the state with the least left of those of a policy, the first of which is at i.
func (a *answer) tightest(i int) *limit.State {
	least := &a.states[i]
	for j := i + 1; j < len(a.states); j++ {
		s := &a.states[j]
		if s.Rate.Policy == least.Rate.Policy && (s.Remaining < least.Remaining || s.Remaining == least.Remaining && s.RetryAfter > least.RetryAfter) {
			least = s
		}
	}
	return least
}

// effective is the time within which a client may use no more than what
// remains: the wait where it was denied, the rest of a fixed window, and else a
// whole window, or the time in which a bucket fills, as nothing less is certain
// without knowing when the hits were made.
func (a *answer) effective(s *limit.State) time.Duration {
	switch {
	case s.RetryAfter > 0:
		return s.RetryAfter
	case s.Rate.Algorithm == limit.FixedWindow:
		at := a.clock.UnixNano()
		return time.Duration(s.Rate.EndOf(s.Rate.SliceAt(at)) - at)
	case s.Rate.Lease > 0:
		return slotWait
	default:
		return WindowOf(s.Rate)
	}
}

// slotWait is when to try again for a slot of a concurrency limit. The lease is
// only how long it takes where its holder is dead.
const slotWait = time.Second

// waitOf is how long a denied client is told to wait.
func waitOf(d *limit.Decision) time.Duration {
	if d.Rate != nil && d.Rate.Lease > 0 && d.Rule.Penalty == (limit.Penalty{}) {
		return max(d.Least, min(d.RetryAfter, slotWait))
	}
	return d.RetryAfter
}

// xRateLimit is the three headers as the literature names them; the last one
// only where there is something to wait for. The reset is beside them as the first two
// are taken for GitHub's: without it Octokit asks again at once, on and on.
func xRateLimit(f *fields, a *answer) {
	f.addUint(&xRateLimitLimit, a.told.Rate.Limit)
	f.addUint(&xRateLimitLeft, a.told.Remaining)
	if a.retry > 0 {
		f.addUint(&xRateLimitRetry, a.retry)
	}
	f.addUint(&xRateLimitReset, a.epoch())
}

// github sends the reset as seconds since the epoch: a client that expects
// those takes a difference for a moment long past, and retries at once. Of a denial nothing
// is left, be it that a lighter request would pass: Octokit gives up else.
func github(f *fields, a *answer) {
	left := a.told.Remaining
	if !a.decision.Allowed {
		left = 0
	}
	f.addUint(&xRateLimitLimit, a.told.Rate.Limit)
	f.addUint(&xRateLimitLeft, left)
	f.addUint(&xRateLimitUsed, crdt.SatSub(a.told.Rate.Limit, a.told.Remaining))
	f.addUint(&xRateLimitReset, a.epoch())
}

// epoch is when what is told is over, in seconds since 1970.
func (a *answer) epoch() uint64 {
	reset := a.now.Add(a.effective(&a.told)).Add(time.Second - 1) // rounded up: never early
	return uint64(max(0, reset.Unix()))
}

// ietf06 is draft 06 of the IETF's headers: three fields, the reset a delay.
func ietf06(f *fields, a *answer) {
	f.addUint(&rateLimitLimit, a.told.Rate.Limit)
	f.addUint(&rateLimitLeft, a.told.Remaining)
	f.addUint(&rateLimitReset, wholeSeconds(a.effective(&a.told)))
}

// envoy is what Envoy itself adds with enable_x_ratelimit_headers: DRAFT_VERSION_03: the
// limit that is told, then each with its window and name, and the reset as a delay.
// Clients that expect an epoch there, as GitHub's, take it for long past, and spin.
func envoy(f *fields, a *answer) {
	if f.begin(&xRateLimitLimit) {
		f.text = strconv.AppendUint(f.text, a.told.Rate.Limit, 10)
		a.eachShown(func(s *limit.State) {
			f.text = strconv.AppendUint(append(f.text, ", "...), s.Rate.Limit, 10)
			if w := WindowOf(s.Rate); s.Rate.Lease == 0 && w%time.Second == 0 {
				f.parameter(";w=", uint64(w/time.Second))
			}
			f.text = append(append(append(f.text, `;name="`...), s.Rate.Policy...), '"')
		})
		f.end()
	}
	f.addUint(&xRateLimitLeft, a.told.Remaining)
	f.addUint(&xRateLimitReset, wholeSeconds(a.effective(&a.told)))
}

// retrySeconds is Retry-After for a wait: never earlier than the wait's end,
// at least a second, and later by up to the jitter.
func (a *API) retrySeconds(wait time.Duration) uint64 {
	seconds := wholeSeconds(wait)
	if a.cfg.RetryJitter > 0 {
		seconds = max(seconds, wholeSeconds(wait+time.Duration(float64(min(wait, jitterOf))*a.cfg.RetryJitter*a.cfg.Rand())))
	}
	return seconds
}

// wholeSeconds is d in seconds, rounded up, at least one.
func wholeSeconds(d time.Duration) uint64 {
	s := uint64(max(d, 0) / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return max(s, 1)
}
