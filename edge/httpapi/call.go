package httpapi

import (
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Call is a request that came over another transport than HTTP. A surface
// beside this one (edge/grpclimit) hands it in, so that limits, metrics and
// fields are the same whatever the transport is.
type Call struct {
	Namespace string // "" as with Middleware
	Method    string
	Path      string // taken as it is
	Host      string // with or without port
	Peer      string // the address that the call came from, with or without port

	// Metadata is the header, its names in lower case. Of X-Forwarded-For only
	// what a trusted Peer says is believed.
	Metadata map[string][]string

	Cost uint64 // 0: as the rule says
	Peek bool   // decide, charge nothing
}

// Verdict is what became of a Call.
type Verdict struct {
	Allowed bool

	// Decision is the limiter's. It is the zero value but for Allowed where
	// nothing could be decided: such calls pass.
	Decision limit.Decision

	// RetryAfter is the wait that a denied client is told: whole seconds, the
	// jitter included. 0 where it was admitted, or where waiting does not help.
	RetryAfter time.Duration

	// Policy is the rate that denied, and Reason says in words what of it is
	// used up; "" where the rule is not shown to clients.
	Policy, Reason string

	// Fields are the response's fields, their names in lower case: those of the
	// rule's profiles, and retry-after where the call was denied.
	Fields map[string][]string
}

// Decide decides about a call as Middleware does about a request: where there
// are no rules yet, the namespace is unknown, or the limiter panics, it passes.
func (a *API) Decide(call *Call) (v Verdict) {
	defer func() {
		if p := recover(); p != nil {
			a.panicked(call.Path, p)
			v = pass()
		}
	}()
	set, ns := a.rulesFor(call.Namespace)
	if ns == nil {
		return pass()
	}
	req := ns.NewRequest()
	defer req.Release()
	now := a.cfg.Now()
	clientIP, ignored := clientBehind(call.Peer, call.Metadata["x-forwarded-for"], a.cfg.TrustedProxies)
	if ignored {
		a.warnIgnored(call.Peer, now)
	}
	req.SetCall(call.Method, call.Path, hostOf(call.Host), clientIP, call.Metadata)
	req.Cost, req.Peek = call.Cost, call.Peek
	x := exchanges.Get().(*exchange)
	defer x.release()
	a.ask(x, a.viewOf(set), req, now)
	d := &x.answer.decision
	v = Verdict{Allowed: d.Allowed, Decision: *d, RetryAfter: time.Duration(x.answer.retry) * time.Second, Fields: x.fields.lower()}
	if !d.Allowed && d.Rate != nil && shows(d.Rule) {
		v.Policy, v.Reason = d.Rate.Policy, string(appendUsed(x.out[:0], d))
	}
	return v
}

func pass() Verdict {
	return Verdict{Allowed: true, Decision: limit.Decision{Allowed: true}}
}

// rulesFor is the set in force and its rules for a namespace; ns is nil where
// requests pass unlimited because there are none.
func (a *API) rulesFor(namespace string) (set *limit.Set, ns *limit.Namespace) {
	if set = a.limiter.Rules(); set == nil {
		a.metrics.undecided.Inc()
		return nil, nil
	}
	ns, bad := a.namespaceOf(set, namespace)
	if bad != nil {
		a.metrics.undecided.Inc()
		a.log.Error("requests pass unlimited", "err", bad)
		return set, nil
	}
	return set, ns
}

// lower are the fields with their names in lower case; nil where there are none.
func (f *fields) lower() map[string][]string {
	if len(f.list) == 0 {
		return nil
	}
	out := make(map[string][]string, len(f.list))
	text := string(f.text)
	values := make([]string, len(f.list))
	for i, s := range f.list {
		values[i] = text[s.start:s.end]
		out[strings.ToLower(s.name.key)] = values[i : i+1 : i+1]
	}
	return out
}
