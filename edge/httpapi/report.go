package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What a report did, as the metrics name it.
const (
	reportCharge   = "charge"
	reportGiveBack = "give_back"
	reportAnswered = "answered"
)

// report answers POST /v1/report: it charges what a request turned out to cost,
// whatever room there is, gives a negative cost back, or charges rules with
// count_when by what the request was answered.
func (a *API) report(w http.ResponseWriter, r *http.Request) {
	x := exchanges.Get().(*exchange)
	defer x.release()
	_, ns := a.takeOne(w, r, x, (*decoder).report, a.metrics.misreported)
	if ns == nil {
		return
	}
	d, recorded := a.record(x, ns, &x.dec.calls[0])
	x.out = appendRecorded(x.out[:0], &d, recorded)
	writeJSON(w, x)
}

// record does what a report says, and tells whether anything was counted or given back, and
// how things stand then.
func (a *API) record(x *exchange, ns *limit.Namespace, c *call) (d limit.Decision, recorded bool) {
	req := ns.NewRequest()
	defer req.Release()
	x.dec.give(c, req)
	req.Cost = c.cost
	now, kind := a.cfg.Now(), reportCharge
	switch {
	case c.answered:
		kind = reportAnswered
		a.limiter.Answered(now, req)
		d = a.peek(now, req)
	case c.giveBack:
		kind = reportGiveBack
		a.giveBack(now, req, strings.ToUpper(c.decision))
		d = a.peek(now, req)
	default:
		d = a.limiter.Report(now, req)
	}
	a.metrics.reports.WithLabelValues(ns.Name, kind).Inc()
	return d, req.Recorded
}

// giveBack gives back what a decision was charged, of which nothing but the id is known, or
// not even that. Who releases a slot and hears nothing reports it once more: it was his
// alone, and other slots are others'.
func (a *API) giveBack(now time.Time, req *limit.Request, id string) {
	slot := id != "" && takesSlot(req.Rules())
	if slot && !a.ids.releases(id, req.Rules(), a.limiter.Time(now)) {
		return
	}
	if id != "" {
		req.Spent = a.ids.spentAt(id, a.ids.digest(req), req.Rules(), a.limiter.Boot(now), a.limiter.Time(now))
	}
	if isID(id) {
		req.Made = madeAt(id)
	}
	a.limiter.GiveBack(now, req)
	if slot && !req.Recorded {
		a.ids.released.undo(id)
	}
}

// inForce are the rules of a request that are, or all where none is: a trial changes nothing beside one.
func inForce(rules []*limit.Rule) []*limit.Rule {
	isTrial := func(r *limit.Rule) bool { return r.Mode == limit.Shadow }
	if !slices.ContainsFunc(rules, isTrial) || !slices.ContainsFunc(rules, func(r *limit.Rule) bool { return !isTrial(r) }) {
		return rules
	}
	return slices.DeleteFunc(slices.Clone(rules), isTrial)
}

// takesSlot says that what is given back under these rules is a slot of a concurrency
// limit: where other limits apply it is cost of those.
func takesSlot(rules []*limit.Rule) (slot bool) {
	for _, rule := range inForce(rules) {
		for _, rate := range rule.Rates {
			switch {
			case rate.Lease > 0:
				slot = true
			case !rate.PerRequest && !rule.CountsAfter():
				return false
			}
		}
	}
	return slot
}

// peek is how things stand, for those calls of the limiter that do not say.
func (a *API) peek(now time.Time, req *limit.Request) limit.Decision {
	req.Peek = true
	return a.limiter.Check(now, req)
}

// appendRecorded appends what /v1/report answers: whether anything was counted or given
// back, and how things stand, which is left out where no rule with rates applies.
func appendRecorded(dst []byte, d *limit.Decision, recorded bool) []byte {
	dst = append(dst, `{"recorded":`...)
	dst = strconv.AppendBool(dst, recorded)
	if d.Rate == nil {
		return append(dst, '}')
	}
	dst = append(dst, `,"rule":`...)
	dst = appendString(dst, d.Rule.Name)
	dst = append(dst, `,"policy":`...)
	dst = appendString(dst, d.Rate.Name)
	dst = append(dst, `,"limit":`...)
	dst = strconv.AppendUint(dst, d.Limit, 10)
	dst = append(dst, `,"remaining":`...)
	dst = strconv.AppendUint(dst, d.Remaining, 10)
	if d.Near {
		dst = append(dst, `,"near_limit":true`...)
	}
	return append(dst, '}')
}
