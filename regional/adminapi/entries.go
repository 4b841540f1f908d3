package adminapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// deed is something that a caller does to entries, and what is noted of it.
type deed struct {
	store   *natsentries.Store
	log     *natsaudit.Log
	entry   natsaudit.Entry
	by      *caller
	message string
	dry     bool
	ctx     context.Context
	failed  func(err error)
}

// begin reads what is said of each change, and opens what it is noted in. namespace is "" where it is of all.
func (k *Keybook) begin(r *http.Request, action, namespace string) (*deed, *Problem) {
	dry, p := flagOf(r, "dry_run")
	if p != nil {
		return nil, p
	}
	d := &deed{by: callerOf(r), message: r.URL.Query().Get("message"), dry: dry, ctx: context.WithoutCancel(r.Context())}
	if len(d.message) > maxMessage || !utf8.ValidString(d.message) {
		return nil, problem(http.StatusBadRequest, fmt.Sprintf("at most %d bytes of UTF-8", maxMessage), fmt.Sprintf("message: %d bytes", len(d.message)))
	}
	if d.store, d.log, p = k.open(r.Context()); p != nil {
		return nil, p
	}
	d.entry = natsaudit.Entry{Request: rand.Text(), Who: d.by.name, Role: string(d.by.role), From: d.by.from, Action: action, Namespace: namespace, Message: d.message}
	d.failed = func(err error) {
		k.cfg.Log.Error("what an operator did, or tried, is not in the audit log", "who", d.by.name, "action", action, "namespace", namespace, "err", err)
	}
	if !d.by.touches(namespace) {
		return nil, d.refuse(outOfScope(d.by, namespace))
	}
	return d, nil
}

func (d *deed) note(result string) error {
	d.entry.Result = result
	if len(d.entry.Message) > maxMessage {
		d.entry.Message = d.entry.Message[:maxMessage]
	}
	return d.log.Append(d.ctx, d.entry)
}

// refuse notes that a deed is refused, and why.
func (d *deed) refuse(p *Problem) *Problem {
	if d.dry && p.Status != http.StatusForbidden {
		return p
	}
	if err := d.note("refused: " + p.Detail); err != nil {
		d.failed(err)
	}
	return p
}

// write writes an entry over another: what cannot be noted is not done.
func (d *deed) write(ctx context.Context, next, was natsentries.Entry) (natsentries.Entry, *Problem) {
	if err := d.note("begun"); err != nil {
		return next, unavailable(err)
	}
	made, err := d.store.Put(ctx, next, was)
	if err != nil {
		p := entryProblem(err)
		if p == nil {
			p = problem(http.StatusUnprocessableEntity, "", err.Error())
		}
		return next, d.refuse(p)
	}
	if err := d.note("done"); err != nil {
		d.failed(err)
	}
	return made, nil
}

// put writes an exception over what there was, and answers.
func (k *Keybook) put(w http.ResponseWriter, r *http.Request, d *deed, next, was natsentries.Entry) *Problem {
	made := next
	if !d.dry {
		var p *Problem
		if made, p = d.write(r.Context(), next, was); p != nil {
			return p
		}
	} else {
		made.At = k.cfg.Now().UTC()
	}
	told, removed := made, made.Deleted
	if removed {
		told.Body, told.Until = was.Body, was.Until
	}
	info, err := exceptionInfo(&told)
	if err != nil {
		return problem(http.StatusInternalServerError, "", err.Error()) // it was made here
	}
	out := ExceptionChange{ExceptionInfo: info, Changed: true, DryRun: d.dry, Removed: removed}
	status := http.StatusOK
	if !d.dry {
		k.cfg.Log.Info("an exception changed", "namespace", info.Namespace, "rule", info.Rule, "kind", info.Kind, "id", info.ID, "author", made.Author, "removed", removed)
		w.Header().Set("ETag", info.ETag)
		if !removed && was.Gone(k.cfg.Now()) || was.Revision == 0 {
			status = http.StatusCreated
		}
	}
	writeJSON(w, status, out)
	return nil
}

// found is the exception that a request names, which has not ended.
func (k *Keybook) found(ctx context.Context, store *natsentries.Store, namespace, id string) (natsentries.Entry, *Problem) {
	e, err := store.Get(ctx, limit.EntryException, namespace, id)
	if p := entryProblem(err); p != nil {
		return e, p
	}
	if err != nil || e.Gone(k.cfg.Now()) {
		return e, problem(http.StatusNotFound, "GET the exceptions of the namespace", fmt.Sprintf("namespace %.80s has no exception %.40q, or it has ended", namespace, id))
	}
	return e, nil
}

