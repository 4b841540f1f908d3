package adminapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// Keybook tells of single keys, and changes what holds for them alone, and of capacity: entries in
// NATS beside the rules, which each edge has within a second. Who did what is in the audit log.
type Keybook struct {
	cfg  KeybookConfig
	turn chan struct{} // of who has all keys looked at
}

// KeybookConfig is what a Keybook is made of.
type KeybookConfig struct {
	// Open opens the bucket and the log; nil: rules are in files, and there is none.
	Open func(context.Context) (*natsentries.Store, *natsaudit.Log, error)
	// Rules are those in force here; nil before the first.
	Rules func() *limit.Set
	// Keyer names keys as edges do; nil: the cluster's secret is not known here. Then keys stand in the
	// bucket as they were written.
	Keyer *deltasync.Keyer
	Keys  Keys
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now
}

// NewKeybook makes one.
func NewKeybook(cfg KeybookConfig) *Keybook {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Keybook{cfg: cfg, turn: make(chan struct{}, 1)}
}

// exceptionOf is the exception that an entry has.
func exceptionOf(e *natsentries.Entry) (limit.Exception, error) {
	x := limit.Exception{ID: e.Name, Namespace: e.Namespace, Since: e.At, Until: e.Until}
	return x, x.ReadBody(e.Body)
}

// maxExceptions bounds those of a namespace, which edges do, too.
const maxExceptions = 10_000

// maxKeyBody bounds what is sent of a key.
const maxKeyBody = 16 << 10

// routes are those of keys, of what holds for them alone, and of capacity.
func (k *Keybook) routes() []route {
	const keys, exceptions = " /admin/v1/namespaces/{namespace}/keys", " /admin/v1/namespaces/{namespace}/exceptions"
	change := []string{"dry_run", "message"}
	return []route{
		{"POST" + keys + "/get", configs.RoleViewer, nil, k.get},
		{"POST" + keys + "/reset", configs.RoleEditor, change, k.except(limit.KeyReset)},
		{"POST" + keys + "/grant", configs.RoleEditor, change, k.except(limit.KeyGrant)},
		{"POST" + keys + "/override", configs.RoleEditor, change, k.except(limit.KeyOverride)},
		{"GET" + exceptions, configs.RoleViewer, []string{"rule", "after", "limit"}, k.exceptions},
		{"GET" + exceptions + "/{id}", configs.RoleViewer, nil, k.exception},
		{"DELETE" + exceptions + "/{id}", configs.RoleEditor, change, k.removeException},
		{"GET /admin/v1/keys/top", configs.RoleViewer, []string{"by", "namespace", "rule", "limit"}, k.top},
		{"GET /admin/v1/capacity", configs.RoleViewer, nil, k.capacities},
		{"PUT /admin/v1/capacity/{name}", configs.RoleAdmin, []string{"ttl", "dry_run", "message"}, k.putCapacity},
		{"DELETE /admin/v1/capacity/{name}", configs.RoleAdmin, change, k.removeCapacity},
	}
}

// keyAsk is what is sent of a key, and of what is to hold for it.
type keyAsk struct {
	Rule  string            `json:"rule"`
	Rate  string            `json:"rate"`
	Key   map[string]string `json:"key"`  // by the names in the rule's key
	Name  string            `json:"name"` // or what it is called, where it is not told
	Add   *uint64           `json:"add"`
	Limit *uint64           `json:"limit"`
	TTL   string            `json:"ttl"`
	Until *time.Time        `json:"until"`
}

// ExceptionInfo is what holds for one key, as it is told.
type ExceptionInfo struct {
	ID        string     `json:"id"`
	Namespace string     `json:"namespace"`
	Rule      string     `json:"rule"`
	Rate      string     `json:"rate,omitempty"` // "": all of the rule's that have a limit
	Kind      string     `json:"kind"`           // reset, grant or override
	Key       []string   `json:"key,omitempty"`  // in the order of the rule's key, where it may be told
	Name      string     `json:"name,omitempty"` // else what it is called
	Add       *uint64    `json:"add,omitempty"`
	Limit     *uint64    `json:"limit,omitempty"`
	At        time.Time  `json:"at"`
	Until     *time.Time `json:"until,omitempty"`
	Author    string     `json:"author,omitempty"`
	Message   string     `json:"message,omitempty"`
	ETag      string     `json:"etag"`
}

