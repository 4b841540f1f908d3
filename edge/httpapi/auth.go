package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// authOptions are the query parameters of /v1/auth.
type authOptions struct {
	denyStatus int // 0: the rule's own
	cost       uint64
	peek       bool
	failOpen   bool
}

// parseAuthOptions reads the query of /v1/auth. It stands in a proxy's
// configuration, so a parameter that is not known is a slip of the operator's,
// and said out loud.
func parseAuthOptions(query string) (o authOptions, bad *inputError) {
	seen := [3]bool{}
	once := func(i int, name string) *inputError {
		if seen[i] {
			return badRequest(name, "give it once", "stands twice in the query")
		}
		seen[i] = true
		return nil
	}
	for query != "" && bad == nil {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		switch name {
		case "deny_status":
			n, err := strconv.Atoi(value)
			if bad = once(0, name); bad == nil && (err != nil || n < 400 || n > 599) {
				bad = badRequest(name, "400 to 599, such as 403", "%s is not an HTTP error status", short(value))
			}
			o.denyStatus = n
		case "cost":
			if bad = once(1, name); bad == nil {
				o.cost, bad = parseCost(name, costHint, value)
			}
			o.peek = o.cost == 0
		case "fail":
			if bad = once(2, name); bad == nil && value != "open" && value != "closed" {
				bad = badRequest(name, "open lets requests pass where nothing can be decided; closed, the default, answers 503",
					"%s is neither open nor closed", short(value))
			}
			o.failOpen = value == "open"
		case "":
			// "?a=1&&b=2": nothing stands between.
		default:
			bad = badRequest(short(name), "deny_status, cost and fail are", "is not a parameter of /v1/auth")
		}
	}
	return o, bad
}

// auth answers /v1/auth, which proxies ask before they pass a request on.
func (a *API) auth(w http.ResponseWriter, r *http.Request, namespace string) {
	skim(w, r)
	options, bad := parseAuthOptions(r.URL.RawQuery)
	if bad != nil {
		a.refuseDecision(w, bad)
		return
	}
	if options.failOpen {
		defer a.passOnPanic(w, r)
	}
	set := a.limiter.Rules()
	if set == nil {
		if options.failOpen {
			a.metrics.undecided.Inc()
			tellUndecided(w, undecidedRules)
			w.WriteHeader(http.StatusOK)
			return
		}
		a.metrics.undecided.Inc()
		a.notReady(w)
		return
	}
	ns, bad := a.namespaceOf(set, namespace)
	switch {
	case bad == nil:
	case options.failOpen: // of the rules' making, or the proxy's: no client is to suffer for it
		a.noRules(bad)
		tellUndecided(w, undecidedSetup)
		w.WriteHeader(http.StatusOK)
		return
	default:
		a.refuseDecision(w, bad)
		return
	}
	req := ns.NewRequest()
	defer req.Release()
	ignored, err := FillHTTP(req, r, a.cfg.TrustedProxies)
	if err != nil {
		var bad *inputError
		if !errors.As(err, &bad) {
			bad = &inputError{status: http.StatusBadRequest, field: "request", detail: err.Error()}
		}
		a.refuseDecision(w, bad)
		return
	}
	now := a.cfg.Now()
	if ignored {
		a.warnIgnored(r.RemoteAddr, now)
	}
	a.warnNoAddress(req)
	if req.Trusted && !tellsPath(r.Header) && ns.ReadsPath() {
		a.warnNoPath(r.RemoteAddr, now)
	}
	req.Cost, req.Peek = options.cost, options.peek

	x := exchanges.Get().(*exchange)
	defer x.release()
	v := a.viewOf(set)
	req.Receipt = v.namespaces[ns].charges
	a.ask(r.Context(), x, v, req, now)
	x.fields.set(w.Header())
	if d := &x.answer.decision; d.Allowed {
		// The proxy's request waits as long as this answer. Its slots nobody gives
		// back: a proxy does not say when its request ends, so leases end them.
		if d.Delay > writeTimeout/2 { // the server's own deadline may be over as the turn comes; who has none wants none
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d.Delay + writeTimeout))
		}
		if d.Delay > 0 && !req.Peek && !a.turn(r.Context(), d.Delay) {
			a.limiter.Refund(a.cfg.Now(), req.Charges, 0)
			TurnPassed(w)
			return
		}
		w.WriteHeader(http.StatusOK)
		return
	}
	if options.denyStatus == 0 && a.methodOf(r) == http.MethodPost && postsConnect(r.Header) { // else the proxy writes the answer
		denyConnect(w, x)
		return
	}
	a.tellCall(w, r, x)
	a.deny(w, x, options.denyStatus)
}

