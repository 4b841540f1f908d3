package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

const (
	maxCheckBody = 64 << 10
	maxBatchBody = 1 << 20
)

// check answers POST /v1/check.
func (a *API) check(w http.ResponseWriter, r *http.Request) {
	x := exchanges.Get().(*exchange)
	defer x.release()
	set, ns := a.takeOne(w, r, x, (*decoder).check, a.metrics.undecided)
	if ns == nil {
		return
	}
	x.out = x.out[:0]
	v := a.viewOf(set)
	req := x.request(ns, &x.dec.calls[0])
	now := a.cfg.Now()
	d, wait := a.begins(v, req, now)
	if wait != nil {
		ctx, cancel := told(r)
		d = inTime(ctx, wait)
		cancel()
	}
	a.tell(x, v, req, d, now)
	a.reply(x, req)
	writeJSON(w, x)
}

// checkBatch answers POST /v1/check/batch. The whole body is read before the
// first call is decided, so that a batch that is refused counts nothing. Calls that
// wait for rights do so together, once all others are decided.
func (a *API) checkBatch(w http.ResponseWriter, r *http.Request) {
	x := exchanges.Get().(*exchange)
	defer x.release()
	set := a.take(w, r, x, maxBatchBody, (*decoder).batch, a.metrics.undecided)
	if set == nil {
		return
	}
	v := a.viewOf(set)
	x.out = append(x.out[:0], `{"results":[`...)
	now := a.cfg.Now()
	var later []undecided
	for i := range x.dec.calls {
		if i > 0 {
			x.out = append(x.out, ',')
		}
		now = a.batchItem(x, v, &x.dec.calls[i], now, &later)
	}
	x.out = append(x.out, `]}`...)
	if len(later) > 0 {
		ctx, cancel := told(r)
		a.decideLater(ctx, x, v, later)
		cancel()
	}
	writeJSON(w, x)
}

// undecided is a call of a batch that waits: its reply belongs at a place of the others'.
type undecided struct {
	req  *limit.Request
	wait func(context.Context) limit.Decision
	now  time.Time
	at   int
}

func (a *API) batchItem(x *exchange, v *view, c *call, now time.Time, later *[]undecided) time.Time {
	bad := c.mistake
	if bad == nil {
		var ns *limit.Namespace
		if ns, bad = a.namespaceOf(v.set, c.namespace); bad == nil {
			req := x.request(ns, c)
			d, wait := a.begins(v, req, now)
			if wait != nil {
				*later = append(*later, undecided{req, wait, now, len(x.out)})
				return now
			}
			done := a.tell(x, v, req, d, now)
			a.reply(x, req)
			return done
		}
	}
	a.metrics.undecided.Inc()
	p := problem{status: bad.status, detail: bad.Error(), field: bad.field}
	x.out = append(x.out, `{"error":`...)
	x.out = append(p.append(x.out), '}')
	return now
}

// decideLater waits for what was left undecided, and puts the replies in their places.
// The time of all runs since they were asked, so it takes as long as the longest.
func (a *API) decideLater(ctx context.Context, x *exchange, v *view, later []undecided) {
	decided := slices.Clone(x.out)
	x.out = x.out[:0]
	from := 0
	for _, u := range later {
		x.out = append(x.out, decided[from:u.at]...)
		from = u.at
		a.tell(x, v, u.req, inTime(ctx, u.wait), u.now)
		a.reply(x, u.req)
	}
	x.out = append(x.out, decided[from:]...)
}

// request is the request of a call.
func (x *exchange) request(ns *limit.Namespace, c *call) *limit.Request {
	req := ns.NewRequest()
	x.dec.give(c, req)
	req.Cost, req.Peek, req.Bounds = c.cost, c.peek, true // not Trusted: a header among its attributes is a client's word
	return req
}

// reply appends the reply to a request that was decided, and lets go of it.
func (a *API) reply(x *exchange, req *limit.Request) {
	x.out = a.appendReply(x.out, x)
	x.answer.states = nil // they go back with the request
	req.Release()
}

// appendReply appends what /v1/check says of x.answer. Fields of the rule are
// left out where no rule applies, and those of the rate where the rule has
// none. An age_ms of -1 says that nothing was ever heard of the key; there are no
// error bounds while it is not known how many others there are.
func (a *API) appendReply(dst []byte, x *exchange) []byte {
	d := &x.answer.decision
	dst = append(dst, `{"allowed":`...)
	dst = strconv.AppendBool(dst, d.Allowed)
	dst = append(dst, `,"decision_id":"`...)
	dst = append(a.appendDecisionID(dst, &x.answer), '"')
	if d.Rule == nil {
		return append(dst, '}')
	}
	if !d.Allowed {
		dst = append(dst, `,"status":`...)
		dst = strconv.AppendInt(dst, int64(statusOf(d)), 10)
	}
	dst = append(dst, `,"rule":`...)
	dst = appendString(dst, d.Rule.Name)
	if d.Rate == nil { // a rule that denies or allows, with no quota to tell of
		if d.Zone == limit.ZoneHard || d.Zone == limit.ZoneShadow {
			dst = append(dst, `,"zone":`...)
			dst = appendString(dst, d.Zone.String())
		}
		return append(dst, '}')
	}
	dst = append(dst, `,"policy":`...)
	dst = appendString(dst, d.Rate.Name)
	dst = append(dst, `,"limit":`...)
	dst = strconv.AppendUint(dst, d.Limit, 10)
	dst = append(dst, `,"remaining":`...)
	dst = strconv.AppendUint(dst, d.Remaining, 10)
	dst = append(dst, `,"retry_after_ms":`...)
	dst = strconv.AppendInt(dst, ceilMilliseconds(waitOf(d)), 10)
	if d.Delay > 0 {
		dst = append(dst, `,"delay_ms":`...)
		dst = strconv.AppendInt(dst, ceilMilliseconds(d.Delay), 10)
	}
	dst = append(dst, `,"zone":`...)
	dst = appendString(dst, d.Zone.String())
	if d.Near {
		dst = append(dst, `,"near_limit":true`...)
	}
	dst = append(dst, `,"basis":{"local":`...)
	dst = strconv.AppendUint(dst, d.Basis.Local, 10)
	dst = append(dst, `,"merged":`...)
	dst = strconv.AppendUint(dst, d.Basis.Merged, 10)
	dst = append(dst, `,"age_ms":`...)
	age := int64(-1)
	if d.Basis.Age >= 0 {
		age = d.Basis.Age.Milliseconds()
	}
	dst = strconv.AppendInt(dst, age, 10)
	dst = append(dst, `,"regions":`...)
	dst = strconv.AppendInt(dst, int64(d.Basis.Regions), 10)
	if bound := &x.answer.bound; bound.Known {
		dst = append(dst, `,"error_bound":`...)
		dst = strconv.AppendUint(dst, bound.Now, 10)
		dst = append(dst, `,"error_bound_surge":`...)
		dst = strconv.AppendUint(dst, bound.Surge, 10)
	}
	if d.Basis.Short {
		dst = append(dst, `,"short_of_share":true`...)
	}
	if d.Basis.CutOff {
		dst = append(dst, `,"cut_off":true`...)
	}
	dst = append(dst, `},"headers":`...)
	return append(x.fields.append(dst), '}')
}

// ceilMilliseconds is d in milliseconds, rounded up, so that waiting as long
// is enough.
func ceilMilliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

func writeJSON(w http.ResponseWriter, x *exchange) {
	w.Header()["Content-Type"] = jsonType
	x.out = append(x.out, '\n')
	// A caller that is gone cannot be told so.
	_, _ = w.Write(x.out)
}
