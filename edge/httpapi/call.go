package httpapi

import (
	"context"
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
	Peer      string // the address that the call came from, with or without port; "@" for a unix socket

	// Metadata is the header, its names in lower case. Of X-Forwarded-For only
	// what a trusted Peer says is believed.
	Metadata map[string][]string

	Cost uint64 // 0: as the rule says
	Peek bool   // decide, charge nothing

	Parts bool // parts of it are decided about while it is under way: see Visit.Part
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
	// rule's profiles, and retry-after where the call was denied; or UndecidedField.
	Fields map[string][]string
}

// Decide decides about a call as Middleware does about a request: where there
// are no rules yet, the namespace is unknown, or the limiter panics, it passes.
// The visit of a call that passes is to be waited for and ended; it is nil
// where nothing is left to do, but not for calls with Parts.
func (a *API) Decide(ctx context.Context, call *Call) (v Verdict, visit *Visit) {
	defer func() {
		if p := recover(); p != nil {
			a.panicked(call.Path, p)
			v, visit = passUndecided(undecidedFault), nil
		}
		if visit == nil && call.Parts && v.Allowed {
			visit = &Visit{api: a, path: call.Path}
		}
	}()
	set, ns, why := a.rulesFor(call.Namespace)
	if ns == nil {
		return passUndecided(why), nil
	}
	req := ns.NewRequest()
	defer func() {
		if visit == nil {
			req.Release()
		}
	}()
	now := a.cfg.Now()
	lines := call.Metadata["x-forwarded-for"]
	clientIP, believed := senderAt(call.Peer, a.cfg.TrustedProxies)
	if believed {
		clientIP = clientOf(lines, clientIP, a.cfg.TrustedProxies)
	} else if lines != nil {
		a.warnIgnored(call.Peer, now)
	}
	req.SetCall(call.Method, call.Path, hostOnly(call.Host), clientIP, call.Metadata)
	a.warnNoAddress(req)
	req.Cost, req.Peek, req.Trusted = call.Cost, call.Peek, believed
	x := exchanges.Get().(*exchange)
	defer x.release()
	view := a.viewOf(set)
	nv := view.namespaces[ns]
	req.Receipt = nv.charges
	a.ask(ctx, x, view, req, now)
	d := &x.answer.decision
	v = Verdict{Allowed: d.Allowed, Decision: *d, RetryAfter: time.Duration(x.answer.retry) * time.Second, Fields: x.fields.lower()}
	if !d.Allowed && d.Rate != nil && shows(d.Rule) {
		v.Policy, v.Reason = d.Rate.Policy, string(appendUsed(x.out[:0], d))
	}
	return v, a.begin(req, nv, d, call.Path)
}

// Part decides about a part of the visit's call, such as a message of its
// stream, and waits for its turn as Wait does. Slots of concurrency limits are
// the whole call's, so that they are not asked for twice: it lets go of its
// own, and has those of the part from then on. If others were faster to take
// them, the part is denied. A part that charges nothing passes, and leaves all as it is.
func (v *Visit) Part(ctx context.Context, call *Call) (Verdict, error) {
	if call.Peek {
		return pass(), nil
	}
	v.release()
	verdict, part := v.api.Decide(ctx, call)
	if part == nil {
		return verdict, nil
	}
	if err := part.Wait(ctx); err != nil {
		return verdict, err
	}
	if !v.takeOver(part) {
		part.over(nil)
	}
	return verdict, nil
}

// release lets go of the visit's slots.
func (v *Visit) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	defer v.api.surviveIn(v.path)
	if v.ended || v.req == nil {
		return
	}
	if v.renewal != nil {
		v.renewal.Stop()
		v.renewal = nil
	}
	if v.keepCharges(); len(v.req.Charges) > 0 {
		v.api.limiter.Refund(v.api.cfg.Now(), v.req.Charges, 0)
	}
}

// takeOver takes the charges of a part; it is false where the visit has ended.
func (v *Visit) takeOver(part *Visit) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return false
	}
	part.mu.Lock()
	defer part.mu.Unlock()
	part.ended = true // its timer, if it is due just now, finds nothing to do
	if part.renewal != nil {
		part.renewal.Stop()
	}
	if v.req == nil {
		v.req = part.req
	} else {
		v.req.Charges = append(v.req.Charges[:0], part.req.Charges...)
		part.req.Release()
	}
	v.hold()
	return true
}

func pass() Verdict {
	return Verdict{Allowed: true, Decision: limit.Decision{Allowed: true}}
}

// passUndecided lets pass what nothing could be decided about.
func passUndecided(why string) Verdict {
	v := pass()
	v.Fields = map[string][]string{strings.ToLower(UndecidedField): {why}}
	return v
}

// rulesFor is the set in force and its rules for a namespace; ns is nil where
// requests pass unlimited because there are none, and why says so.
func (a *API) rulesFor(namespace string) (set *limit.Set, ns *limit.Namespace, why string) {
	if set = a.limiter.Rules(); set == nil {
		a.metrics.undecided.Inc()
		return nil, nil, undecidedRules
	}
	ns, bad := a.namespaceOf(set, namespace)
	if bad != nil {
		a.noRules(bad)
		return set, nil, undecidedSetup
	}
	return set, ns, ""
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
