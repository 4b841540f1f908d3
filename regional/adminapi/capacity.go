package adminapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

const (
	// defaultCapacityTTL is that of edges.
	defaultCapacityTTL = 30 * time.Second
	maxCapacityBody    = 64
)

// Capacity is how much of a named capacity is in use, as every edge hears it.
type Capacity struct {
	Name    string    `json:"name"`
	Used    float64   `json:"used"` // 0.7: 70 percent
	At      time.Time `json:"at"`
	Until   time.Time `json:"until"`
	Author  string    `json:"author,omitempty"`
	Message string    `json:"message,omitempty"`
}

// capacityOf is the capacity that an entry has.
func capacityOf(e *natsentries.Entry) (Capacity, error) {
	used, err := limit.ReadCapacityBody(e.Body)
	return Capacity{Name: e.Name, Used: used, At: e.At, Until: e.Until, Author: e.Author, Message: e.Message}, err
}

// capacities is GET /admin/v1/capacity: those that hold.
func (k *Keybook) capacities(w http.ResponseWriter, r *http.Request) *Problem {
	store, _, p := k.open(r.Context())
	if p != nil {
		return p
	}
	list := []Capacity{}
	for after, first := uint64(0), true; first || after != 0; first = false {
		found, more, _, err := store.List(r.Context(), limit.EntryCapacity, "", after, 4096)
		if err != nil {
			return entryProblem(err)
		}
		for i := range found {
			if found[i].Gone(k.cfg.Now()) {
				continue
			}
			if c, err := capacityOf(&found[i]); err == nil {
				list = append(list, c)
			}
		}
		after = more
	}
	slices.SortFunc(list, func(a, b Capacity) int { return strings.Compare(a.Name, b.Name) })
	writeJSON(w, http.StatusOK, map[string]any{"capacities": list})
	return nil
}

// capacityAsk reads what edges take, too: ?ttl=30s, and the part in use as the body, 0.7 or 70%.
func capacityAsk(w http.ResponseWriter, r *http.Request) (used float64, ttl time.Duration, p *Problem) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCapacityBody))
	if err != nil {
		return 0, 0, problem(http.StatusRequestEntityTooLarge, "send the part in use, such as 0.7 or 70%", fmt.Sprintf("the body is more than %d bytes, or cannot be read", maxCapacityBody))
	}
	if used, err = httpapi.PartInUse(strings.TrimSpace(string(text))); err != nil {
		return 0, 0, problem(http.StatusBadRequest, "send the part in use, such as 0.7 or 70%", err.Error())
	}
	ttl = defaultCapacityTTL
	if text := r.URL.Query().Get("ttl"); text != "" {
		if ttl, err = configs.ParseDuration(text); err != nil || ttl <= 0 || ttl > edge.MaxCapacityTTL {
			return 0, 0, problem(http.StatusBadRequest, "above 0, up to 1h; say it again before it ends", fmt.Sprintf("ttl=%.40s is no time to be good for", text))
		}
	}
	return used, ttl, nil
}

// reads says that an elastic margin reads a capacity, else it opens nothing.
func (k *Keybook) reads(name string) *Problem {
	if err := limit.ValidSignal(name); err != nil {
		return problem(http.StatusUnprocessableEntity, "as rules name it: while: capacity.NAME < 70%", err.Error())
	}
	set := k.cfg.Rules()
	if set == nil {
		return problem(http.StatusServiceUnavailable, "see rules.source, and whether NATS has some", "this aggregator knows no rules yet")
	}
	var names []string
	for _, rule := range set.Rules() {
		if rule.Elastic == nil || rule.Elastic.Signal == "" || slices.Contains(names, rule.Elastic.Signal) {
			continue
		}
		if names = append(names, rule.Elastic.Signal); rule.Elastic.Signal == name {
			return nil
		}
	}
	hint := "no rule has one that reads a signal; such as margin: {elastic: {up_to: 50%, while: capacity.api < 70%}}"
	if len(names) > 0 {
		hint = "they read " + strings.Join(names[:min(len(names), 10)], ", ")
	}
	return problem(http.StatusNotFound, hint, fmt.Sprintf("no rule's elastic margin reads capacity %.80q", name))
}

// putCapacity is PUT /admin/v1/capacity/{name}: every edge has it within a second, until its ttl is over.
// The last word holds.
func (k *Keybook) putCapacity(w http.ResponseWriter, r *http.Request) *Problem {
	used, ttl, p := capacityAsk(w, r)
	if p != nil {
		return p
	}
	name := r.PathValue("name")
	d, p := k.begin(r, "put capacity", "")
	if p != nil {
		return p
	}
	d.entry.Message = fmt.Sprintf("%.80s: %v in use, for %v", name, used, ttl) + said(d.message)
	if p := k.reads(name); p != nil {
		return d.refuse(p)
	}
	next := natsentries.Entry{Kind: limit.EntryCapacity, Name: name, Until: k.cfg.Now().Add(ttl), Author: d.by.name, Message: d.message, Body: limit.CapacityBody(used)}
	made, p := k.last(r, d, next)
	if p != nil {
		return p
	}
	c, err := capacityOf(&made)
	if err != nil {
		return problem(http.StatusInternalServerError, "", err.Error()) // it was made here
	}
	writeJSON(w, http.StatusOK, c)
	return nil
}

// last writes an entry over whatever there is.
func (k *Keybook) last(r *http.Request, d *deed, next natsentries.Entry) (natsentries.Entry, *Problem) {
	for try := 0; ; try++ {
		was, err := d.store.Get(r.Context(), next.Kind, next.Namespace, next.Name)
		if p := entryProblem(err); p != nil {
			return next, d.refuse(p)
		}
		if next.Deleted && (errors.Is(err, natsentries.ErrNone) || err == nil && was.Gone(k.cfg.Now())) {
			return next, d.refuse(problem(http.StatusNotFound, "GET /admin/v1/capacity", "nothing is said of it, or that has ended"))
		}
		if d.dry {
			next.At = k.cfg.Now().UTC()
			return next, nil
		}
		made, p := d.write(r.Context(), next, was)
		if p == nil || p.Status != http.StatusPreconditionFailed || try == 3 {
			return made, p
		}
	}
}

// removeCapacity is DELETE /admin/v1/capacity/{name}: nothing is known of it from then on.
func (k *Keybook) removeCapacity(w http.ResponseWriter, r *http.Request) *Problem {
	d, p := k.begin(r, "remove capacity", "")
	if p != nil {
		return p
	}
	name := r.PathValue("name")
	d.entry.Message = fmt.Sprintf("%.80s", strconv.Quote(name)) + said(d.message)
	if err := limit.ValidSignal(name); err != nil {
		return d.refuse(problem(http.StatusNotFound, "GET /admin/v1/capacity", err.Error()))
	}
	if _, p := k.last(r, d, natsentries.Entry{Kind: limit.EntryCapacity, Name: name, Author: d.by.name, Message: d.message, Deleted: true}); p != nil {
		return p
	}
	writeJSON(w, http.StatusOK, map[string]any{"name": name, "dry_run": d.dry})
	return nil
}
