package rlqs

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

const (
	// maxTokens is the most that an assignment can say.
	maxTokens = math.MaxUint32
	// firstTokens are granted to who has not said yet what he wants, where there is room.
	firstTokens = 100
	// probation is how long a subscription is asked often what it uses.
	probation = 2 * time.Second
	// between is the least time between two assignments of one subscription: each has the
	// data plane report at once.
	between = 200 * time.Millisecond
	// restAfter is how long a bucket without requests keeps its place when there is none for
	// others; idleAfter, when there are few: scarceAt and fullAt are the parts of all places
	// beyond which one goes that has much room, and any.
	restAfter = 5 * time.Second
	idleAfter = time.Minute
	scarceAt  = 0.25
	fullAt    = 0.9
	// silentAfter is that of one whose data plane has not said yet how often it reports.
	silentAfter = 3 * maxPace
	// maxPace is the longest time between two reports of a bucket that is reckoned with.
	maxPace = time.Minute
	// orphansFor is how long a data plane may take to come back and tell what it used.
	orphansFor = time.Minute
	// sweepEvery is how often those that did not are looked for.
	sweepEvery = time.Second
	// stretchOf is how many subscriptions are looked at without letting a report in between.
	stretchOf = 500
)

// tick assigns anew what is due, and abandons what is idle, all at one time.
func (b *book) tick(now time.Time) {
	for !b.stretch(now) {
	}
}

// stretch is a part of a tick, and says whether that is done with it: reports are taken in
// between two. A tick that was left, as by a panic, goes on behind where it was.
func (b *book) stretch(now time.Time) (done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	set := b.limiter.Rules()
	if b.cursor == 0 {
		b.cursor = len(b.order)
		b.sweep(now)
	}
	b.cursor = min(b.cursor, len(b.order)) // some may have gone meanwhile
	for n := 0; n < stretchOf && b.cursor > 0; {
		b.cursor-- // from the end: whoever takes the place of one that goes was looked at
		bk := b.order[b.cursor]
		n += len(bk.subs)
		var ns *limit.Namespace
		if set != nil {
			ns = set.Namespace(bk.domain)
		}
		for i := len(bk.subs) - 1; i >= 0; i-- { // from the end: abandon takes it out
			if sub := bk.subs[i]; b.over(now, ns, sub) {
				b.abandon(now, sub)
			}
		}
		if set != nil && len(bk.subs) > 0 {
			if bk.under != ns {
				b.meet(now, ns, bk)
			}
			b.asked(now, ns, bk)
			b.round(now, ns, bk)
		}
	}
	return b.cursor == 0
}

// over says that a bucket is to be abandoned: it is not reported any more; or it was not used
// for long, there are many, and its limits have much room. To a data plane that forgets it its
// next requests are the first ones: one that lets these pass has no limit until it is assigned
// something, and one that does not denies them. So those whose limits have little room are
// kept, denied or not, until there is hardly a place left, and those that wanted more than
// there was when they were last in use: they may again, all at once.
func (b *book) over(now time.Time, ns *limit.Namespace, sub *subscription) bool {
	switch {
	case sub.unheard(now):
		return true
	case !sub.idle() || !b.taken(sub.stream, scarceAt):
		return false
	case ns == nil || b.taken(sub.stream, fullAt):
		return true
	case sub.pressed:
		return false
	}
	// It is asked as often as it is renewed.
	return !sub.unsent && now.Sub(sub.made) >= b.cfg.TTL/2 && b.roomy(now, ns, sub.bucket)
}

// taken says that such a part of the places that a stream has, or all have, is taken.
func (b *book) taken(s *stream, part float64) bool {
	most, all := b.cfg.MaxStreamBuckets, b.cfg.MaxBuckets
	return float64(len(s.subs)) > part*float64(most) || float64(s.ids) > part*float64(idRoom(most)) ||
		float64(b.subs) > part*float64(all) || float64(b.ids) > part*float64(idRoom(all))
}

// idle says that a bucket was not used for long.
func (sub *subscription) idle() bool { return sub.quiet(idleAfter) }

// atRest says that it was not used of late, or is not reported any more.
func (sub *subscription) atRest(now time.Time) bool {
	return sub.quiet(restAfter) || sub.unheard(now)
}