// deny writes the denial in x.answer. A proxy that knows only 401 and 403
// (nginx makes a 500 of a 429) asks for one of them, and reads in
// X-RateLimit-Status what to tell its client.
func (a *API) deny(w http.ResponseWriter, x *exchange, denyStatus int) {
	d := &x.answer.decision
	if d.Basis.CutOff {
		cutOff(w, x.answer.retry)
		return
	}
	status, h := d.Rule.Status, w.Header()
	if denyStatus != 0 {
		h["X-Ratelimit-Status"] = []string{strconv.Itoa(status)}
		status = denyStatus
	}
	h["Content-Type"] = problemType
	h["Cache-Control"] = noStore
	w.WriteHeader(status)
	x.out = a.appendDenial(x.out[:0], &x.answer, status)
	_, _ = w.Write(x.out) // a caller that is gone cannot be told so
}

// statusOf is what a denied client is answered with over HTTP.
func statusOf(d *limit.Decision) int {
	if d.Basis.CutOff {
		return http.StatusServiceUnavailable
	}
	return d.Rule.Status
}

// cutOff denies a request as this edge cannot hear of others, and its rule is closed
// then: no fault of the client's, and no limit that it used up.
func cutOff(w http.ResponseWriter, retry uint64) { writeProblem(w, cutOffProblem(retry)) }

func cutOffProblem(retry uint64) *problem {
	return &problem{
		status: http.StatusServiceUnavailable, kind: reducedCapacity, title: "Cut off",
		detail: "this limiter cannot hear of the others that share the limit, and is set to deny until it does", retryAfter: int64(retry),
	}
}

// reducedCapacity is the problem type of what is denied for want of the limiter, and
// not of a limit's room (draft-ietf-httpapi-ratelimit-headers-11).
const reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

