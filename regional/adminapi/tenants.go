package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// KindTenant is the kind of entries that say what a tenant has.
const KindTenant = "tenant"

const (
	// MostTenants is how many are changed at once, at the most.
	MostTenants = 10_000
	// maxTenantBody bounds what is sent of one.
	maxTenantBody = 16 << 10
	// mostErrors is how many mistakes are told.
	mostErrors = 100
)

// tenantRoutes are those of what tenants have beside the documents.
func (k *Keybook) tenantRoutes() []route {
	const tenants = " /admin/v1/namespaces/{namespace}/tenants"
	change := []string{"dry_run", "message"}
	return []route{
		{"GET" + tenants, configs.RoleViewer, []string{"prefix", "after", "limit"}, k.tenants},
		{"PATCH" + tenants, configs.RoleEditor, change, k.patchTenants},
		{"GET" + tenants + "/{tenant}", configs.RoleViewer, nil, k.tenant},
		{"PUT" + tenants + "/{tenant}", configs.RoleEditor, change, k.putTenant},
		{"DELETE" + tenants + "/{tenant}", configs.RoleEditor, change, k.removeTenant},
	}
}

// TenantAsk is what a tenant is to have.
type TenantAsk struct {
	Tenant   string     `json:"tenant,omitempty"` // of many
	Tier     string     `json:"tier,omitempty"`
	Multiply float64    `json:"multiply,omitempty"`
	TTL      string     `json:"ttl,omitempty"` // or:
	Until    *time.Time `json:"until,omitempty"`
	Remove   bool       `json:"remove,omitempty"` // of many
}