// exception is GET /admin/v1/namespaces/{namespace}/exceptions/{id}.
func (k *Keybook) exception(w http.ResponseWriter, r *http.Request) *Problem {
	store, p := k.look(r)
	if p != nil {
		return p
	}
	e, p := k.found(r.Context(), store, r.PathValue("namespace"), r.PathValue("id"))
	if p != nil {
		return p
	}
	info, err := exceptionInfo(&e)
	if err != nil {
		return problem(http.StatusUnprocessableEntity, "DELETE it", err.Error())
	}
	w.Header().Set("ETag", info.ETag)
	writeJSON(w, http.StatusOK, info)
	return nil
}

// look opens the bucket for who may see the namespace that a request names.
func (k *Keybook) look(r *http.Request) (*natsentries.Store, *Problem) {
	if c, ns := callerOf(r), r.PathValue("namespace"); !c.touches(ns) {
		return nil, outOfScope(c, ns)
	}
	store, _, p := k.open(r.Context())
	return store, p
}

// exceptions is GET /admin/v1/namespaces/{namespace}/exceptions?rule=&after=&limit=: those that hold, in the
// order in which they were made.
func (k *Keybook) exceptions(w http.ResponseWriter, r *http.Request) *Problem {
	after, p := numberOf(r, "after")
	if p != nil {
		return p
	}
	most, p := numberOf(r, "limit")
	switch {
	case p != nil:
		return p
	case most == 0:
		most = 100
	case most > 1000:
		return problem(http.StatusBadRequest, "1 to 1000", fmt.Sprintf("limit=%d is out of range", most))
	}
	store, p := k.look(r)
	if p != nil {
		return p
	}
	infos, unread := []ExceptionInfo{}, []string{}
	rule := r.URL.Query().Get("rule")
	for {
		found, more, wrong, err := store.List(r.Context(), limit.EntryException, r.PathValue("namespace"), after, int(most)-len(infos))
		if err != nil {
			return entryProblem(err)
		}
		for _, err := range wrong {
			unread = append(unread, err.Error())
		}
		for i := range found {
			if found[i].Gone(k.cfg.Now()) {
				continue
			}
			switch info, err := exceptionInfo(&found[i]); {
			case err != nil:
				unread = append(unread, found[i].Name+": "+err.Error())
			case rule == "" || info.Rule == rule:
				infos = append(infos, info)
			}
		}
		if after = more; after == 0 || len(infos) >= int(most) {
			break
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"exceptions": infos, "after": after, "unreadable": unread})
	return nil
}

// removeException is DELETE /admin/v1/namespaces/{namespace}/exceptions/{id}. What a key counted before
// it was reset counts again, where that is not over.
func (k *Keybook) removeException(w http.ResponseWriter, r *http.Request) *Problem {
	over, p := conditionOf(r)
	if p != nil {
		return p
	}
	d, p := k.begin(r, "remove exception", r.PathValue("namespace"))
	if p != nil {
		return p
	}
	id := r.PathValue("id")
	was, err := d.store.Get(r.Context(), limit.EntryException, r.PathValue("namespace"), id)
	if p := entryProblem(err); p != nil {
		return d.refuse(p)
	}
	x, bad := exceptionOf(&was)
	d.entry.Rule, d.entry.Message = x.Rule, says(&x)+said(d.message)
	switch {
	case errors.Is(err, natsentries.ErrNone), err == nil && was.Gone(k.cfg.Now()):
		return d.refuse(problem(http.StatusNotFound, "GET the exceptions of the namespace", fmt.Sprintf("there is no exception %.40q, or it has ended", id)))
	case over.match != "*" && over.match != entryTag(&was):
		return d.refuse(problem(http.StatusPreconditionFailed, "GET it anew", "there is another by now, with ETag "+entryTag(&was)))
	}
	next := natsentries.Entry{Kind: limit.EntryException, Namespace: r.PathValue("namespace"), Name: id, Author: d.by.name, Message: d.message, Deleted: true}
	if err != nil || bad != nil { // of which nothing else is known
		was.Body = (&x).Body()
		if bad != nil || len(was.Body) == 0 {
			was.Body = []byte(`{"rule":"","reset":"0000000000000001"}`)
		}
	}
	return k.put(w, r, d, next, was)
}
