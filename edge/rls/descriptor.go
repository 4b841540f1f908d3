package rls

import (
	"slices"
	"strings"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// remoteAddress is what Envoy's action of that name makes.
const remoteAddress = "remote_address"

// reports says whether hits were spent, and leaves out the entry that says so.
func reports(entries []*rlv3.RateLimitDescriptor_Entry) (others []*rlv3.RateLimitDescriptor_Entry, spent bool) {
	if !stands(entries, reportKey) {
		return entries, false
	}
	says := func(e *rlv3.RateLimitDescriptor_Entry) bool { return e.Key == reportKey }
	return slices.DeleteFunc(slices.Clone(entries), says), true
}

// fill gives a request the attributes of a descriptor.
func fill(req *limit.Request, entries []*rlv3.RateLimitDescriptor_Entry) {
	for i, e := range entries {
		value := e.Value
		if stands(entries[:i], e.Key) {
			value = joined(entries[:i+1], e.Key)
		}
		if e.Key == remoteAddress {
			req.Set("client_ip", value)
		}
		httpapi.Set(req, e.Key, value)
	}
}

func stands(entries []*rlv3.RateLimitDescriptor_Entry, key string) bool {
	return slices.ContainsFunc(entries, func(e *rlv3.RateLimitDescriptor_Entry) bool { return e.Key == key })
}

func joined(entries []*rlv3.RateLimitDescriptor_Entry, key string) string {
	var values []string
	for _, e := range entries {
		if e.Key == key {
			values = append(values, e.Value)
		}
	}
	return strings.Join(values, ",")
}

// unit is one of time, as answers name it and as overrides do.
type unit struct {
	told   rlsv3.RateLimitResponse_RateLimit_Unit
	asked  typev3.RateLimitUnit
	length time.Duration
}

// units are what a limit may be told in, the longest first: months and years are
// those of the reference.
var units = []unit{
	{rlsv3.RateLimitResponse_RateLimit_YEAR, typev3.RateLimitUnit_YEAR, 365 * 24 * time.Hour},
	{rlsv3.RateLimitResponse_RateLimit_MONTH, typev3.RateLimitUnit_MONTH, 30 * 24 * time.Hour},
	{rlsv3.RateLimitResponse_RateLimit_WEEK, typev3.RateLimitUnit_UNKNOWN, 7 * 24 * time.Hour}, // cannot be asked for
	{rlsv3.RateLimitResponse_RateLimit_DAY, typev3.RateLimitUnit_DAY, 24 * time.Hour},
	{rlsv3.RateLimitResponse_RateLimit_HOUR, typev3.RateLimitUnit_HOUR, time.Hour},
	{rlsv3.RateLimitResponse_RateLimit_MINUTE, typev3.RateLimitUnit_MINUTE, time.Minute},
	{rlsv3.RateLimitResponse_RateLimit_SECOND, typev3.RateLimitUnit_SECOND, time.Second},
}

// windowOf is the window of a limit that a descriptor brings, and its unit, which it is so
// many times; 0: it names none.
func windowOf(l *rlv3.RateLimitDescriptor_RateLimitOverride) (times, length uint64) {
	at := slices.IndexFunc(units, func(u unit) bool { return u.asked == l.Unit && u.asked != typev3.RateLimitUnit_UNKNOWN })
	if at < 0 {
		return 0, 0
	}
	return max(1, uint64(l.UnitMultiplier.GetValue())), uint64(units[at].length)
}

// unitOf is the unit over which a limit that a descriptor brings counts by itself: so many
// of its own, where that is one (60 seconds, 7 days), else one of its own, as the
// reference, which heeds no multiple, has it; 0: it names none. There is no error: Envoy
// would let the whole call pass, and what is beside it would not be counted.
func unitOf(l *rlv3.RateLimitDescriptor_RateLimitOverride) time.Duration {
	times, length := windowOf(l)
	for _, u := range units {
		if times > 0 && uint64(u.length)%times == 0 && uint64(u.length)/times == length {
			return u.length
		}
	}
	return time.Duration(length)
}

// override has the rates that apply decide by the limit that a descriptor brings: those
// over the window that it names, and count requests. What was counted is judged by it. False:
// there is none.
func override(req *limit.Request, l *rlv3.RateLimitDescriptor_RateLimitOverride) (found bool) {
	times, length := windowOf(l)
	rules := req.Rules()
	inForce := slices.ContainsFunc(rules, func(r *limit.Rule) bool { return r.Enforced() && !r.Allow })
	for _, rule := range rules {
		// A trial's limit decides nothing beside one in force; and what counts responses counts
		// none that Envoy has.
		if rule.CountsAfter() || inForce && !rule.Enforced() {
			continue
		}
		for _, rate := range rule.Rates {
			if times == 0 || rate.PerRequest || rate.Lease > 0 {
				continue
			}
			if window := uint64(httpapi.WindowOf(rate)); window%times == 0 && window/times == length {
				req.Override(rate.Policy, uint64(l.RequestsPerUnit))
				found = true
			}
		}
	}
	return found
}

// describe fills in a descriptor's status. Of a rule that is not shown it says no more
// than its code: Envoy tells its clients.
func (r *row) describe(j *httpapi.Judgement) {
	d := j.Decision()
	if !d.Allowed {
		r.status.Code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	if d.Rate == nil || !j.Shown() {
		return
	}
	reset := j.Reset()
	r.reset.Seconds, r.reset.Nanos = int64(reset/time.Second), int32(reset%time.Second)
	r.current(d)
	r.status.CurrentLimit, r.status.LimitRemaining, r.status.DurationUntilReset = &r.limit, clamped(d.Remaining), &r.reset
}

// current fills in a limit as the protocol tells it: so much per unit, or several of them.
func (r *row) current(d *limit.Decision) {
	out := &r.limit
	out.Name, out.RequestsPerUnit = d.Rate.Policy, clamped(d.Limit)
	if d.Rate.Lease > 0 {
		return // there is no unit
	}
	window := httpapi.WindowOf(d.Rate)
	for _, u := range units {
		if n := window / u.length; n > 0 && window%u.length == 0 {
			out.Unit = u.told
			if n > 1 {
				out.UnitMultiplier = wrapperspb.UInt32(clamped(uint64(n)))
			}
			return
		}
	}
}