// ExceptionChange is what became of a change, or would.
type ExceptionChange struct {
	ExceptionInfo
	Changed bool `json:"changed"`
	DryRun  bool `json:"dry_run"`
	Removed bool `json:"removed,omitempty"`
}

func exceptionInfo(e *natsentries.Entry) (ExceptionInfo, error) {
	x, err := exceptionOf(e)
	if err != nil {
		return ExceptionInfo{}, err
	}
	info := ExceptionInfo{ID: x.ID, Namespace: x.Namespace, Rule: x.Rule, Rate: x.Rate, Kind: x.Kind.String(), Key: x.Key, At: e.At, Author: e.Author, Message: e.Message, ETag: entryTag(e)}
	if x.Name != 0 {
		info.Name = limit.KeyName(x.Name)
	}
	switch x.Kind {
	case limit.KeyGrant:
		info.Add = &x.Amount
	case limit.KeyOverride:
		info.Limit = &x.Amount
	}
	if !e.Until.IsZero() {
		info.Until = &e.Until
	}
	return info, nil
}

// entryTag is an entry's entity tag. As with versions the time is in it.
func entryTag(e *natsentries.Entry) string {
	if e.Revision == 0 {
		return ""
	}
	return strconv.Quote(fmt.Sprintf("%d-%s", e.Revision, strconv.FormatInt(e.At.UnixMicro(), 36)))
}

// askOf reads what is sent of a key.
func askOf(w http.ResponseWriter, r *http.Request) (*keyAsk, *Problem) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxKeyBody))
	if err != nil {
		return nil, problem(http.StatusRequestEntityTooLarge, "a rule, and the values of its key", fmt.Sprintf("the body is more than %d bytes, or cannot be read", maxKeyBody))
	}
	var ask keyAsk
	in := json.NewDecoder(strings.NewReader(string(text)))
	in.DisallowUnknownFields()
	if err := in.Decode(&ask); err != nil {
		return nil, problem(http.StatusBadRequest, `such as {"rule": "api", "key": {"user": "u1"}}`, "the body cannot be read: "+err.Error())
	}
	if in.More() {
		return nil, problem(http.StatusBadRequest, "one key at a time", "the body has more than one object")
	}
	return &ask, nil
}

// wrongWith is the problem that one thing of a body is wrong.
func wrongWith(p *limit.Problem) *Problem {
	out := problem(http.StatusUnprocessableEntity, p.Hint, p.Detail)
	out.Errors = []Mistake{{Code: p.Code, Pointer: pointer(p.Path), Detail: p.Detail, Hint: p.Hint}}
	return out
}

// of is the key that is asked for, as an exception that does nothing yet. Its Key is in the order of
// the rule's, and its Name is set where it is known.
func (k *Keybook) of(namespace string, ask *keyAsk) (x limit.Exception, rule *limit.Rule, p *Problem) {
	set := k.cfg.Rules()
	if set == nil {
		return x, nil, problem(http.StatusServiceUnavailable, "see rules.source, and whether NATS has some", "this aggregator knows no rules yet")
	}
	x = limit.Exception{Namespace: namespace, Rule: ask.Rule, Kind: limit.KeyReset, Amount: 1, Name: 1} // to find the rule by
	rule, wrong := set.Excepts(&x)
	if wrong != nil {
		return x, nil, wrongWith(wrong)
	}
	x.Name = 0
	names := rule.KeyNames()
	switch {
	case ask.Name != "" && len(ask.Key) > 0:
		return x, nil, wrongWith(&limit.Problem{Path: "name", Code: "E332", Hint: "one of the two", Detail: "the key is told, and its name"})
	case ask.Name != "":
		name, err := limit.ReadKeyName(strings.ToLower(ask.Name))
		if err != nil {
			return x, nil, wrongWith(&limit.Problem{Path: "name", Code: "E332", Hint: "as keys get, or keys top, tells it", Detail: err.Error()})
		}
		x.Name = name
		return x, rule, nil
	}
	x.Key = make([]string, len(names))
	for i, name := range names {
		x.Key[i] = ask.Key[name]
	}
	if len(ask.Key) != len(names) { // others are others
		return x, nil, wrongWith(&limit.Problem{Path: "key", Code: "E332", Hint: "the value of each of: " + strings.Join(names, ", "), Detail: fmt.Sprintf("the key of rule %s has %d parts, and %d are given", rule.Name, len(names), len(ask.Key))})
	}
	if _, wrong := set.Excepts(&x); wrong != nil {
		return x, nil, wrongWith(wrong)
	}
	for _, value := range x.Key {
		if !utf8.ValidString(value) {
			return x, nil, wrongWith(&limit.Problem{Path: "key", Code: "E332", Hint: "its name, as keys top tells it", Detail: "a part of the key is no UTF-8"})
		}
	}
	if k.cfg.Keyer != nil {
		x.Name = uint64(k.naming(rule).Hash(rule.AppendKeyOf(nil, x.Key)))
	}
	return x, rule, nil
}

