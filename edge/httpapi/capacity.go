package httpapi

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// capacities is a limiter whose elastic margins follow signals of spare
// capacity: an edge.Node.
type capacities interface {
	SetCapacity(now time.Time, name string, used float64, ttl time.Duration) error
	Capacity(now time.Time, name string) (used float64, ttl time.Duration, ok bool)
}

var _ capacities = (*edge.Node)(nil)

// defaultCapacityTTL is how long a signal is good where its setter says
// nothing: a few times the interval at which one would send it.
const defaultCapacityTTL = 30 * time.Second

// maxCapacityBody is more than any part in use takes.
const maxCapacityBody = 64

// listedSignals is how many signals a refusal names.
const listedSignals = 10

// putCapacity is PUT /admin/v1/capacity/{name}?ttl=30s with the part in use as
// its body: 0.7, or 70%. What no rule reads is refused, as it would open nothing.
func (a *API) putCapacity(w http.ResponseWriter, r *http.Request) {
	node, ok := a.limiter.(capacities)
	if !ok {
		writeProblem(w, &problem{status: http.StatusNotImplemented, detail: "this limiter knows no capacities"})
		return
	}
	set := a.limiter.Rules()
	if set == nil {
		a.notReady(w)
		return
	}
	used, ttl, err := readCapacity(r)
	if err == nil {
		err = isRead(set, r.PathValue("name"))
	}
	if err == nil {
		err = node.SetCapacity(a.cfg.Now(), r.PathValue("name"), used, ttl)
	}
	if err != nil {
		p := &problem{status: http.StatusBadRequest, detail: err.Error()}
		if in := (*inputError)(nil); errors.As(err, &in) {
			p.status, p.field = in.status, in.field
		}
		writeProblem(w, p)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// isRead says which signals rules read where name is none of them.
func isRead(set *limit.Set, name string) error {
	var signals []string
	for _, r := range set.Rules() {
		if e := r.Elastic; e != nil && e.Signal == name && name != "" {
			return nil
		} else if e != nil && e.Signal != "" {
			signals = append(signals, e.Signal)
		}
	}
	slices.Sort(signals)
	signals = slices.Compact(signals)
	hint := "no rule has one that reads a signal; such as margin: {elastic: {up_to: 50%, while: capacity.api < 70%}}"
	if n := len(signals); n > listedSignals {
		hint = fmt.Sprintf("they read %s and %d others", strings.Join(signals[:listedSignals], ", "), n-listedSignals)
	} else if n > 0 {
		hint = "they read " + strings.Join(signals, ", ")
	}
	return &inputError{status: http.StatusNotFound, field: "name", detail: "no rule's elastic margin reads capacity " + short(name), hint: hint}
}

func readCapacity(r *http.Request) (used float64, ttl time.Duration, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return 0, 0, badRequest("query", "such as ?ttl=30s", "%v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if name != "ttl" || len(query[name]) > 1 {
			return 0, 0, badRequest("query", "there is ttl, once, such as ?ttl=30s", "%s is not known, or there more than once", short(name))
		}
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxCapacityBody+1))
	switch {
	case err != nil:
		return 0, 0, badRequest("body", "send the part in use, such as 0.7 or 70%", "could not be read to its end")
	case len(body) > maxCapacityBody:
		return 0, 0, badRequest("body", "send the part in use, such as 0.7 or 70%", "has more than %d bytes", maxCapacityBody)
	}
	if used, err = PartInUse(strings.TrimSpace(string(body))); err != nil {
		return 0, 0, err
	}
	ttl = defaultCapacityTTL
	if text := query.Get("ttl"); text != "" {
		if ttl, err = time.ParseDuration(text); err != nil {
			return 0, 0, badRequest("ttl", "such as ttl=30s", "%s is no duration", short(text))
		}
	}
	return used, ttl, nil
}

// PartInUse reads the part of a capacity that is in use: 0.7 or 70%. More than all may
// be, but must be written as percent: who sends 70 means 70%.
func PartInUse(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	number = strings.TrimSpace(number)
	used, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || strings.Trim(number, "+-.0123456789eE") != "": // ParseFloat reads 1_0 and 0x1p-2, too
		return 0, badRequest("body", "send the part in use, such as 0.7 or 70%", "%s is no number", short(text))
	case percent:
		return used / 100, nil
	case used > 1:
		return 0, badRequest("body", "0.7 or 70% is seventy percent; where more is in use than there is, 105%", "%s is more than all", short(text))
	}
	return used, nil
}

// getCapacity is GET /admin/v1/capacity/{name}: what is known of it.
func (a *API) getCapacity(w http.ResponseWriter, r *http.Request) {
	if node, ok := a.limiter.(capacities); ok {
		if used, ttl, ok := node.Capacity(a.cfg.Now(), r.PathValue("name")); ok {
			w.Header()["Content-Type"] = jsonType
			body := append(strconv.AppendFloat([]byte(`{"used":`), used, 'g', -1, 64), `,"ttl_ms":`...)
			_, _ = w.Write(append(strconv.AppendInt(body, ttl.Milliseconds(), 10), "}\n"...)) // a caller that is gone cannot be told so
			return
		}
	}
	writeProblem(w, &problem{status: http.StatusNotFound, detail: "nothing is known of capacity " + short(r.PathValue("name")) + ": it was not set, or ran out"})
}
