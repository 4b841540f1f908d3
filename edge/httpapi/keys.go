package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// keyNames is a limiter that knows what keys are called: an edge.Node.
type keyNames interface {
	KeyName(rule *limit.Rule, req *limit.Request) (name uint64, ok bool)
}

var _ keyNames = (*edge.Node)(nil)

const (
	// maxToldRules bounds the rules whose keys are told of (tell_keys), over all sets.
	maxToldRules = 1000
	// maxToldKey is how much of a key is told, in bytes.
	maxToldKey = 512
)

// deniedKeys are the keys that were denied most of rules that let theirs be told, over all sets of rules.
type deniedKeys struct {
	mu sync.RWMutex // guards of
	of map[[2]string]*top
}

// add counts a denial by a rule that lets its keys be told.
func (k *deniedKeys) add(limiter Limiter, rule *limit.Rule, req *limit.Request) {
	names, knows := limiter.(keyNames)
	if !knows {
		return
	}
	name, ok := names.KeyName(rule, req)
	if !ok {
		return
	}
	id := [2]string{rule.Namespace, rule.Name}
	k.mu.RLock()
	t := k.of[id]
	k.mu.RUnlock()
	if t == nil {
		k.mu.Lock()
		switch t = k.of[id]; {
		case t != nil:
		case len(k.of) < maxToldRules:
			if k.of == nil {
				k.of = map[[2]string]*top{}
			}
			t = newTop()
			k.of[id] = t
		}
		k.mu.Unlock()
		if t == nil {
			return
		}
	}
	text := rule.KeyText(req)
	t.add(limit.KeyName(name)+text[:min(len(text), maxToldKey)], true)
}

// DeniedKey is one of the keys that were denied most.
type DeniedKey struct {
	Namespace string `json:"namespace"`
	Rule      string `json:"rule"`
	Name      string `json:"name"` // as aggregators tell it
	Key       string `json:"key"`  // in clear
	Denied    uint64 `json:"denied"`
	Excess    uint64 `json:"excess,omitempty"` // by how much that may be too high
}

// topOfKeys answers GET /admin/v1/keys/top?namespace=&rule=&limit=: the keys that this edge denied most since
// it started, in clear, of rules that say tell_keys. It belongs to the admin listener.
func (a *API) topOfKeys(w http.ResponseWriter, r *http.Request) {
	query, most := r.URL.Query(), topTenants
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > topTenants {
			writeProblem(w, &problem{status: http.StatusBadRequest, field: "limit", detail: fmt.Sprintf("limit: %.40q: want 1 to %d", text, topTenants)})
			return
		}
		most = n
	}
	keys := []DeniedKey{}
	a.deniedKeys.mu.RLock()
	of := make(map[[2]string]*top, len(a.deniedKeys.of))
	for id, t := range a.deniedKeys.of {
		if (!query.Has("namespace") || query.Get("namespace") == id[0]) && (!query.Has("rule") || query.Get("rule") == id[1]) {
			of[id] = t
		}
	}
	a.deniedKeys.mu.RUnlock()
	for id, t := range of {
		for _, s := range t.list(most, func(s *topSlot) TopTenant {
			return TopTenant{Tenant: string(s.name), Denied: s.count, Excess: s.excess}
		}) {
			const digits = 16
			keys = append(keys, DeniedKey{Namespace: id[0], Rule: id[1], Name: s.Tenant[:digits], Key: s.Tenant[digits:], Denied: s.Denied, Excess: s.Excess})
		}
	}
	slices.SortFunc(keys, func(a, b DeniedKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Name, b.Name))
	})
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = jsonType, noStore
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(map[string]any{"keys": keys[:min(most, len(keys))]}) // a caller that is gone cannot be told so
}
