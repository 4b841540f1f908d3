package adminapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// Keys are what an aggregator knows of keys.
type Keys interface {
	Key(ctx context.Context, now time.Time, rate *limit.Rate, key deltasync.Key) (regional.KeyState, error)
	Top(ctx context.Context, now time.Time, by regional.Order, rates map[uint64]*limit.Rate, n int) (top []regional.TopKey, owned, lanes int)
}

var _ Keys = (*regional.Aggregator)(nil)

// KeyInfo is how one key stands.
type KeyInfo struct {
	Namespace  string          `json:"namespace"`
	Rule       string          `json:"rule"`
	Name       string          `json:"name"`
	CountedAs  string          `json:"counted_as,omitempty"` // since it was reset
	Rates      []KeyRate       `json:"rates"`
	Exceptions []ExceptionInfo `json:"exceptions"`
}

// KeyRate is how a key stands with one rate of its rule.
type KeyRate struct {
	Rate         string      `json:"rate"`
	Algorithm    string      `json:"algorithm"`
	Scope        string      `json:"scope"`
	WindowMS     int64       `json:"window_ms"`
	Counter      string      `json:"counter"` // as edges and aggregators call it
	Limit        uint64      `json:"limit"`
	Used         uint64      `json:"used"`
	Asked        *float64    `json:"asked,omitempty"` // in a window, as edges tell it near the limit
	PenaltyUntil *time.Time  `json:"penalty_until,omitempty"`
	Basis        string      `json:"basis"` // memory, of who has the key's lane; store; partial: of one that has not, while the store has nothing else; or none: each edge counts for itself
	By           []KeySpends `json:"by"`
}

// KeySpends is who counted something of a key.
type KeySpends struct {
	Who    string    `json:"who"` // edge: one of this region; region: all of another; told_by_peers, told_by_homes: what others said of it
	Region string    `json:"region"`
	PoP    string    `json:"pop,omitempty"`
	Node   string    `json:"node,omitempty"` // of an edge, by the hash of its name
	Used   uint64    `json:"used"`
	AgeMS  int64     `json:"age_ms"` // since the newest slice that it counted in
	Last   time.Time `json:"last"`
}

// TopKey is one of the keys of which there is most.
type TopKey struct {
	Namespace    string     `json:"namespace"`
	Rule         string     `json:"rule"`
	Rate         string     `json:"rate"`
	Name         string     `json:"name"`
	CountedAs    string     `json:"counted_as,omitempty"`
	Limit        uint64     `json:"limit"`
	Used         uint64     `json:"used"`
	Denied       uint64     `json:"denied"`
	OverAdmitted uint64     `json:"over_admitted"`
	PenaltyUntil *time.Time `json:"penalty_until,omitempty"`
}

// open opens the bucket of exceptions; where rules are in files there is none.
func (k *Keybook) open(ctx context.Context) (*natsentries.Store, *natsaudit.Log, *Problem) {
	if k.cfg.Open == nil {
		return nil, nil, problem(http.StatusNotFound, "rules.source: kv", "this aggregator's rules are not kept in NATS, nor what holds for single keys")
	}
	store, log, err := k.cfg.Open(ctx)
	if err != nil {
		return nil, nil, unavailable(err)
	}
	return store, log, nil
}

// holding are the exceptions that hold in a namespace; none where there is no bucket of them.
func (k *Keybook) holding(ctx context.Context, namespace string) (list []natsentries.Entry, p *Problem) {
	if k.cfg.Open == nil {
		return nil, nil
	}
	store, _, p := k.open(ctx)
	if p != nil {
		return nil, p
	}
	for after, first := uint64(0), true; first || after != 0; first = false {
		found, more, _, err := store.List(ctx, limit.EntryException, namespace, after, 4096)
		if err != nil {
			return nil, entryProblem(err)
		}
		for i := range found {
			if !found[i].Gone(k.cfg.Now()) {
				list = append(list, found[i])
			}
		}
		after = more
	}
	return list, nil
}

// nameOf is what the key of an exception is called; 0: it is not known.
func (k *Keybook) nameOf(x *limit.Exception, rule *limit.Rule) uint64 {
	if x.Name == 0 && k.cfg.Keyer != nil && len(x.Key) == len(rule.KeyNames()) {
		return uint64(k.naming(rule).Hash(rule.AppendKeyOf(nil, x.Key)))
	}
	return x.Name
}