// quiet says that a bucket's reports told of no requests for so long, and in two of them: not
// that none was read meanwhile, as this edge may be too busy to.
func (sub *subscription) quiet(after time.Duration) bool {
	return sub.demand.quiet >= max(after, 2*sub.stream.pace)
}

// unheard says that a bucket is not reported any more, by a data plane that may do so seldom.
func (sub *subscription) unheard(now time.Time) bool {
	after := max(idleAfter, 2*sub.stream.pace)
	if sub.stream.pace == 0 {
		after = silentAfter
	}
	return now.Sub(sub.demand.heard) >= after
}

// due says that a subscription is to be assigned something anew.
func (b *book) due(now time.Time, sub *subscription) bool {
	age := now.Sub(sub.made)
	switch {
	case sub.unsent, age < between:
		return false
	case sub.kind.denies():
		return age >= b.cfg.TTL/2 || !now.Before(sub.retry)
	case sub.kind != kindTokens:
		return age >= b.cfg.TTL/2
	case len(sub.grants) >= maxGrants:
		return false
	case !sub.demand.heard.After(sub.made):
		return b.presumed(now, sub)
	case age >= b.cfg.TTL/2, now.Sub(sub.born) < probation:
		return true
	}
	want, left := sub.demand.want(b.cfg.TTL), sub.left()
	// It may be out of tokens before it reports again; or it holds much more than it wants.
	return 2*left < sub.tokens && left < sub.demand.until(b.cfg.TTL, 1) || left > 4*want
}

// presumed says that a data plane which has not reported since it was assigned tokens will
// have spent them by what it wanted before. Of one that reports more often than assignments
// end nothing is presumed: a report is as good as sure to come, or it is cut off.
func (b *book) presumed(now time.Time, sub *subscription) bool {
	since, d := sub.began, &sub.demand
	if d.heard.After(since) {
		since = d.heard
	}
	if !b.seldom(sub) || now.Sub(d.heard) >= 2*sub.stream.pace || now.Sub(sub.began) < b.apart(sub) {
		return false
	}
	return float64(sub.left()) < d.rate*(now.Sub(since)+shortestAhead).Seconds()
}

// apart is the least time between two assignments of tokens: of a data plane that reports
// seldom, as much as has them last until it does.
func (b *book) apart(sub *subscription) time.Duration {
	if b.seldom(sub) {
		return (sub.stream.pace + b.cfg.TTL) / maxGrants
	}
	return between
}

// seldom says that a data plane goes by its timer, and that the next report may well come
// after the assignment has ended: who reports what is assigned does so twice meanwhile.
func (b *book) seldom(sub *subscription) bool { return sub.stream.pace > 3*b.cfg.TTL/4 }

// lapses says that an assignment of tokens is to be extended: there was no report, which
// says how many it should have, and without one it would end, and with it the limit.
func (b *book) lapses(now time.Time, sub *subscription) bool {
	return !sub.unsent && now.Sub(sub.made) >= b.cfg.TTL/2 && !sub.demand.heard.After(sub.made) && sub.extendable(now)
}

// extend has the same assignment go on: its tokens are charged, and are no more than they were.
func (b *book) extend(sub *subscription) {
	sub.unsent, sub.granted = true, false
	b.tell(action{sub: sub, kind: kindTokens, tokens: sub.tokens, serial: sub.serial, ttl: b.cfg.TTL})
}

// left is what the data plane has at least, of its present assignment.
func (sub *subscription) left() uint64 { return crdt.SatSub(sub.tokens, sub.spent) }

// round shares what is left of a bucket among its subscriptions by what they want, and
// assigns those that are due theirs.
func (b *book) round(now time.Time, ns *limit.Namespace, bk *bucket) {
	any := false
	for _, sub := range bk.subs {
		switch sub.isDue = b.due(now, sub); {
		case sub.isDue && ns != nil && b.settled(now, sub):
			sub.isDue = false
		case !sub.isDue && b.lapses(now, sub):
			b.extend(sub)
		}
		any = any || sub.isDue
	}
	if !any {
		return
	}
	wants, total := make([]uint64, len(bk.subs)), uint64(0)
	for i, sub := range bk.subs {
		switch want := sub.demand.want(b.cfg.TTL); {
		case sub.isDue:
			wants[i] = want
		case now.Sub(sub.demand.heard) < max(b.cfg.TTL, 2*sub.stream.pace): // else it may be cut off
			wants[i] = crdt.SatSub(want, sub.left()) // its part is left for when it is due
		}
		total = crdt.SatAdd(total, wants[i])
	}
	room := total
	if ns != nil {
		room = b.left(now, ns, bk, total)
	}
	for i, share := range shares(room, total, wants) {
		if sub := bk.subs[i]; sub.isDue {
			b.assign(now, ns, sub, share)
		}
	}
}

