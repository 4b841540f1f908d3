package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge"
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

// putCapacity is PUT /admin/v1/capacity/{name}?ttl=30s with the part in use as
// its body: 0.7, or 70%.
func (a *API) putCapacity(w http.ResponseWriter, r *http.Request) {
	node, ok := a.limiter.(capacities)
	if !ok {
		writeProblem(w, &problem{status: http.StatusNotImplemented, detail: "this limiter knows no capacities"})
		return
	}
	used, ttl, err := readCapacity(r)
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

func readCapacity(r *http.Request) (used float64, ttl time.Duration, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64))
	if err != nil {
		return 0, 0, badRequest("body", "send the part in use, such as 0.7 or 70%", "could not be read to its end")
	}
	text := strings.TrimSpace(string(body))
	number, percent := strings.CutSuffix(text, "%")
	used, err = strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return 0, 0, badRequest("body", "send the part in use, such as 0.7 or 70%", "%s is no number", short(text))
	}
	if percent {
		used /= 100
	}
	ttl = defaultCapacityTTL
	if text := r.URL.Query().Get("ttl"); text != "" {
		if ttl, err = time.ParseDuration(text); err != nil {
			return 0, 0, badRequest("ttl", "such as ttl=30s", "%s is no duration", short(text))
		}
	}
	return used, ttl, nil
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
