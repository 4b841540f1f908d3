package httpapi

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// denials are the last that were answered with an id, so that GET /v1/decisions/{id}
// can say why to who was denied and asks later. What was admitted is not kept: nobody
// asks why, and it would cost every request. Of the shards each has a lock of its own.
type denials [16]denialShard

// denialsKept is how many a shard keeps: 4,096 in all, some 1 MiB. What came first goes first.
const denialsKept = 256

type denialShard struct {
	mu   sync.Mutex
	list []denial // grows to denialsKept
	next int      // whose place is taken then
}

// denial is what is remembered of one. Its rule may have been replaced since, and lives
// until others take its place.
type denial struct {
	id       [idLength]byte
	at       time.Time
	decision limit.Decision
}

// shard is where an id belongs. Its last letters are random.
func (k *denials) shard(id []byte) *denialShard {
	return &k[(id[idLength-1]^id[idLength-2]>>1)%byte(len(k))]
}

// keep remembers a denial.
func (k *denials) keep(id []byte, at time.Time, d *limit.Decision) {
	s := k.shard(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) < denialsKept {
		s.list = append(s.list, denial{})
		s.next = len(s.list) - 1
	}
	e := &s.list[s.next]
	copy(e.id[:], id)
	e.at, e.decision = at, *d
	s.next = (s.next + 1) % denialsKept
}

// find is the denial of an id, if it is remembered.
func (k *denials) find(id string) (denial, bool) {
	s := k.shard([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list {
		if string(s.list[i].id[:]) == id {
			return s.list[i], true
		}
	}
	return denial{}, false
}

// Denied is what GET /v1/decisions/{id} answers: why a request was denied, and by what
// the edge decided so.
type Denied struct {
	ID           string       `json:"decision_id"`
	At           time.Time    `json:"at"`
	Allowed      bool         `json:"allowed"`
	Reason       string       `json:"reason"` // in words
	Namespace    string       `json:"namespace"`
	Rule         string       `json:"rule"`
	Policy       string       `json:"policy,omitempty"` // its rate; none of a rule that denies whatever it matches
	Cost         uint64       `json:"cost,omitempty"`
	Limit        uint64       `json:"limit,omitempty"`
	Window       string       `json:"window,omitempty"`
	Remaining    *uint64      `json:"remaining,omitempty"`
	RetryAfterMS int64        `json:"retry_after_ms,omitempty"`
	Basis        *DeniedBasis `json:"basis,omitempty"`
}

// DeniedBasis is what the edge knew then.
type DeniedBasis struct {
	Local   uint64 `json:"local"`
	Merged  uint64 `json:"merged"`
	AgeMS   int64  `json:"age_ms"` // since the key was last heard of; -1: never
	Regions int    `json:"regions"`
	Short   bool   `json:"short_of_share,omitempty"`
	CutOff  bool   `json:"cut_off,omitempty"`
}

// appendDecisionID appends an id for what was decided, by which a denial is found again.
func (a *API) appendDecisionID(dst []byte, x *answer) []byte {
	d := &x.decision
	if x.id != nil {
		return append(dst, x.id...)
	}
	if x.proves != 0 {
		return a.ids.append(dst, x.spent, x.clock, x.proves)
	}
	dst = appendID(dst, x.now, rand.Uint64(), rand.Uint64())
	if !d.Allowed && d.Rule != nil {
		a.denials.keep(dst[len(dst)-idLength:], x.now, d)
	}
	return dst
}

// decision answers GET /v1/decisions/{id}. It tells rules and counts, and so belongs to
// the admin listener.
func (a *API) decision(w http.ResponseWriter, r *http.Request) {
	id := strings.ToUpper(r.PathValue("id"))
	if !isID(id) {
		a.refuse(w, badRequest("id", "the decision_id of a reply, or the end of the instance of a problem", "%s is no id of a decision", short(r.PathValue("id"))))
		return
	}
	e, ok := a.denials.find(id)
	if !ok {
		a.refuse(w, &inputError{
			status: http.StatusNotFound, field: "id", detail: "no denial of that id is remembered here",
			hint: "an edge knows its own last 4,096 denials since it started, and nothing of what it admitted",
		})
		return
	}
	h := w.Header()
	h["Content-Type"], h["Cache-Control"] = jsonType, noStore
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(e.told()) // a caller that is gone cannot be told so
}

// told puts a denial into words.
func (e *denial) told() *Denied {
	d := &e.decision
	out := &Denied{
		ID: string(e.id[:]), At: e.at.UTC(), Allowed: d.Allowed, Namespace: d.Rule.Namespace, Rule: d.Rule.Name,
		Reason: "the rule denies whatever it matches",
	}
	if d.Rate == nil {
		return out
	}
	switch {
	case d.Basis.CutOff:
		out.Reason = "the edge could not hear of the others that share the limit, and the rate is closed then"
	case d.Basis.Short:
		out.Reason = "this edge's share of the limit was used up"
	default:
		out.Reason = string(appendUsed(nil, d))
	}
	out.Policy, out.Cost, out.Limit, out.Window = d.Rate.Policy, d.Cost, d.Limit, limit.WindowName(WindowOf(d.Rate))
	out.Remaining, out.RetryAfterMS = &d.Remaining, ceilMilliseconds(waitOf(d))
	b := &d.Basis
	out.Basis = &DeniedBasis{Local: b.Local, Merged: b.Merged, AgeMS: -1, Regions: b.Regions, Short: b.Short, CutOff: b.CutOff}
	if b.Age >= 0 {
		out.Basis.AgeMS = b.Age.Milliseconds()
	}
	return out
}
