package membus

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// hub knows who receives what.
type hub struct {
	mu    sync.RWMutex
	exact map[string][]*receiver // guarded by mu; by pattern without wildcards
	wild  []*receiver            // guarded by mu; the others, looked through for each message

	turn atomic.Uint64 // requests so far: seeds the choice of a server
}

func (h *hub) add(r *receiver) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if isWild(r.pattern) {
		h.wild = append(h.wild, r)
		return
	}
	if h.exact == nil {
		h.exact = map[string][]*receiver{}
	}
	h.exact[r.pattern] = append(h.exact[r.pattern], r)
}

func (h *hub) remove(r *receiver) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := func(o *receiver) bool { return o == r }
	if isWild(r.pattern) {
		h.wild = slices.DeleteFunc(h.wild, gone)
		return
	}
	h.exact[r.pattern] = slices.DeleteFunc(h.exact[r.pattern], gone)
	if len(h.exact[r.pattern]) == 0 {
		delete(h.exact, r.pattern)
	}
}

// subscribers are all who subscribed to subject.
func (h *hub) subscribers(subject string) []*receiver {
	var found []*receiver
	h.each(subject, func(r *receiver) {
		if r.queue == "" {
			found = append(found, r)
		}
	})
	return found
}

// servers are one of each queue that serves subject, any one of it, but the
// same again when the same requests are made in the same order.
func (h *hub) servers(subject string) []*receiver {
	var found []*receiver
	var sizes []uint64 // of the queues that found stands for
	choice := rand.NewPCG(h.turn.Add(1), 0)
	h.each(subject, func(r *receiver) {
		if r.queue == "" {
			return
		}
		i := slices.IndexFunc(found, func(o *receiver) bool { return o.queue == r.queue })
		if i < 0 {
			found, sizes = append(found, r), append(sizes, 1)
			return
		}
		// The n-th of a queue takes the place with probability 1/n: so each
		// has the same chance in the end.
		sizes[i]++
		if choice.Uint64()%sizes[i] == 0 {
			found[i] = r
		}
	})
	return found
}

// each calls f for every receiver of subject.
func (h *hub) each(subject string, f func(*receiver)) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, r := range h.exact[subject] {
		f(r)
	}
	for _, r := range h.wild {
		if matches(r.pattern, subject) {
			f(r)
		}
	}
}

func isWild(pattern string) bool { return strings.ContainsAny(pattern, "*>") }

// matches reports whether a valid pattern covers a valid subject.
func matches(pattern, subject string) bool {
	for {
		p, morePattern, hasPattern := strings.Cut(pattern, ".")
		s, moreSubject, hasSubject := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != s, hasPattern != hasSubject:
			return false
		case !hasPattern:
			return true
		}
		pattern, subject = morePattern, moreSubject
	}
}