// shares divides room by wants, whose sum is total; whole tokens, what remains of them
// going round by chance, so that where there are fewer than subscriptions none is left
// out for long. Nobody gets more than he wants.
func shares(room, total uint64, wants []uint64) []uint64 {
	out := slices.Clone(wants)
	if room >= total {
		return out
	}
	rest := room
	for i, want := range wants {
		high, low := bits.Mul64(room, want)
		out[i], _ = bits.Div64(high, low, total) // high < total, as room is
		rest -= out[i]
	}
	for rest > 0 { // less than one each
		for _, i := range rand.Perm(len(out)) {
			if rest > 0 && out[i] < wants[i] {
				out[i]++
				rest--
			}
		}
	}
	return out
}

// first is what a new subscription is granted: a part of what is left, as others come.
func (b *book) first(now time.Time, ns *limit.Namespace, sub *subscription) uint64 {
	each := b.meet(now, ns, sub.bucket)
	room := b.left(now, ns, sub.bucket, 4*firstTokens)
	return max(1, min(room/4, each, firstTokens))
}

// left is how many requests of a bucket there is room for, of so many that are wanted.
func (b *book) left(now time.Time, ns *limit.Namespace, bk *bucket, wanted uint64) uint64 {
	req := newRequest(ns, bk.id.Bucket)
	defer req.Release()
	unit, _ := price(req)
	req.Cost, req.Peek, req.Lump = satMul(wanted, unit), true, wanted
	d := b.limiter.Check(now, req)
	if d.Allowed {
		return wanted
	}
	return min(wanted, d.Remaining/max(1, unit))
}

// assign grants a subscription so many tokens, or as many as it can have, and tells it.
// Without a namespace, whose rules are gone, it may do as it likes.
func (b *book) assign(now time.Time, ns *limit.Namespace, sub *subscription, tokens uint64) {
	to, wait := kindAllow, time.Duration(0)
	if ns != nil {
		to, tokens, wait = b.grant(now, ns, sub, min(tokens, maxTokens))
	}
	if to.denies() && sub.left() > 0 && sub.extendable(now) {
		sub.retry = b.again(now, sub, wait)
		if now.Sub(sub.made) >= b.cfg.TTL/2 { // there are no others
			b.extend(sub)
		}
		return
	}
	if to.denies() {
		b.deny(now, sub, to, wait)
		return
	}
	b.rest(sub, 0)
	a := action{sub: sub, kind: to, ttl: b.cfg.TTL}
	if sub.granted = to == kindTokens; sub.granted {
		sub.serial++
		a.tokens, a.serial = tokens, sub.serial
	}
	sub.kind, sub.tokens, sub.spent, sub.unsent = to, a.tokens, 0, true
	b.tell(a)
}

// deny has a data plane admit nothing, be it that it has tokens.
func (b *book) deny(now time.Time, sub *subscription, to kind, wait time.Duration) {
	sub.retry, sub.granted, sub.pressed = b.again(now, sub, wait), false, sub.pressed || !sub.idle()
	if sub.kind == to && now.Sub(sub.made) < b.cfg.TTL/2 {
		return // it knows
	}
	sub.kind, sub.tokens, sub.spent, sub.unsent = to, 0, 0, true
	b.tell(action{sub: sub, kind: to, ttl: b.cfg.TTL})
}

// again is when there may be room for a subscription: one that is at rest is in no hurry.
func (b *book) again(now time.Time, sub *subscription, wait time.Duration) time.Time {
	if sub.quiet(restAfter) {
		return now.Add(b.cfg.TTL / 2)
	}
	return now.Add(max(min(wait, time.Second), b.apart(sub)))
}

