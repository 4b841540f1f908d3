package adminapi

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// maxBody bounds a document that is sent.
const maxBody = 4 << 20

// maxDocuments bounds how many are checked at once.
const maxDocuments = 2000

// maxMessage bounds why somebody changes something.
const maxMessage = natsrules.MaxMessage

// route is what is served, and to whom.
type route struct {
	pattern string
	need    configs.Role
	query   []string // the parameters that there are
	serve   func(w http.ResponseWriter, r *http.Request) *Problem
}

// heeds refuses parameters that are none of the route's: of a change one that is misspelt says that somebody
// meant something else.
func (rt *route) heeds(r *http.Request) *Problem {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return problem(http.StatusBadRequest, "escape it, as %3B", "the query cannot be read: "+err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(rt.query, name):
			hint := "there is none here"
			if len(rt.query) > 0 {
				hint = "one of: " + strings.Join(rt.query, ", ")
			}
			return problem(http.StatusBadRequest, hint, fmt.Sprintf("%.40q is no parameter of this", name))
		case len(query[name]) > 1:
			return problem(http.StatusBadRequest, "say it once", fmt.Sprintf("%s stands there twice", name))
		}
	}
	return nil
}

// routes are those of rules.
func (b *Rulebook) routes() []route {
	const namespace = " /admin/v1/namespaces/{namespace}"
	change := func(more ...string) []string { return append(more, "dry_run", "message") }
	version := []string{"version"}
	return []route{
		{"GET /admin/v1/namespaces", configs.RoleViewer, nil, b.list},
		{"GET" + namespace, configs.RoleViewer, version, b.get},
		{"PUT" + namespace, configs.RoleEditor, change(append([]string{"regions"}, untilWords...)...), b.seated(b.put)},
		{"DELETE" + namespace, configs.RoleAdmin, change(), b.remove},
		{"GET" + namespace + "/versions", configs.RoleViewer, nil, b.versions},
		{"GET" + namespace + "/diff", configs.RoleViewer, []string{"from", "to"}, b.diff},
		{"POST" + namespace + "/rollback", configs.RoleEditor, change("to"), b.rollback},
		{"POST" + namespace + "/promote", configs.RoleEditor, change(), b.promote},
		{"POST" + namespace + "/revert", configs.RoleEditor, change(), b.revert},
		{"GET" + namespace + "/rules", configs.RoleViewer, version, b.rules},
		{"GET" + namespace + "/rules/{rule}", configs.RoleViewer, version, b.rule},
		{"PUT" + namespace + "/rules/{rule}", configs.RoleEditor, change(), b.seated(b.putRule)},
		{"DELETE" + namespace + "/rules/{rule}", configs.RoleEditor, change(), b.removeRule},
		{"POST /admin/v1/validate", configs.RoleViewer, nil, b.seated(b.validate)},
		{"GET /admin/v1/audit", configs.RoleAdmin, []string{"namespace", "who", "before", "limit"}, b.audit},
	}
}

// list is GET /admin/v1/namespaces: the newest version of each that the caller may see.
func (b *Rulebook) list(w http.ResponseWriter, r *http.Request) *Problem {
	store, _, err := b.open(r.Context())
	if err != nil {
		return unavailable(err)
	}
	all, unread, err := store.All(r.Context())
	if err != nil {
		return unavailable(err)
	}
	infos, wrong := []VersionInfo{}, []string{}
	for _, err := range unread {
		if callerOf(r).touches("") {
			wrong = append(wrong, err.Error())
		}
	}
	for i := range all {
		if callerOf(r).touches(all[i].Namespace) {
			infos = append(infos, b.newestInfo(&all[i]))
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"namespaces": infos, "unreadable": wrong})
	return nil
}

// seen is a version of the namespace that a request names, ?version=; 0, or none: the newest.
func (b *Rulebook) seen(r *http.Request) (*natsrules.Version, *Problem) {
	number, p := numberOf(r, "version")
	if p != nil {
		return nil, p
	}
	store, p := b.look(r)
	if p != nil {
		return nil, p
	}
	v, err := versionOf(r.Context(), store, r.PathValue("namespace"), number)
	if err != nil {
		return nil, problemOf(err)
	}
	return v, nil
}

