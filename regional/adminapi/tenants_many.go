package adminapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// patchAgain is after how long tenants are tried again that others have changed.
const patchAgain = 250 * time.Millisecond

// patchTenants is PATCH /admin/v1/namespaces/{namespace}/tenants: what many have from now on, whatever
// they had; others stay. The body is a JSON value a line, or a list of them. Where one has a mistake
// nothing is changed.
func (k *Keybook) patchTenants(w http.ResponseWriter, r *http.Request) *Problem {
	var asks []TenantAsk
	if p := readAsk(w, r, maxBody, func(body []byte) (err error) { asks, err = manyAsks(body); return err }); p != nil {
		return p
	}
	switch {
	case len(asks) == 0:
		return problem(http.StatusBadRequest, `such as {"tenant": "acme", "tier": "gold"}`, "the body says nothing")
	case len(asks) > MostTenants:
		return problem(http.StatusRequestEntityTooLarge, "send some at a time", fmt.Sprintf("more than %d tenants", MostTenants))
	}
	namespace := r.PathValue("namespace")
	d, p := k.begin(r, "patch tenants", namespace)
	if p != nil {
		return p
	}
	d.entry.Message = fmt.Sprintf("%d tenants", len(asks)) + said(d.message)
	set, p := k.ruled()
	if p != nil {
		return d.refuse(p)
	}
	next, mistakes := make([]natsentries.Entry, len(asks)), []Mistake{}
	first := map[string]int{}
	for i := range asks {
		var wrong *limit.Problem
		if next[i], wrong = k.fits(set, &asks[i], namespace); wrong == nil {
			if before, twice := first[asks[i].Tenant]; twice {
				wrong = &limit.Problem{Path: "tenant", Code: "E346", Hint: "name it once", Detail: fmt.Sprintf("%.80q is entry %d, too", asks[i].Tenant, before+1)}
			}
		}
		first[asks[i].Tenant] = i
		if wrong != nil {
			mistakes = append(mistakes, mistakeOf(wrong, "/"+strconv.Itoa(i)))
		}
		next[i].Author, next[i].Message = d.by.name, d.message
	}
	if len(mistakes) > 0 {
		return d.refuse(mistaken(mistakes))
	}
	done, p := k.patch(r, d, set, namespace, next)
	if p != nil {
		return d.refuse(p)
	}
	if !d.dry {
		k.cfg.Log.Info("tenants changed", "namespace", namespace, "author", d.by.name, "changed", done.Changed, "removed", done.Removed)
	}
	writeJSON(w, http.StatusOK, done)
	return nil
}

// patch writes entries over what there is; who writes one meanwhile is written over.
func (k *Keybook) patch(r *http.Request, d *deed, set *limit.Set, namespace string, next []natsentries.Entry) (done TenantsChange, p *Problem) {
	done.DryRun = d.dry
	noted := false
	for try := 0; ; try++ {
		known, err := all(r.Context(), d.store, namespace)
		if err != nil {
			return done, entryProblem(err)
		}
		if try == 0 {
			if p := k.roomFor(r, d.store, set, namespace, next, known); p != nil {
				return done, p
			}
		}
		var changes []natsentries.Change
		for _, e := range next {
			was := known[e.Name]
			if try > 0 && was.Revision == 0 { // it cannot be read, or this region has not heard of it yet
				was, _ = d.store.Get(r.Context(), KindTenant, namespace, e.Name)
			}
			gone := was.Revision == 0 || was.Kind != "" && was.Gone(k.cfg.Now())
			if gone && e.Deleted || was.Kind != "" && !gone && !e.Deleted && bytes.Equal(was.Body, e.Body) && was.Until.Equal(e.Until) {
				if try == 0 {
					done.Unchanged++
				}
				continue
			}
			changes = append(changes, natsentries.Change{Entry: e, Was: was})
		}
		if try == 0 {
			for _, c := range changes {
				if done.Changed++; c.Entry.Deleted {
					done.Removed++
				}
			}
		}
		if d.dry || len(changes) == 0 {
			break
		}
		if !noted {
			if err := d.note("begun"); err != nil {
				return done, unavailable(err)
			}
			noted = true
		}
		_, errs := d.store.PutAll(r.Context(), changes)
		left := next[:0:0]
		var other error
		for i, err := range errs {
			if err != nil {
				left = append(left, changes[i].Entry)
				if !errors.Is(err, natsentries.ErrConflict) {
					other = err
				}
			}
		}
		switch {
		case len(left) == 0:
		case other != nil || try == 3:
			if p = entryProblem(errors.Join(other)); p == nil {
				p = problem(http.StatusPreconditionFailed, "say it again", "others change the same tenants")
			}
			p.Detail = fmt.Sprintf("%d of %d tenants are not changed: %s", len(left), done.Changed, p.Detail)
			return done, p
		default:
			next = left
			select { // a mirror lags behind
			case <-r.Context().Done():
			case <-time.After(patchAgain):
			}
			continue
		}
		break
	}
	if noted {
		if err := d.note("done"); err != nil {
			d.failed(err)
		}
	}
	return done, nil
}

// all is what tenants of a namespace have, those that have ended and were removed among them; of one that
// cannot be read it is the revision alone.
func all(ctx context.Context, store *natsentries.Store, namespace string) (map[string]natsentries.Entry, error) {
	known := map[string]natsentries.Entry{}
	for after := uint64(0); ; {
		found, more, _, err := store.List(ctx, KindTenant, namespace, after, MostTenants)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			known[e.Name] = e
		}
		if after = more; after == 0 {
			return known, nil
		}
	}
}

// roomFor refuses multipliers of tenants' own that were too many, beside those that there are. known is what
// tenants have; nil: it is read, if need be.
func (k *Keybook) roomFor(r *http.Request, store *natsentries.Store, set *limit.Set, namespace string, next []natsentries.Entry, known map[string]natsentries.Entry) *Problem {
	multiplies := func(e *natsentries.Entry) float64 {
		var t limit.TenantEntry
		if e.Gone(k.cfg.Now()) || t.ReadBody(e.Body) != nil {
			return 0
		}
		return t.Multiply
	}
	own := map[float64]bool{}
	changed := map[string]bool{}
	for i := range next {
		changed[next[i].Name] = true
		own[multiplies(&next[i])] = true
	}
	if delete(own, 0); len(own) == 0 {
		return nil
	}
	if known == nil {
		var err error
		if known, err = all(r.Context(), store, namespace); err != nil {
			return entryProblem(err)
		}
	}
	for name, e := range known {
		if !changed[name] {
			own[multiplies(&e)] = true
		}
	}
	if delete(own, 0); len(own) > limit.MaxOwnMultipliers {
		return problem(http.StatusConflict, "make tiers of them, in the document's tenants", fmt.Sprintf("tenants of namespace %s would have %d different multipliers of their own, of at most %d", namespace, len(own), limit.MaxOwnMultipliers))
	}
	return nil
}

// manyAsks reads a list, or one a line.
func manyAsks(body []byte) (asks []TenantAsk, err error) {
	if body = bytes.TrimSpace(body); bytes.HasPrefix(body, []byte("[")) {
		return asks, strictly(body, &asks)
	}
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields()
	for len(asks) <= MostTenants {
		var a TenantAsk
		switch err := in.Decode(&a); {
		case errors.Is(err, io.EOF):
			return asks, nil
		case err != nil:
			return nil, fmt.Errorf("entry %d: %w", len(asks)+1, err)
		}
		asks = append(asks, a)
	}
	return asks, nil
}
