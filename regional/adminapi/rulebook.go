package adminapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsentries"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// Rulebook changes the rules that are kept in NATS, a document a namespace, and notes who did, and who
// tried, in the audit log beside them.
type Rulebook struct {
	open   func(context.Context) (*natsrules.Store, *natsaudit.Log, error)
	format configs.Format
	log    *slog.Logger

	subject Subject // which knows what smaller limits would have denied; New has it so

	seats chan struct{} // of those who send documents, each of which is in memory
	turn  chan struct{} // of who has some read, which takes fifty times as much

	rollouts rollouts
}

// mostSeats is how many send documents at a time.
const mostSeats = 8

// NewRulebook makes one of the bucket and the log that open opens.
func NewRulebook(format configs.Format, log *slog.Logger, open func(context.Context) (*natsrules.Store, *natsaudit.Log, error)) *Rulebook {
	return &Rulebook{open: open, format: format, log: log, seats: make(chan struct{}, mostSeats), turn: make(chan struct{}, 1)}
}

// await waits for a place, which leave gives back.
func await(ctx context.Context, places chan struct{}) (leave func(), p *Problem) {
	leave = func() { <-places }
	select { // first, as of two that are ready select takes any
	case places <- struct{}{}:
		return leave, nil
	default:
	}
	select {
	case places <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, problem(http.StatusServiceUnavailable, "try again", "others have rules checked")
	}
}

// seated serves who sends a document once there is a place for that.
func (b *Rulebook) seated(h func(w http.ResponseWriter, r *http.Request) *Problem) func(w http.ResponseWriter, r *http.Request) *Problem {
	return func(w http.ResponseWriter, r *http.Request) *Problem {
		leave, p := await(r.Context(), b.seats)
		if p != nil {
			return p
		}
		defer leave()
		return h(w, r)
	}
}

// VersionInfo is a version of a namespace, without its document.
type VersionInfo struct {
	Namespace string    `json:"namespace"`
	Version   uint64    `json:"version"`
	At        time.Time `json:"at"`
	Author    string    `json:"author,omitempty"`
	Message   string    `json:"message,omitempty"`
	Bytes     int       `json:"bytes"`
	Deleted   bool      `json:"deleted,omitempty"` // the namespace was taken away
	Regions   []string  `json:"regions,omitempty"` // of one that is rolled out: where it is in force
	Until     *Until    `json:"until,omitempty"`   // by what that ends by itself; nil: by nothing
	ETag      string    `json:"etag"`
}

// Document is a version of a namespace with its text.
type Document struct {
	VersionInfo
	Text      string `json:"text"`
	Elsewhere string `json:"elsewhere,omitempty"` // while it is rolled out: the document of the other regions
}

// Changed is what became of a change, or would.
type Changed struct {
	VersionInfo           // the newest now; of a dry run the one that would be made
	Changed     bool      `json:"changed"` // false: nothing differs
	DryRun      bool      `json:"dry_run"`
	Diff        string    `json:"diff"` // unified
	Effects     []Effect  `json:"effects"`
	Warnings    []Mistake `json:"warnings"`
}

// infoOf is what is told of a version.
func infoOf(v *natsrules.Version) VersionInfo {
	var regions []string
	if v.Regions != "" {
		regions = strings.Split(v.Regions, ",")
	}
	return VersionInfo{v.Namespace, v.Number, v.At, v.Author, v.Message, len(v.Text), v.Deleted, regions, untilInfo(v), etag(v)}
}

// newestInfo is infoOf of a newest version, and how its condition stands.
func (b *Rulebook) newestInfo(v *natsrules.Version) VersionInfo {
	info := infoOf(v)
	if info.Until != nil {
		info.Until.State = b.stands(v)
	}
	return info
}

// etag is a version's entity tag. The time is in it, as a bucket that was put back from a copy may
// have another version of the same number.
func etag(v *natsrules.Version) string {
	return strconv.Quote(fmt.Sprintf("%d-%s", v.Number, strconv.FormatInt(v.At.UnixMicro(), 36)))
}

// condition is what a change says of what it changes.
type condition struct{ match, noneMatch string }