// TenantInfo is what a tenant has, as it is told.
type TenantInfo struct {
	Tenant   string     `json:"tenant"`
	Tier     string     `json:"tier,omitempty"`
	Multiply float64    `json:"multiply,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	At       time.Time  `json:"at"`
	Author   string     `json:"author,omitempty"`
	Message  string     `json:"message,omitempty"`
	ETag     string     `json:"etag"`
}

// TenantChange is what became of a change, or would.
type TenantChange struct {
	TenantInfo
	Changed bool `json:"changed"`
	DryRun  bool `json:"dry_run"`
	Removed bool `json:"removed,omitempty"`
}

// TenantsChange is what became of many.
type TenantsChange struct {
	Changed   int  `json:"changed"` // removed ones among them
	Removed   int  `json:"removed"`
	Unchanged int  `json:"unchanged"`
	DryRun    bool `json:"dry_run"`
}

// tenantInfo is what an entry says.
func tenantInfo(e *natsentries.Entry) (TenantInfo, error) {
	t := limit.TenantEntry{Tenant: e.Name}
	info := TenantInfo{Tenant: e.Name, At: e.At, Author: e.Author, Message: e.Message, ETag: entryTag(e)}
	if !e.Until.IsZero() {
		info.Until = &e.Until
	}
	if e.Deleted {
		return info, nil
	}
	err := t.ReadBody(e.Body)
	info.Tier, info.Multiply = t.Tier, t.Multiply
	return info, err
}

// entry is what is asked for, as an entry of a namespace.
func (a *TenantAsk) entry(namespace string, now time.Time) (e natsentries.Entry, t limit.TenantEntry, p *limit.Problem) {
	t = limit.TenantEntry{Namespace: namespace, Tenant: a.Tenant, Tier: a.Tier, Multiply: a.Multiply, Deleted: a.Remove}
	switch ttl, err := time.ParseDuration(a.TTL); {
	case a.Remove && (a.Tier != "" || a.Multiply != 0 || a.TTL != "" || a.Until != nil):
		p = &limit.Problem{Path: "remove", Code: "E344", Hint: "one of the two", Detail: "who is removed has nothing"}
	case a.TTL != "" && a.Until != nil:
		p = &limit.Problem{Path: "ttl", Code: "E345", Hint: "one of the two", Detail: "ttl and until both say when it ends"}
	case a.TTL != "" && (err != nil || ttl <= 0):
		p = &limit.Problem{Path: "ttl", Code: "E345", Hint: "such as 24h", Detail: fmt.Sprintf("%.40q is no time to come", a.TTL)}
	case a.TTL != "":
		t.Until = now.Add(ttl)
	case a.Until != nil && !a.Until.After(now):
		p = &limit.Problem{Path: "until", Code: "E345", Hint: "an instant to come, such as 2030-01-31T00:00:00Z", Detail: a.Until.Format(time.RFC3339) + " has passed"}
	case a.Until != nil:
		t.Until = *a.Until
	}
	return natsentries.Entry{Kind: KindTenant, Namespace: namespace, Name: a.Tenant, Until: t.Until, Deleted: a.Remove, Body: t.Body()}, t, p
}

// fits says what is wrong with an entry by the rules in force, if anything.
func (k *Keybook) fits(set *limit.Set, a *TenantAsk, namespace string) (natsentries.Entry, *limit.Problem) {
	e, t, p := a.entry(namespace, k.cfg.Now())
	if p == nil {
		p = set.CheckTenant(&t)
	}
	return e, p
}

// ruled is the rules in force, where there are any.
func (k *Keybook) ruled() (*limit.Set, *Problem) {
	if set := k.cfg.Rules(); set != nil {
		return set, nil
	}
	return nil, problem(http.StatusServiceUnavailable, "see rules.source, and whether NATS has some", "this aggregator knows no rules yet")
}

// tenants is GET /admin/v1/namespaces/{namespace}/tenants?prefix=&after=&limit=: those that have
// something, in the order in which they were last changed. A page may have none, and more follow it.
func (k *Keybook) tenants(w http.ResponseWriter, r *http.Request) *Problem {
	after, p := numberOf(r, "after")
	if p != nil {
		return p
	}
	most, p := numberOf(r, "limit")
	switch {
	case p != nil:
		return p
	case most == 0:
		most = 1000
	case most > MostTenants:
		return problem(http.StatusBadRequest, fmt.Sprintf("1 to %d", MostTenants), fmt.Sprintf("limit=%d is out of range", most))
	}
	store, p := k.look(r)
	if p != nil {
		return p
	}
	found, more, wrong, err := store.List(r.Context(), KindTenant, r.PathValue("namespace"), after, int(most))
	if err != nil {
		return entryProblem(err)
	}
	infos, unread, prefix := []TenantInfo{}, []string{}, r.URL.Query().Get("prefix")
	for _, err := range wrong {
		unread = append(unread, err.Error())
	}
	for i := range found {
		if found[i].Gone(k.cfg.Now()) || !strings.HasPrefix(found[i].Name, prefix) {
			continue
		}
		info, err := tenantInfo(&found[i])
		if err != nil {
			unread = append(unread, found[i].Name+": "+err.Error())
			continue
		}
		infos = append(infos, info)
	}
	writeJSON(w, http.StatusOK, map[string]any{"tenants": infos, "after": more, "unreadable": unread})
	return nil
}

// tenant is GET /admin/v1/namespaces/{namespace}/tenants/{tenant}.
func (k *Keybook) tenant(w http.ResponseWriter, r *http.Request) *Problem {
	store, p := k.look(r)
	if p != nil {
		return p
	}
	e, err := store.Get(r.Context(), KindTenant, r.PathValue("namespace"), r.PathValue("tenant"))
	if p := entryProblem(err); p != nil {
		return p
	}
	if errors.Is(err, natsentries.ErrNone) || err == nil && e.Gone(k.cfg.Now()) {
		return noTenant(r)
	}
	info, bad := tenantInfo(&e)
	if err := errors.Join(err, bad); err != nil {
		return problem(http.StatusUnprocessableEntity, "PUT it, with If-Match: *", err.Error())
	}
	w.Header().Set("ETag", info.ETag)
	writeJSON(w, http.StatusOK, info)
	return nil
}

func noTenant(r *http.Request) *Problem {
	return problem(http.StatusNotFound, "GET the tenants of the namespace", fmt.Sprintf("tenant %.80q of namespace %.80s has nothing beside the document, or that has ended", r.PathValue("tenant"), r.PathValue("namespace")))
}

// putTenant is PUT /admin/v1/namespaces/{namespace}/tenants/{tenant}: what the tenant has from now on.
func (k *Keybook) putTenant(w http.ResponseWriter, r *http.Request) *Problem {
	ask := TenantAsk{}
	if p := readAsk(w, r, maxTenantBody, func(body []byte) error { return strictly(body, &ask) }); p != nil {
		return p
	}
	name := r.PathValue("tenant")
	if ask.Remove || ask.Tenant != "" && ask.Tenant != name {
		return problem(http.StatusBadRequest, "DELETE removes it; PATCH the tenants changes many", "the body is of another tenant, or removes it")
	}
	ask.Tenant = name
	return k.changeTenant(w, r, "put tenant", &ask)
}

// removeTenant is DELETE /admin/v1/namespaces/{namespace}/tenants/{tenant}: it has what the document says.
func (k *Keybook) removeTenant(w http.ResponseWriter, r *http.Request) *Problem {
	return k.changeTenant(w, r, "remove tenant", &TenantAsk{Tenant: r.PathValue("tenant"), Remove: true})
}

func (k *Keybook) changeTenant(w http.ResponseWriter, r *http.Request, action string, ask *TenantAsk) *Problem {
	over, p := conditionOf(r)
	if p != nil {
		return p
	}
	namespace := r.PathValue("namespace")
	d, p := k.begin(r, action, namespace)
	if p != nil {
		return p
	}
	d.entry.Message = ask.says() + said(d.message)
	set, p := k.ruled()
	if p != nil {
		return d.refuse(p)
	}
	next, wrong := k.fits(set, ask, namespace)
	if wrong != nil {
		return d.refuse(mistaken([]Mistake{mistakeOf(wrong, "")}))
	}
	was, err := d.store.Get(r.Context(), KindTenant, namespace, ask.Tenant)
	if p := entryProblem(err); p != nil {
		return d.refuse(p)
	}
	there := was.Revision > 0 && (err != nil || !was.Gone(k.cfg.Now()))
	switch {
	case ask.Remove && !there:
		return d.refuse(noTenant(r))
	case over.match == "" && there, over.match == "*" && !there, over.match != "" && over.match != "*" && over.match != entryTag(&was):
		state := "it has nothing, or that has ended"
		if there {
			state = "it has something by now, with ETag " + entryTag(&was)
		}
		return d.refuse(problem(http.StatusPreconditionFailed, "GET it anew", state))
	}
	if ask.Multiply != 0 {
		if p := k.roomFor(r, d.store, set, namespace, []natsentries.Entry{next}, nil); p != nil {
			return d.refuse(p)
		}
	}
	next.Author, next.Message = d.by.name, d.message
	made := next
	if !d.dry {
		if made, p = d.write(r.Context(), next, was); p != nil {
			return p
		}
		k.cfg.Log.Info("a tenant changed", "namespace", namespace, "author", made.Author, "removed", made.Deleted)
	} else {
		made.At = k.cfg.Now().UTC()
	}
	info, err := tenantInfo(&made)
	if err != nil {
		return problem(http.StatusInternalServerError, "", err.Error()) // it was made here
	}
	status := http.StatusOK
	if !d.dry {
		w.Header().Set("ETag", info.ETag)
		if !there {
			status = http.StatusCreated
		}
	}
	writeJSON(w, status, TenantChange{TenantInfo: info, Changed: true, DryRun: d.dry, Removed: made.Deleted})
	return nil
}

// says is what is asked for, for the audit log.
func (a *TenantAsk) says() string {
	what := "removed"
	switch {
	case a.Tier != "":
		what = fmt.Sprintf("tier %.80s", a.Tier)
	case a.Multiply != 0:
		what = fmt.Sprintf("multiply %v", a.Multiply)
	}
	switch {
	case a.TTL != "":
		what += " for " + a.TTL
	case a.Until != nil:
		what += " until " + a.Until.Format(time.RFC3339)
	}
	return fmt.Sprintf("tenant %.80q: %s", a.Tenant, what)
}

// readAsk reads a body of JSON.
func readAsk(w http.ResponseWriter, r *http.Request, most int64, read func([]byte) error) *Problem {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return problem(http.StatusRequestEntityTooLarge, "send some at a time", fmt.Sprintf("the body is at most %d bytes", most))
	case err == nil:
		err = read(body)
	}
	if err != nil {
		return problem(http.StatusBadRequest, `such as {"tier": "gold"}, or {"multiply": 3.5, "ttl": "24h"}; of many with "tenant", one a line or in a list`, "the body cannot be read: "+err.Error())
	}
	return nil
}

// strictly reads one JSON value, of which all is known, and nothing after it.
func strictly(text []byte, into any) error {
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(into); err != nil {
		return err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

// mistakeOf is a problem with an entry, as it is told; at is where the entry stands among others.
func mistakeOf(p *limit.Problem, at string) Mistake {
	return Mistake{Code: p.Code, Pointer: at + pointer(p.Path), Detail: p.Detail, Hint: p.Hint}
}

func mistaken(mistakes []Mistake) *Problem {
	p := problem(http.StatusUnprocessableEntity, mistakes[0].Hint, mistakes[0].Detail)
	if len(mistakes) > 1 {
		p = problem(http.StatusUnprocessableEntity, "", strconv.Itoa(len(mistakes))+" entries have mistakes, and nothing is changed")
	}
	p.Errors = mistakes[:min(len(mistakes), mostErrors)]
	return p
}