// look opens the bucket for who may see the namespace that a request names.
func (b *Rulebook) look(r *http.Request) (*natsrules.Store, *Problem) {
	if c, ns := callerOf(r), r.PathValue("namespace"); !c.touches(ns) {
		return nil, outOfScope(c, ns)
	}
	store, _, err := b.open(r.Context())
	if err != nil {
		return nil, unavailable(err)
	}
	return store, nil
}

// versionOf is one version of a namespace; number 0: the newest, unless that took the namespace away.
func versionOf(ctx context.Context, store *natsrules.Store, namespace string, number uint64) (*natsrules.Version, error) {
	if number == 0 {
		v, err := store.Get(ctx, namespace)
		if err == nil && v.Deleted {
			err = problem(http.StatusNotFound, "?version= names one before", stateOf(&v))
		}
		return &v, err
	}
	all, err := store.History(ctx, namespace)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(v natsrules.Version) bool { return v.Number == number })
	if i < 0 {
		return nil, problem(http.StatusNotFound, "GET its versions", fmt.Sprintf("namespace %s has no version %d, or not any more: the last 64 are kept", namespace, number))
	}
	return &all[i], nil
}

// get is GET /admin/v1/namespaces/{namespace}: its document, as YAML, or as JSON says what it is.
func (b *Rulebook) get(w http.ResponseWriter, r *http.Request) *Problem {
	v, p := b.seen(r)
	if p != nil {
		return p
	}
	w.Header().Set("ETag", etag(v))
	w.Header().Set("Vary", "Accept")
	if wantsJSON(r) {
		writeJSON(w, http.StatusOK, Document{infoOf(v), v.Text, v.Elsewhere})
		return nil
	}
	writeYAML(w, v.Text)
	return nil
}

// put is PUT /admin/v1/namespaces/{namespace}?regions=, and until when (untilWords): the body is its document from now on, in some
// regions or in all.
func (b *Rulebook) put(w http.ResponseWriter, r *http.Request) *Problem {
	text, p := bodyOf(w, r)
	if p != nil {
		return p
	}
	regions, p := regionsOf(r)
	if p != nil {
		return p
	}
	until, p := untilOf(r, regions)
	if p != nil {
		return p
	}
	action := "put"
	if regions != "" {
		action = "put in " + regions
	}
	return b.change(w, r, action, func(_ context.Context, _ *natsrules.Store, was *natsrules.Version) (natsrules.Version, error) {
		if regions == "" {
			return natsrules.Version{Text: text}, underWay(was)
		}
		return natsrules.Version{Text: text, Regions: regions, Elsewhere: stable(was).Text, Until: until}, nil
	})
}

// regionsOf reads ?regions=eu,us.
func regionsOf(r *http.Request) (string, *Problem) {
	if !r.URL.Query().Has("regions") {
		return "", nil
	}
	regions := strings.Split(r.URL.Query().Get("regions"), ",")
	slices.Sort(regions)
	for _, region := range regions {
		if err := deltasync.ValidToken(region); err != nil {
			return "", problem(http.StatusBadRequest, "regions=eu,us", "regions: "+err.Error())
		}
	}
	return strings.Join(slices.Compact(regions), ","), nil
}

// before is the version of a number, or, where that is 0, the last before the newest that was in force everywhere.
func (b *Rulebook) before(ctx context.Context, store *natsrules.Store, newest *natsrules.Version, number uint64) (*natsrules.Version, error) {
	if number != 0 {
		return versionOf(ctx, store, newest.Namespace, number)
	}
	all, err := store.History(ctx, newest.Namespace)
	if err != nil {
		return nil, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Number < newest.Number && all[i].Regions == "" {
			return &all[i], nil
		}
	}
	return nil, problem(http.StatusConflict, "", fmt.Sprintf("there is no version before %d that was in force everywhere", newest.Number))
}

// promote is POST /admin/v1/namespaces/{namespace}/promote: what is rolled out is in force everywhere.
func (b *Rulebook) promote(w http.ResponseWriter, r *http.Request) *Problem {
	return b.end(w, r, "promote", promoted)
}

func promoted(was *natsrules.Version) natsrules.Version {
	return natsrules.Version{Text: was.Text, Message: "promoted from " + was.Regions}
}