// conditionOf reads If-Match and If-None-Match (RFC 9110, section 13.1), one of which there must be.
func conditionOf(r *http.Request) (condition, *Problem) {
	c := condition{strings.TrimSpace(r.Header.Get("If-Match")), strings.TrimSpace(r.Header.Get("If-None-Match"))}
	const hint = "If-Match: the ETag of the version that you have seen, or If-None-Match: * for one that is not there yet"
	switch {
	case c.match == "" && c.noneMatch == "":
		return c, problem(http.StatusPreconditionRequired, hint, "a change says over what it is made, so that it undoes nobody else's")
	case c.match != "" && c.noneMatch != "" || c.noneMatch != "" && c.noneMatch != "*":
		return c, problem(http.StatusBadRequest, hint, "If-None-Match is * alone, and not beside If-Match")
	}
	return c, nil
}

// holds says that the condition is true of the newest version; number 0: there is none.
func (c condition) holds(v *natsrules.Version) bool {
	there := v.Number > 0 && !v.Deleted
	switch c.match {
	case "":
		return !there
	case "*":
		return there
	}
	for tag := range strings.SplitSeq(c.match, ",") {
		if strings.TrimSpace(tag) == etag(v) {
			return v.Number > 0
		}
	}
	return false
}

// change is what somebody wants of a namespace.
type change struct {
	by        *caller
	action    string // as the audit log has it
	namespace string
	rule      string // "": the whole namespace
	over      condition
	message   string
	dryRun    bool
	quiet     bool // that somebody else was first, before it has begun, is not noted
	// next is the document that is to be, given the newest one, or that the namespace is to be taken away;
	// its message stands where there is no other.
	next func(ctx context.Context, store *natsrules.Store, was *natsrules.Version) (next natsrules.Version, err error)
}