// naming is what names a rule's keys.
func (k *Keybook) naming(rule *limit.Rule) deltasync.Keyer {
	return deltasync.Keyer(rule.SubBy(func(identity []byte) [2]uint64 { return k.cfg.Keyer.Sub(identity) }))
}

// exceptionID tells exceptions of a namespace apart: a key has one of each kind, for each rate.
func exceptionID(x *limit.Exception, rule *limit.Rule) string {
	h := sha256.New()
	field := func(b []byte) { h.Write(append(binary.BigEndian.AppendUint64(nil, uint64(len(b))), b...)) }
	for _, text := range []string{x.Kind.String(), x.Rule, x.Rate} {
		field([]byte(text))
	}
	if x.Name != 0 {
		field(binary.BigEndian.AppendUint64(nil, x.Name))
	} else {
		field(rule.AppendKeyOf(nil, x.Key))
		field(nil)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// except is POST /admin/v1/namespaces/{namespace}/keys/reset, grant or override. One that holds for the
// key already is replaced by who has seen it, If-Match; a reset by anybody.
func (k *Keybook) except(kind limit.ExceptionKind) func(w http.ResponseWriter, r *http.Request) *Problem {
	return func(w http.ResponseWriter, r *http.Request) *Problem {
		ask, p := askOf(w, r)
		if p != nil {
			return p
		}
		d, p := k.begin(r, kind.String()+" key", r.PathValue("namespace"))
		if p != nil {
			return p
		}
		d.entry.Rule = ask.Rule
		x, p := k.planned(r, kind, ask)
		if p != nil {
			return d.refuse(p)
		}
		d.entry.Message = says(&x) + said(d.message)
		was, err := d.store.Get(r.Context(), limit.EntryException, x.Namespace, x.ID)
		there := err == nil && !was.Gone(k.cfg.Now())
		if p := entryProblem(err); p != nil {
			return d.refuse(p)
		}
		if match := strings.TrimSpace(r.Header.Get("If-Match")); match != "" {
			if !there || match != "*" && match != entryTag(&was) {
				return d.refuse(problem(http.StatusPreconditionFailed, "GET it anew", "there is another exception by now, or none"))
			}
		} else if there && kind != limit.KeyReset {
			return d.refuse(problem(http.StatusConflict, "If-Match: "+entryTag(&was)+" replaces it; DELETE ends it", fmt.Sprintf("%s holds for this key already, until %s", says(must(exceptionOf(&was))), was.Until.Format(time.RFC3339))))
		}
		if !there {
			if p := k.room(r.Context(), d.store, x.Namespace); p != nil {
				return d.refuse(p)
			}
		}
		next := natsentries.Entry{Kind: limit.EntryException, Namespace: x.Namespace, Name: x.ID, Until: x.Until, Author: d.by.name, Message: d.message, Body: x.Body()}
		return k.put(w, r, d, next, was)
	}
}

// must is an exception that was read before.
func must(x limit.Exception, _ error) *limit.Exception { return &x }

// says is what an exception does, and for which key.
func says(x *limit.Exception) string {
	what := "reset"
	switch x.Kind {
	case limit.KeyGrant, limit.KeyOverride:
		what = x.Does()
	}
	if x.Rate != "" {
		what += " of " + x.Rate
	}
	if x.Name != 0 {
		what += " for key " + limit.KeyName(x.Name)
	} else {
		what += " for exception " + x.ID // the key itself stands there, and nowhere else
	}
	if !x.Until.IsZero() {
		what += " until " + x.Until.UTC().Format(time.RFC3339)
	}
	return what
}

func said(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

// planned is the exception that a request asks for.
func (k *Keybook) planned(r *http.Request, kind limit.ExceptionKind, ask *keyAsk) (limit.Exception, *Problem) {
	x, rule, p := k.of(r.PathValue("namespace"), ask)
	if p != nil {
		return x, p
	}
	refuse := func(path, code, hint, detail string) (limit.Exception, *Problem) {
		return x, wrongWith(&limit.Problem{Path: path, Code: code, Hint: hint, Detail: detail})
	}
	x.Kind, x.Rate = kind, ask.Rate
	given := map[limit.ExceptionKind]*uint64{limit.KeyGrant: ask.Add, limit.KeyOverride: ask.Limit}
	for of, amount := range given {
		word := map[limit.ExceptionKind]string{limit.KeyGrant: "add", limit.KeyOverride: "limit"}[of]
		switch {
		case of == kind && amount == nil:
			return refuse(word, "E335", word+": a whole number", word+" is missing")
		case of == kind:
			x.Amount = *amount
		case amount != nil:
			return refuse(word, "E335", "leave it out", fmt.Sprintf("%s is not of a %s", word, kind))
		}
	}
	now := k.cfg.Now()
	switch {
	case kind == limit.KeyReset && (ask.TTL != "" || ask.Until != nil):
		return refuse("ttl", "E336", "leave it out", "a reset has no end: when it ended the key would count under its old name again")
	case kind == limit.KeyReset:
		x.Amount = number()
	case ask.TTL != "" && ask.Until != nil:
		return refuse("ttl", "E336", "one of the two", "ttl and until are both given")
	case ask.TTL != "":
		ttl, err := configs.ParseDuration(ask.TTL)
		if err != nil || ttl <= 0 {
			return refuse("ttl", "E336", "such as 30m, 24h or 7d", fmt.Sprintf("%.40q is no time to hold for", ask.TTL))
		}
		x.Until = now.Add(min(ttl, 2*limit.MaxExceptionTime))
	case ask.Until != nil:
		x.Until = *ask.Until
	}
	if !x.Until.IsZero() {
		switch left := x.Until.Sub(now); {
		case left <= 0:
			return refuse("until", "E336", "a time to come", "it has ended already")
		case left > limit.MaxExceptionTime:
			return refuse("until", "E336", "at most 366d; for longer change the rule, or the tenant", "it would hold for longer than a year")
		}
	}
	if _, wrong := k.cfg.Rules().Excepts(&x); wrong != nil {
		return x, wrongWith(wrong)
	}
	if x.Rate != "" { // by its name, whatever it was called
		for _, rate := range rule.Rates {
			if x.On(rate) {
				x.Rate = rate.Name
				break
			}
		}
	}
	if x.Name != 0 {
		x.Key = nil // it is nowhere but here
	}
	x.ID = exceptionID(&x, rule)
	return x, nil
}

// number is one that no other reset has.
func number() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return max(1, binary.BigEndian.Uint64(b[:]))
}

// room says that a namespace may have one more.
func (k *Keybook) room(ctx context.Context, store *natsentries.Store, namespace string) *Problem {
	live, after := 0, uint64(0)
	for {
		found, more, _, err := store.List(ctx, limit.EntryException, namespace, after, 4096)
		if err != nil {
			return entryProblem(err)
		}
		for i := range found {
			if !found[i].Gone(k.cfg.Now()) {
				live++
			}
		}
		if more == 0 {
			break
		}
		after = more
	}
	if live >= maxExceptions {
		return problem(http.StatusConflict, "remove resets of windows that are over: aggregator keys exceptions lists them", fmt.Sprintf("namespace %s has %d exceptions, and there may be no more", namespace, live))
	}
	return nil
}

// entryProblem is what is wrong where an entry was not read, or not written; nil: nothing, or it is not there.
func entryProblem(err error) *Problem {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, natsentries.ErrConflict):
		return problem(http.StatusPreconditionFailed, "GET it anew", err.Error())
	case errors.Is(err, natsentries.ErrFull):
		return problem(http.StatusInsufficientStorage, "remove some", err.Error())
	case errors.Is(err, natsentries.ErrUnavailable):
		return problem(http.StatusServiceUnavailable, "it may have been changed all the same: GET it anew; see that the region whose bucket is mirrored is up, and that this aggregator's key may write there (deploy/nats/users.conf)", err.Error())
	case errors.Is(err, natsentries.ErrNone), errors.Is(err, natsentries.ErrBad):
		return nil // what cannot be read is written over
	}
	return problem(http.StatusInternalServerError, "", err.Error())
}