// revert is POST /admin/v1/namespaces/{namespace}/revert: what is in force elsewhere is so everywhere.
func (b *Rulebook) revert(w http.ResponseWriter, r *http.Request) *Problem {
	return b.end(w, r, "revert", reverted)
}

func reverted(was *natsrules.Version) natsrules.Version {
	return natsrules.Version{Text: was.Elsewhere, Deleted: was.Elsewhere == "", Message: "reverted in " + was.Regions}
}

// end ends a rollout.
func (b *Rulebook) end(w http.ResponseWriter, r *http.Request, action string, next func(*natsrules.Version) natsrules.Version) *Problem {
	return b.change(w, r, action, func(_ context.Context, _ *natsrules.Store, was *natsrules.Version) (natsrules.Version, error) {
		if was.Regions == "" {
			return natsrules.Version{}, problem(http.StatusConflict, "PUT with ?regions= rolls one out", "nothing is rolled out: "+stateOf(was))
		}
		return next(was), nil
	})
}

// remove is DELETE /admin/v1/namespaces/{namespace}: its requests meet no limit then.
func (b *Rulebook) remove(w http.ResponseWriter, r *http.Request) *Problem {
	return b.change(w, r, "delete", func(_ context.Context, _ *natsrules.Store, was *natsrules.Version) (natsrules.Version, error) {
		if was.Number == 0 || was.Deleted {
			return natsrules.Version{}, problem(http.StatusNotFound, "", stateOf(was))
		}
		return natsrules.Version{Deleted: true}, underWay(was)
	})
}

// rollback is POST /admin/v1/namespaces/{namespace}/rollback?to=: an earlier version's document is the
// newest one's; without to that of the one before.
func (b *Rulebook) rollback(w http.ResponseWriter, r *http.Request) *Problem {
	to, p := numberOf(r, "to")
	if p != nil {
		return p
	}
	return b.change(w, r, "rollback", func(ctx context.Context, store *natsrules.Store, was *natsrules.Version) (natsrules.Version, error) {
		if was.Number == 0 {
			return natsrules.Version{}, problem(http.StatusNotFound, "", stateOf(was))
		}
		v, err := b.before(ctx, store, was, to)
		if err != nil {
			return natsrules.Version{}, err
		}
		if v.Regions != "" {
			return natsrules.Version{}, problem(http.StatusConflict, "another, or PUT its document", fmt.Sprintf("version %d was in force in %s alone", v.Number, v.Regions))
		}
		return natsrules.Version{Text: v.Text, Deleted: v.Deleted, Message: fmt.Sprintf("back to version %d", v.Number)}, underWay(was)
	})
}

// versions is GET /admin/v1/namespaces/{namespace}/versions: those that are kept, the oldest first.
func (b *Rulebook) versions(w http.ResponseWriter, r *http.Request) *Problem {
	store, p := b.look(r)
	if p != nil {
		return p
	}
	all, err := store.History(r.Context(), r.PathValue("namespace"))
	if err != nil {
		return problemOf(err)
	}
	infos := make([]VersionInfo, len(all))
	for i := range all {
		infos[i] = infoOf(&all[i])
	}
	writeJSON(w, http.StatusOK, map[string]any{"versions": infos})
	return nil
}