// make makes a change, or tells what it would be.
func (b *Rulebook) make(ctx context.Context, c *change) (*Changed, *Problem) {
	store, log, err := b.open(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	entry := natsaudit.Entry{Request: rand.Text(), Who: c.by.name, Role: string(c.by.role), From: c.by.from, Action: c.action, Namespace: c.namespace, Rule: c.rule, Message: c.message}
	note := func(result string, version uint64) error {
		entry.Result, entry.Version = result, version
		return log.Append(context.WithoutCancel(ctx), entry)
	}
	begun := false
	refuse := func(p *Problem) (*Changed, *Problem) {
		if c.dryRun && p.Status != http.StatusForbidden || c.quiet && !begun && p.Status == http.StatusPreconditionFailed {
			return nil, p
		}
		if err := note("refused: "+p.Detail, entry.Version); err != nil {
			b.log.Error("what an operator tried is in no audit log", "who", c.by.name, "action", c.action, "namespace", c.namespace, "err", err)
		}
		return nil, p
	}
	if !c.by.touches(c.namespace) {
		return refuse(outOfScope(c.by, c.namespace))
	}
	versions, _, err := store.All(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	was, others := natsrules.Version{Namespace: c.namespace}, versions[:0:0]
	for _, v := range versions {
		if v.Namespace == c.namespace {
			was = v
		} else if !v.Deleted {
			others = append(others, v)
		}
	}
	entry.Version = was.Number
	if !c.over.holds(&was) {
		return refuse(problem(http.StatusPreconditionFailed, "GET it anew, and see what differs", stateOf(&was)))
	}
	next, effects, warnings, p := b.plan(ctx, c, store, &was, others)
	if p != nil {
		return refuse(p)
	}
	if next.Deleted && !was.Deleted && was.Elsewhere+was.Text != "" {
		if c.action != "revert" && !c.by.role.Allows(configs.RoleAdmin) { // a first version may be reverted by who rolled it out
			return refuse(problem(http.StatusForbidden, "", fmt.Sprintf("%s is %s, and to take a namespace away takes the role admin", c.by.name, c.by.role)))
		}
		warnings = append(warnings, configs.Mistake{File: c.namespace, Code: configs.SlipCode, Detail: "the namespace is taken away: its requests meet no limit", Hint: "rules of mode: shadow deny nothing"})
	}
	entry.Message = next.Message
	out := &Changed{DryRun: c.dryRun, Diff: differences(&was, &next), Effects: effects, Warnings: told(warnings)}
	if out.Changed = was.Text != next.Text || was.Deleted != next.Deleted || was.Regions != next.Regions || was.Until != next.Until; !out.Changed {
		out.VersionInfo = infoOf(&was)
		return out, nil
	}
	if c.dryRun {
		next.Number = was.Number + 1
		out.VersionInfo = infoOf(&next)
		out.ETag, out.At = "", time.Time{}
		return out, nil
	}
	if err := note("begun", was.Number); err != nil { // what cannot be noted is not done
		return nil, unavailable(err)
	}
	begun = true
	made, err := store.Put(ctx, next, was.Number)
	if err != nil {
		return refuse(putProblem(err))
	}
	if err := note("done", made.Number); err != nil {
		b.log.Error("that a change was made is not in the audit log; that it was begun is", "namespace", c.namespace, "version", made.Number, "err", err)
	}
	b.log.Info("rules changed", "namespace", c.namespace, "version", made.Number, "author", made.Author, "message", made.Message, "deleted", made.Deleted)
	out.VersionInfo = infoOf(&made)
	return out, nil
}

// plan is what a change would make, what it would have done, and what is suspicious about it.
func (b *Rulebook) plan(ctx context.Context, c *change, store *natsrules.Store, was *natsrules.Version, others []natsrules.Version) (next natsrules.Version, effects []Effect, warnings []configs.Mistake, p *Problem) {
	effects = []Effect{}
	leave, p := await(ctx, b.turn)
	if p != nil {
		return next, effects, nil, p
	}
	defer leave()
	next, err := c.next(ctx, store, was)
	if err != nil {
		return next, effects, nil, problemOf(err)
	}
	next.Namespace, next.Author, next.Message = c.namespace, c.by.name, cmp.Or(c.message, next.Message)
	set, warnings, err := b.check(others, &next)
	if err != nil {
		return next, effects, nil, invalid(err)
	}
	uncompared, p := b.measurable(&next)
	if p != nil {
		return next, effects, nil, p
	}
	warnings = append(warnings, uncompared...)
	if base := stable(was); base.Text != "" && !next.Deleted {
		text := configs.Text{Name: c.namespace, Namespace: c.namespace, Text: next.Text}
		warnings = append(warnings, b.format.Slips(configs.Text{Namespace: c.namespace, Text: base.Text}, text)...)
		effects = b.effects(time.Now(), c.namespace, set)
		warnings = append(warnings, b.format.Effects(text, suspicious(effects))...)
	}
	return next, effects, warnings, nil
}

// check are the rules with a document, and the warnings about it, all other namespaces in force.
func (b *Rulebook) check(others []natsrules.Version, next *natsrules.Version) (*limit.Set, []configs.Mistake, error) {
	texts := make([]configs.Text, 0, len(others)+1)
	for _, v := range others {
		texts = append(texts, configs.Text{Name: fmt.Sprintf("%s, version %d", v.Namespace, v.Number), Namespace: v.Namespace, Text: v.Text})
	}
	if !next.Deleted {
		t := configs.Text{Name: next.Namespace, Namespace: next.Namespace, Text: next.Text}
		if next.Text != next.Elsewhere { // which edges compare it with
			t.Before = next.Elsewhere
		}
		texts = append(texts, t)
	}
	set, warnings, err := b.format.CheckTexts(texts...)
	own := warnings[:0:0]
	for _, w := range warnings { // those of others were told to who wrote them
		if w.File == next.Namespace {
			own = append(own, w)
		}
	}
	return set, own, err
}

// differences are what diff -u says of a change: one for all regions where it is the same, if the namespace
// is, or was, rolled out.
func differences(was, next *natsrules.Version) string {
	if was.Regions == "" && next.Regions == "" {
		return difference(was, next)
	}
	regions := strings.FieldsFunc(was.Regions+","+next.Regions, func(c rune) bool { return c == ',' })
	slices.Sort(regions)
	type side struct{ before, after string }
	where := map[side][]string{}
	var order []side
	for _, region := range append(slices.Compact(regions), "") { // "" is no region's name: all others
		var s side
		s.before, _ = was.In(region)
		s.after, _ = next.In(region)
		if where[s] == nil {
			order = append(order, s)
		}
		if region == "" {
			region = "elsewhere"
		}
		where[s] = append(where[s], region)
	}
	out := ""
	for _, s := range order {
		before, after := *was, *next
		before.Text, after.Text = s.before, s.after
		if d := difference(&before, &after); d != "" {
			out += "# " + strings.Join(where[s], ", ") + "\n" + d
		}
	}
	return out
}

// stable is a version as it is where it is not rolled out.
func stable(v *natsrules.Version) *natsrules.Version {
	if v.Regions == "" {
		return v
	}
	return &natsrules.Version{Namespace: v.Namespace, Number: v.Number, Text: v.Elsewhere, Deleted: v.Elsewhere == ""}
}

// difference is what diff -u says of two versions.
func difference(was, next *natsrules.Version) string {
	name := func(v *natsrules.Version, as string) string {
		if v.Text == "" {
			return "/dev/null"
		}
		if v.Number > 0 {
			as = fmt.Sprintf("version %d", v.Number)
		}
		return fmt.Sprintf("%s (%s)", v.Namespace, as)
	}
	return string(diff.Diff(name(was, "none"), []byte(was.Text), name(next, "next"), []byte(next.Text)))
}

// stateOf says what the newest version is.
func stateOf(v *natsrules.Version) string {
	switch {
	case v.Number == 0:
		return fmt.Sprintf("there is no namespace %s", v.Namespace)
	case v.Deleted:
		return fmt.Sprintf("namespace %s was taken away by version %d, of %s", v.Namespace, v.Number, v.Author)
	}
	return fmt.Sprintf("namespace %s has version %d, ETag %s, of %s", v.Namespace, v.Number, etag(v), v.Author)
}

// underWay is the problem that a document is rolled out, which nothing else is to end by the way; nil: it is not.
func underWay(v *natsrules.Version) error {
	if v.Regions == "" {
		return nil
	}
	return problem(http.StatusConflict, "promote it, revert it, or PUT with ?regions=", fmt.Sprintf("version %d of namespace %s is rolled out in %s", v.Number, v.Namespace, v.Regions))
}

func outOfScope(c *caller, namespace string) *Problem {
	what := "all of them"
	if namespace != "" {
		what = fmt.Sprintf("%.80q", namespace)
	}
	return problem(http.StatusForbidden, "", fmt.Sprintf("%s may touch the namespaces %q, and not %s", c.name, c.of.Namespaces, what))
}

// problemOf is what is wrong, if it is not a problem already.
func problemOf(err error) *Problem {
	var p *Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, natsrules.ErrNone):
		return problem(http.StatusNotFound, "GET /admin/v1/namespaces lists them", err.Error())
	case errors.Is(err, natsrules.ErrUnavailable), errors.Is(err, natsrules.ErrBad), errors.Is(err, natsaudit.ErrUnavailable):
		return unavailable(err)
	}
	return invalid(err)
}

// putProblem is what is wrong where a version was not written.
func putProblem(err error) *Problem {
	switch {
	case errors.Is(err, natsrules.ErrConflict):
		return problem(http.StatusPreconditionFailed, "GET it anew, and see what differs", err.Error())
	case errors.Is(err, natsrules.ErrTooLarge):
		return problem(http.StatusRequestEntityTooLarge, "split the namespace", err.Error())
	case errors.Is(err, natsrules.ErrUnavailable):
		return problem(http.StatusServiceUnavailable, "it may have been changed all the same: GET it anew; see that the region whose bucket is mirrored is up, and that this aggregator's key may write there (deploy/nats/users.conf)", err.Error())
	}
	return problem(http.StatusUnprocessableEntity, "", err.Error())
}

func unavailable(err error) *Problem {
	hint := "nothing is changed; see nats.urls, and rules.kv"
	if errors.Is(err, natsrules.ErrNone) || errors.Is(err, natsaudit.ErrNone) || errors.Is(err, natsentries.ErrNone) {
		hint = "aggregator rules init makes it"
	}
	return problem(http.StatusServiceUnavailable, hint, err.Error())
}