// appendDenial appends the problem+json of a denial. A rule that shows no
// headers does not show its name and numbers here either. A rule that denies
// whatever it matches has no quota, and waiting does not help.
func (a *API) appendDenial(dst []byte, x *answer, status int) []byte {
	d := &x.decision
	if d.Rate == nil {
		p := problem{status: status, detail: "this request is not served"}
		return append(p.append(dst), '\n')
	}
	dst = append(dst, `{"type":`...)
	dst = appendString(dst, a.cfg.ProblemType)
	dst = append(dst, `,"title":"Quota exceeded","status":`...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	if shows(d.Rule) {
		dst = append(dst, `,"detail":"`...)
		dst = append(appendUsed(dst, d), '"')
		dst = appendViolated(dst, x)
	}
	dst = append(dst, `,"instance":"/v1/decisions/`...)
	dst = append(a.appendDecisionID(dst, x), `","retry_after":`...)
	dst = strconv.AppendUint(dst, x.retry, 10)
	return append(dst, '}', '\n')
}

// appendUsed says what a denied client ran out of.
func appendUsed(dst []byte, d *limit.Decision) []byte {
	rate := d.Rate
	few, used, empty, full := ``, ` are used up`, `, is empty`, `, is full`
	if d.Remaining > 0 { // for others, or lighter requests
		few, used, empty, full = `too few of `, ` are left`, `, has too little left`, `, has too little room`
	}
	switch {
	case d.Basis.Penalty:
		return append(dst, `a penalty is on, for exceeding the limit`...)
	case d.Basis.Short:
		return append(dst, `this edge's share of the limit is used up`...)
	case rate.PerRequest:
		return append(append(append(dst, `requests are `...), limit.WindowName(rate.Drain.Per)...), ` apart at the least`...)
	case rate.Queue:
		dst = append(dst, `a queue of `...)
		dst = strconv.AppendUint(dst, capacityOf(rate), 10)
		return append(appendFlow(append(dst, `, served by `...), rate), full...)
	case rate.Algorithm == limit.LeakyBucket:
		dst = append(dst, `a bucket of `...)
		dst = strconv.AppendUint(dst, capacityOf(rate), 10)
		return append(appendFlow(append(dst, `, drained by `...), rate), full...)
	case rate.Bucket():
		dst = append(dst, `a bucket of `...)
		dst = strconv.AppendUint(dst, capacityOf(rate), 10)
		return append(appendFlow(append(dst, `, refilled by `...), rate), empty...)
	case rate.Lease > 0:
		dst = strconv.AppendUint(append(dst, few...), d.Limit, 10)
		if d.Remaining > 0 {
			return append(dst, ` at a time are left`...)
		}
		return append(dst, ` at a time are under way`...)
	}
	dst = append(dst, few...)
	dst = strconv.AppendUint(dst, d.Limit, 10)
	dst = append(dst, ` per `...)
	dst = append(dst, limit.WindowName(rate.Window)...)
	return append(dst, used...)
}

// capacityOf is what a bucket holds, what it may have started with left out.
func capacityOf(rate *limit.Rate) uint64 { return rate.Limit - rate.Drain.Floor }

// appendFlow appends how fast a bucket fills or drains: "5 per 1s".
func appendFlow(dst []byte, rate *limit.Rate) []byte {
	dst = append(strconv.AppendUint(dst, rate.Drain.Refill, 10), ` per `...)
	return append(dst, limit.WindowName(rate.Drain.Per)...)
}

// appendViolated appends the policies that denied: those of rules that show
// all, where it is known, else the one that decided.
func appendViolated(dst []byte, x *answer) []byte {
	dst = append(dst, `,"violated-policies":[`...)
	dst = appendString(dst, x.decision.Rate.Policy)
	for i := range x.states {
		s := &x.states[i]
		if s.Denied && s.Rule.Mode == limit.Enforce && s.Rule.Show == limit.ShowAll && s.Rate.Policy != x.decision.Rate.Policy && !x.deniedBefore(i) {
			dst = append(dst, ',')
			dst = appendString(dst, s.Rate.Policy)
		}
	}
	return append(dst, ']')
}

// deniedBefore says that the policy of a state denied by another before it: of another
// reading of the request's path.
func (a *answer) deniedBefore(i int) bool {
	return slices.ContainsFunc(a.states[:i], func(s limit.State) bool { return s.Denied && s.Rate.Policy == a.states[i].Rate.Policy })
}

// warnEvery is how often it is logged that a proxy is not trusted, or tells no path, or
// that there are no rules.
const warnEvery = int64(time.Minute / time.Second)

// warnIgnored tells the operator that a proxy is not believed: most likely it
// is missing from trusted_proxies, and its clients share one address.
func (a *API) warnIgnored(peer string, now time.Time) {
	a.metrics.ignored.Inc()
	if seldom(&a.warned, now) {
		a.log.Warn("forwarding headers ignored: the peer is not in trusted_proxies", "peer", peer)
	}
}

// warnNoPath tells the operator that a proxy which is believed tells no path, where rules read
// it: those for some path apply to none of its requests, and all pass them.
func (a *API) warnNoPath(peer string, now time.Time) {
	if seldom(&a.pathless, now) {
		a.log.Warn("requests are asked about without their path, which rules read: those for some path apply to none of them; the proxy should set X-Forwarded-Uri or X-Original-URI", "peer", peer)
	}
}

// noRules counts a request that passes unlimited, as its namespace has no rules, and tells
// the operator.
func (a *API) noRules(bad *inputError) {
	a.metrics.undecided.Inc()
	if seldom(&a.missed, a.cfg.Now()) {
		a.log.Error("requests pass unlimited", "err", bad)
	}
}

// seldom says that nothing was logged for warnEvery, since last, which is now by then.
func seldom(last *atomic.Int64, now time.Time) bool {
	was, at := last.Load(), now.Unix()
	return (was == 0 || at-was >= warnEvery) && last.CompareAndSwap(was, at)
}

// warnNoAddress tells the operator, once, that there are clients without an
// address: they are limited as one where rules count by client_ip, which is
// hardly meant where a proxy is in front of them.
func (a *API) warnNoAddress(req *limit.Request) {
	clientIP := req.ClientIP()
	if clientIP != onUnix && clientIP != noAddress || a.told.Load() || a.told.Swap(true) {
		return
	}
	a.log.Warn("a request tells no client's address: all such are one client to rules that count by client_ip; a proxy in front should set X-Forwarded-For", "client_ip", clientIP)
}