// grant charges tokens; fewer where there is no room for so many. Where there is room for
// none it says how long that may last.
func (b *book) grant(now time.Time, ns *limit.Namespace, sub *subscription, tokens uint64) (kind, uint64, time.Duration) {
	req := newRequest(ns, sub.bucket.id.Bucket)
	defer req.Release()
	unit, single := price(req)
	if !slices.ContainsFunc(req.Rules(), func(r *limit.Rule) bool { return r.Mode == limit.Enforce && !r.Allow }) {
		return kindAllow, 0, 0 // trials deny nothing: what is used is charged when it is reported
	}
	if sub.single = single; single {
		tokens = min(tokens, 1)
	}
	deny, wait := kindDeny, time.Second
	if len(sub.grants) >= maxGrants {
		return deny, 0, wait
	}
	for tokens = max(tokens, 1); tokens > 0; tokens /= 2 {
		req.Cost, req.Peek, req.Lump = satMul(tokens, unit), true, tokens // a denial may be charged, or punished: it is asked first
		d := b.limiter.Check(now, req)
		switch {
		case d.Allowed && d.Rule == nil:
			return kindAllow, 0, 0
		case !d.Allowed && d.Rate == nil: // for good
			return kindDeny, 0, time.Second
		}
		if !d.Allowed {
			if wait = d.RetryAfter; d.Basis.CutOff {
				deny = kindCutOff
			}
			continue
		}
		req.Peek, req.Receipt = false, true
		switch d = b.limiter.Check(now, req); {
		case d.Allowed && d.Delay > 0: // a data plane lets pass at once, or not at all
			b.limiter.Refund(now, req.Charges, 0)
			wait = d.Delay
		case d.Allowed:
			sub.grants = append(sub.grants, grant{
				tokens: tokens, left: tokens, unit: unit, charges: slices.Clone(req.Charges), ends: now.Add(b.cfg.TTL),
			})
			b.metrics.granted.Add(float64(tokens))
			return kindTokens, tokens, 0
		}
	}
	return deny, 0, wait
}

// giveBack refunds what is left of grants that are over.
func (b *book) giveBack(now time.Time, over grants) {
	for i := range over {
		g := &over[i]
		if g.left == 0 {
			continue
		}
		b.metrics.returned.Add(float64(g.left))
		if g.left == g.tokens {
			b.limiter.Refund(now, g.charges, 0) // all, of rates that count requests too
			continue
		}
		for price, charges := range g.byPrice() {
			b.limiter.Refund(now, charges, satMul(g.left, price))
		}
	}
}

// charge books requests that were admitted without a grant: before the first assignment,
// after the last expired, or by a data plane that does as it likes.
func (b *book) charge(now time.Time, ns *limit.Namespace, bk *bucket, requests uint64) {
	if requests == 0 {
		return
	}
	b.metrics.beyond.Add(float64(requests))
	req := newRequest(ns, bk.id.Bucket)
	defer req.Release()
	unit, _ := price(req)
	req.Cost, req.Lump = satMul(requests, unit), requests
	b.limiter.Report(now, req)
}

// asked tells the limiter of requests that were admitted by a grant, or denied: of lumps
// it does not know how much is asked for.
func (b *book) asked(now time.Time, ns *limit.Namespace, bk *bucket) {
	requests := uint64(0)
	for _, sub := range bk.subs {
		requests = crdt.SatAdd(requests, sub.asks.take())
	}
	if requests == 0 || ns == nil {
		return
	}
	req := newRequest(ns, bk.id.Bucket)
	defer req.Release()
	unit, _ := price(req)
	req.Cost, req.Lump = satMul(requests, unit), requests
	b.limiter.Asked(now, req)
}

// price is what one request costs, by the dearest of the rules that charge it and are in
// force, or of the trials where there is none; single says that it meets a rate which counts
// requests one by one.
func price(req *limit.Request) (unit uint64, single bool) {
	unit = 1
	rules := req.Rules()
	inForce := slices.ContainsFunc(rules, func(r *limit.Rule) bool { return counted(r) && r.Enforced() })
	for _, rule := range rules {
		if !counted(rule) || inForce && !rule.Enforced() { // beside one in force a trial changes nothing
			continue
		}
		unit = max(unit, rule.CostOf(req))
		single = single || slices.ContainsFunc(rule.Rates, (*limit.Rate).CountsRequests)
	}
	return unit, single
}

// counted says that a rule counts the requests that it applies to, whatever becomes of them:
// responses nobody sees here.
func counted(r *limit.Rule) bool { return !r.Allow && !r.CountsAfter() }

func satMul(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}
