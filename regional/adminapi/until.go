package adminapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// Until is by what a rollout ends by itself.
type Until struct {
	Text           string     `json:"text"`                    // in words
	PromoteAfter   string     `json:"promote_after,omitempty"` // "": not by itself
	PromoteAt      *time.Time `json:"promote_at,omitempty"`    // at the earliest
	MaxNewlyDenied *float64   `json:"max_newly_denied_percent,omitempty"`
	MaxDenied      *float64   `json:"max_denied_percent,omitempty"`
	MinRequests    uint64     `json:"min_requests"`
	// State is how it stands, by what the aggregator that answers was told; it is of the newest version alone.
	State string `json:"state,omitempty"`
}

// untilInfo is what is told of a version's condition; nil: it has none.
func untilInfo(v *natsrules.Version) *Until {
	c := &v.Until
	if !c.Stated() {
		return nil
	}
	u := &Until{Text: c.String(), MinRequests: c.Requests}
	if c.After > 0 {
		u.PromoteAfter = c.After.String()
		if !v.At.IsZero() {
			at := v.At.Add(c.After)
			u.PromoteAt = &at
		}
	}
	if c.NewlyDenied.Stated {
		u.MaxNewlyDenied = &c.NewlyDenied.Percent
	}
	if c.Denied.Stated {
		u.MaxDenied = &c.Denied.Percent
	}
	return u
}

// untilWords are the parameters that say until when something is rolled out.
var untilWords = []string{"promote_after", "max_newly_denied", "max_denied", "min_requests"}

// untilOf reads ?promote_after=30m&max_newly_denied=2%25&max_denied=5%25&min_requests=500, of what is rolled out
// in regions.
func untilOf(r *http.Request, regions string) (c natsrules.Condition, p *Problem) {
	query := r.URL.Query()
	bad := func(hint, format string, args ...any) (natsrules.Condition, *Problem) {
		return natsrules.Condition{}, problem(http.StatusBadRequest, hint, fmt.Sprintf(format, args...))
	}
	stated := ""
	for _, name := range untilWords {
		if query.Has(name) {
			stated = name
		}
	}
	switch {
	case stated == "":
		return c, nil
	case regions == "":
		return bad("regions=us", "%s is of what is rolled out in some regions first, and regions names none", stated)
	}
	for _, most := range []struct {
		name string
		to   *natsrules.Most
	}{{"max_newly_denied", &c.NewlyDenied}, {"max_denied", &c.Denied}} {
		if !query.Has(most.name) {
			continue
		}
		text := query.Get(most.name)
		number, percent := strings.CutSuffix(text, "%")
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if !percent || err != nil || !(n >= 0 && n < 100) {
			return bad(most.name+"=2%, as %25 in a URL", "%s=%.40q: want a part in percent, of 0 to less than 100", most.name, text)
		}
		*most.to = natsrules.Most{Stated: true, Percent: n}
	}
	if !c.NewlyDenied.Stated && !c.Denied.Stated {
		return bad("max_newly_denied=2%, or max_denied=5%, or both", "%s says nothing that must hold", stated)
	}
	if query.Has("promote_after") {
		d, err := time.ParseDuration(query.Get("promote_after"))
		if err != nil || d < natsrules.LeastAfter || d > natsrules.LongestAfter || d%time.Millisecond != 0 {
			return bad("promote_after=30m", "promote_after=%.40q: want %v to %v", query.Get("promote_after"), natsrules.LeastAfter, natsrules.LongestAfter)
		}
		c.After = d
	}
	c.Requests = natsrules.DefaultRequests
	if query.Has("min_requests") {
		n, err := strconv.ParseUint(query.Get("min_requests"), 10, 64)
		if err != nil || n == 0 || n > natsrules.MostRequests {
			return bad("min_requests=500", "min_requests=%.40q: want 1 to %d", query.Get("min_requests"), natsrules.MostRequests)
		}
		c.Requests = n
	}
	return c, nil
}

// measurable refuses a version whose condition could never be measured, and warns of what of it is not.
func (b *Rulebook) measurable(next *natsrules.Version) ([]configs.Mistake, *Problem) {
	if !next.Until.NewlyDenied.Stated {
		return nil, nil
	}
	const hint = "max_denied, which is of all requests; or promote it, or revert it, yourself"
	refuse := func(why string) ([]configs.Mistake, *Problem) {
		return nil, problem(http.StatusUnprocessableEntity, hint, "nobody could say what is newly denied: "+why)
	}
	if next.Elsewhere == "" {
		return refuse("there is no such namespace elsewhere to compare it with")
	}
	compared, err := b.format.Compare(configs.Text{Name: next.Namespace, Namespace: next.Namespace, Text: next.Text, Before: next.Elsewhere})
	switch {
	case err != nil:
		return refuse("what is in force elsewhere cannot be read: " + err.Error())
	case compared.Why != nil:
		return refuse("it is not compared with what is in force elsewhere, as that cannot stand beside it as candidates: " + compared.Why.Error())
	case len(compared.Rules) == 0:
		return refuse("no rule has other limits than elsewhere, and others than those are not compared")
	case len(compared.Other) > 0:
		return []configs.Mistake{{
			File: next.Namespace, Code: configs.UncomparedCode, Hint: "max_denied, which is of all requests",
			Detail: fmt.Sprintf("what is newly denied is measured of %s alone: not of what else changed, or has a candidate of its own: %s", strings.Join(compared.Rules, ", "), strings.Join(compared.Other, ", ")),
		}}, nil
	}
	return nil, nil
}