// diff is GET /admin/v1/namespaces/{namespace}/diff?from=&to=: what differs between two versions; without
// to the newest, and without from the one before to.
func (b *Rulebook) diff(w http.ResponseWriter, r *http.Request) *Problem {
	from, p := numberOf(r, "from")
	if p != nil {
		return p
	}
	to, p := numberOf(r, "to")
	if p != nil {
		return p
	}
	store, p := b.look(r)
	if p != nil {
		return p
	}
	ns := r.PathValue("namespace")
	newest, err := store.Get(r.Context(), ns)
	if err != nil {
		return problemOf(err)
	}
	if to == 0 {
		to = newest.Number
	}
	if from == 0 {
		from = to - 1
	}
	var two [2]*natsrules.Version
	for i, number := range []uint64{from, to} {
		if two[i] = (&natsrules.Version{Namespace: ns}); number == 0 { // before the first there was none
			continue
		}
		if two[i], err = versionOf(r.Context(), store, ns, number); err != nil {
			return problemOf(err)
		}
	}
	w.Header().Set("Content-Type", "text/x-diff; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, differences(two[0], two[1])) // a caller that is gone cannot be told so
	return nil
}

// change has a request's change made, and answers it.
func (b *Rulebook) change(w http.ResponseWriter, r *http.Request, action string, next func(context.Context, *natsrules.Store, *natsrules.Version) (natsrules.Version, error)) *Problem {
	over, p := conditionOf(r)
	if p != nil {
		return p
	}
	dry, p := flagOf(r, "dry_run")
	if p != nil {
		return p
	}
	message := r.URL.Query().Get("message")
	if len(message) > maxMessage || !utf8.ValidString(message) {
		return problem(http.StatusBadRequest, fmt.Sprintf("at most %d bytes of UTF-8", maxMessage), fmt.Sprintf("message: %d bytes", len(message)))
	}
	done, p := b.make(r.Context(), &change{by: callerOf(r), action: action, namespace: r.PathValue("namespace"), rule: r.PathValue("rule"), over: over, message: message, dryRun: dry, next: next})
	if p != nil {
		return p
	}
	status := http.StatusOK
	if done.Changed && !done.DryRun && done.Version == 1 {
		status = http.StatusCreated
	}
	if !done.DryRun {
		w.Header().Set("ETag", done.ETag)
	}
	writeJSON(w, status, done)
	return nil
}

// validate is POST /admin/v1/validate: whether documents are good, beside all namespaces that they are
// not of. Nothing is changed.
func (b *Rulebook) validate(w http.ResponseWriter, r *http.Request) *Problem {
	text, p := bodyOf(w, r)
	if p != nil {
		return p
	}
	docs := configs.SplitRules("body", text)
	switch {
	case len(docs) == 0:
		return problem(http.StatusBadRequest, "a document of rules, or several", "the body says nothing")
	case len(docs) > maxDocuments:
		return problem(http.StatusRequestEntityTooLarge, "ask of some at a time", fmt.Sprintf("%d documents, of at most %d", len(docs), maxDocuments))
	}
	leave, p := await(r.Context(), b.turn)
	if p != nil {
		return p
	}
	defer leave()
	store, _, err := b.open(r.Context())
	if err != nil {
		return unavailable(err)
	}
	all, _, err := store.All(r.Context())
	if err != nil {
		return unavailable(err)
	}
	names := []string{}
	for i := range docs {
		name, err := b.format.NamespaceOf(docs[i])
		if err != nil {
			return invalid(err)
		}
		docs[i].Namespace = name
		names = append(names, name)
	}
	for _, v := range all {
		if !v.Deleted && !slices.Contains(names, v.Namespace) {
			docs = append(docs, configs.Text{Name: fmt.Sprintf("%s, version %d", v.Namespace, v.Number), Namespace: v.Namespace, Text: v.Text})
		}
	}
	_, warnings, err := b.format.CheckTexts(docs...)
	if err != nil {
		return invalid(err)
	}
	warnings = slices.DeleteFunc(warnings, func(m configs.Mistake) bool { return m.File != "body" })
	writeJSON(w, http.StatusOK, map[string]any{"namespaces": names, "warnings": told(warnings)})
	return nil
}

// audit is GET /admin/v1/audit?namespace=&who=&before=&limit=: what operators did, the newest first.
func (b *Rulebook) audit(w http.ResponseWriter, r *http.Request) *Problem {
	before, p := numberOf(r, "before")
	if p != nil {
		return p
	}
	limit, p := numberOf(r, "limit")
	switch {
	case p != nil:
		return p
	case limit == 0:
		limit = 100
	case limit > 1000:
		return problem(http.StatusBadRequest, "1 to 1000", fmt.Sprintf("limit=%d is out of range", limit))
	}
	_, log, err := b.open(r.Context())
	if err != nil {
		return unavailable(err)
	}
	query, c := r.URL.Query(), callerOf(r)
	is := func(name, value string) bool { return !query.Has(name) || query.Get(name) == value }
	entries, more, err := log.Read(r.Context(), before, int(limit), func(e *natsaudit.Entry) bool {
		return c.touches(e.Namespace) && is("namespace", e.Namespace) && is("who", e.Who)
	})
	if err != nil {
		return unavailable(err)
	}
	writeJSON(w, http.StatusOK, map[string]any{"entries": entries, "before": more})
	return nil
}