// get is POST /admin/v1/namespaces/{namespace}/keys/get: how one key stands. It is a POST so that keys are
// in no log of requests.
func (k *Keybook) get(w http.ResponseWriter, r *http.Request) *Problem {
	namespace := r.PathValue("namespace")
	if c := callerOf(r); !c.touches(namespace) {
		return outOfScope(c, namespace)
	}
	ask, p := askOf(w, r)
	if p != nil {
		return p
	}
	if ask.Add != nil || ask.Limit != nil || ask.TTL != "" || ask.Until != nil {
		return problem(http.StatusBadRequest, `{"rule": "api", "key": {"user": "u1"}}`, "who looks at a key changes nothing")
	}
	x, rule, p := k.of(namespace, ask)
	switch {
	case p != nil:
		return p
	case x.Name == 0:
		return problem(http.StatusConflict, "set secret_file, as edges have it, at aggregators; or ask by the key's name, as keys top tells it", "this aggregator cannot name keys: it does not know the cluster's secret")
	}
	entries, p := k.holding(r.Context(), namespace)
	if p != nil {
		return p
	}
	out := KeyInfo{Namespace: namespace, Rule: rule.Name, Name: limit.KeyName(x.Name), Rates: []KeyRate{}, Exceptions: []ExceptionInfo{}}
	hash, made := deltasync.Hash(x.Name), time.Time{}
	var holds []limit.Exception
	for i := range entries {
		e, err := exceptionOf(&entries[i])
		if err != nil || e.Rule != rule.Name || k.nameOf(&e, rule) != x.Name {
			continue
		}
		info, _ := exceptionInfo(&entries[i]) // it was read
		holds, out.Exceptions = append(holds, e), append(out.Exceptions, info)
		if e.Kind == limit.KeyReset && !e.Since.Before(made) {
			hash, made = deltasync.Hash(x.Name).Anew(e.Amount), e.Since
		}
	}
	if !made.IsZero() {
		out.CountedAs = limit.KeyName(uint64(hash))
	}
	now := k.cfg.Now()
	for _, rate := range rule.Rates {
		if ask.Rate != "" && ask.Rate != rate.Name && ask.Rate != rate.Policy {
			continue
		}
		state, err := k.cfg.Keys.Key(r.Context(), now, rate, hash.Key(rate.Generation))
		if err != nil && !state.Owned {
			return problem(http.StatusServiceUnavailable, "ask the aggregator of the region that has the key's lane, or once its store is back", "this aggregator does not have the key's lane, and the store does not answer: "+err.Error())
		}
		out.Rates = append(out.Rates, keyRate(&state, holds, now))
	}
	if len(out.Rates) == 0 {
		return wrongWith(&limit.Problem{Path: "rate", Code: "E337", Hint: "leave it out for all", Detail: fmt.Sprintf("rule %s has no rate %.80q", rule.Name, ask.Rate)})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// keyRate tells a state. What edges have told of the limit may be older than the exceptions.
func keyRate(s *regional.KeyState, holds []limit.Exception, now time.Time) KeyRate {
	rate := s.Rate
	out := KeyRate{
		Rate: rate.Name, Algorithm: rate.Algorithm.String(), Scope: rate.Scope.String(), WindowMS: rate.Window.Milliseconds(),
		Counter: limit.KeyName(uint64(s.Key)), Limit: s.Limit, Used: s.Used, Basis: "memory", By: []KeySpends{},
	}
	switch {
	case rate.Scope == limit.ScopeEdge:
		out.Basis = "none"
	case s.Stored:
		out.Basis = "store"
	case !s.Owned:
		out.Basis = "partial"
	}
	base, more, other := rate.Limit, uint64(0), false
	for i := range holds {
		switch e := &holds[i]; {
		case e.Kind == limit.KeyReset || !e.On(rate) || rate.PerRequest || rate.Consistency == limit.Strict || !e.Holds(now):
			continue
		case e.Kind == limit.KeyOverride:
			base, other = e.Amount, true
		default:
			more, other = crdt.SatAdd(more, e.Amount), true
		}
	}
	if other {
		out.Limit = crdt.SatAdd(base, more)
	}
	if s.Asked >= 0 {
		asked := math.Round(s.Asked*10) / 10
		out.Asked = &asked
	}
	if !s.Until.IsZero() {
		out.PenaltyUntil = &s.Until
	}
	for _, by := range s.By {
		spends := KeySpends{Who: by.Source.String(), Region: by.Region, PoP: by.PoP, Used: by.Used, Last: by.Last, AgeMS: max(0, now.Sub(by.Last).Milliseconds())}
		if by.Source == regional.FromEdge {
			spends.Node = limit.KeyName(by.Node)
		}
		out.By = append(out.By, spends)
	}
	return out
}

// mostTop bounds how many keys are listed.
const mostTop = 1000

// top is GET /admin/v1/keys/top?by=&namespace=&rule=&limit=: the keys of which there is most, of the lanes that
// this aggregator has.
func (k *Keybook) top(w http.ResponseWriter, r *http.Request) *Problem {
	query := r.URL.Query()
	namespace, only := query.Get("namespace"), query.Get("rule")
	if c := callerOf(r); !c.touches(namespace) {
		return outOfScope(c, namespace)
	}
	by := regional.Order(query.Get("by"))
	switch by {
	case "":
		by = regional.ByDenied
	case regional.ByDenied, regional.ByAllowed, regional.ByCost, regional.ByOver:
	default:
		return problem(http.StatusBadRequest, "denied, allowed, cost, or over_admitted", fmt.Sprintf("by=%.40q is nothing to order keys by", by))
	}
	n, p := numberOf(r, "limit")
	switch {
	case p != nil:
		return p
	case n == 0:
		n = 20
	case n > mostTop:
		return problem(http.StatusBadRequest, "1 to 1000", fmt.Sprintf("limit=%d is out of range", n))
	}
	set := k.cfg.Rules()
	if set == nil {
		return problem(http.StatusNotFound, "set rules.path, or rules.source: kv, to those of the edges", "this aggregator knows no rules")
	}
	rates, rules := map[uint64]*limit.Rate{}, map[uint64]*limit.Rule{}
	for _, rule := range set.Rules() {
		if rule.Live != nil || namespace != "" && rule.Namespace != namespace || only != "" && rule.Name != only {
			continue
		}
		for _, rate := range rule.Rates {
			rates[rate.Generation], rules[rate.Generation] = rate, rule
		}
	}
	if len(rates) == 0 {
		return problem(http.StatusNotFound, "see the rules", "there is no such namespace or rule, or it has no rates")
	}
	entries, p := k.holding(r.Context(), namespace)
	if p != nil {
		return p
	}
	leave, p := await(r.Context(), k.turn)
	if p != nil {
		return p
	}
	found, owned, lanes := k.cfg.Keys.Top(r.Context(), k.cfg.Now(), by, rates, int(n))
	leave()
	was := k.resets(set, entries)
	keys := make([]TopKey, len(found))
	for i := range found {
		f := &found[i]
		rule := rules[f.Rate.Generation]
		name := deltasync.HashOf(f.Key, f.Rate.Generation)
		t := TopKey{Namespace: rule.Namespace, Rule: rule.Name, Rate: f.Rate.Name, Name: limit.KeyName(uint64(name)), Limit: f.Limit, Used: f.Used, Denied: f.Denied(), OverAdmitted: f.Over}
		if before, reset := was[name]; reset {
			t.Name, t.CountedAs = limit.KeyName(before), t.Name
		}
		if !f.Until.IsZero() {
			t.PenaltyUntil = &f.Until
		}
		keys[i] = t
	}
	writeJSON(w, http.StatusOK, map[string]any{"by": by, "keys": keys, "owned_lanes": owned, "lanes": lanes})
	return nil
}

// resets are what keys were called that were reset, by what they are called since.
func (k *Keybook) resets(set *limit.Set, entries []natsentries.Entry) map[deltasync.Hash]uint64 {
	was := map[deltasync.Hash]uint64{}
	for i := range slices.Backward(entries) {
		e, err := exceptionOf(&entries[i])
		if err != nil || e.Kind != limit.KeyReset {
			continue
		}
		rule, p := set.Excepts(&e)
		if p != nil {
			continue
		}
		if name := k.nameOf(&e, rule); name != 0 {
			was[deltasync.Hash(name).Anew(e.Amount)] = name
		}
	}
	return was
}
