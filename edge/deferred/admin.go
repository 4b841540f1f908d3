package deferred

import (
	"fmt"
	"net/http"
	"strconv"
)

// Admin serves what operators ask: how many requests wait and are dead, which these are
// and why, and has one wait once more or be forgotten.
//
//	GET    /admin/v1/deferred                    {"waiting": 3, "dead": 1}
//	GET    /admin/v1/deferred/dead?from=&limit=  the letters, the oldest first
//	POST   /admin/v1/deferred/dead/{id}/revive   {"id": the new one}
//	DELETE /admin/v1/deferred/dead/{id}
//	GET    /admin/v1/deferred/{id}               what became of it
func Admin(q *Queue) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any, err error) {
		if err != nil {
			fail(w, statusOf(err), err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
	mux.HandleFunc("GET /admin/v1/deferred", func(w http.ResponseWriter, r *http.Request) {
		waiting, dead, err := q.Depth(r.Context())
		answer(w, map[string]uint64{"waiting": waiting, "dead": dead}, err)
	})
	mux.HandleFunc("GET /admin/v1/deferred/dead", func(w http.ResponseWriter, r *http.Request) {
		from, err1 := number(r, "from", 0)
		limit, err2 := number(r, "limit", 100)
		if err1 != nil || err2 != nil || limit == 0 || limit > mostLetters {
			fail(w, http.StatusBadRequest, fmt.Errorf("from=%q, limit=%q: want a number, and one from 1 to %d", r.FormValue("from"), r.FormValue("limit"), mostLetters))
			return
		}
		letters, err := q.Dead(r.Context(), from, int(limit))
		if letters == nil {
			letters = []Letter{}
		}
		answer(w, map[string]any{"dead": letters}, err)
	})
	mux.HandleFunc("POST /admin/v1/deferred/dead/{id}/revive", func(w http.ResponseWriter, r *http.Request) {
		id, err := q.Revive(r.Context(), r.PathValue("id"))
		answer(w, map[string]string{"id": id}, err)
	})
	mux.HandleFunc("DELETE /admin/v1/deferred/dead/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := q.Forget(r.Context(), r.PathValue("id")); err != nil {
			fail(w, statusOf(err), err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /admin/v1/deferred/{id}", func(w http.ResponseWriter, r *http.Request) {
		s, err := q.Status(r.Context(), r.PathValue("id"))
		answer(w, &s, err)
	})
	return mux
}

func number(r *http.Request, name string, unless uint64) (uint64, error) {
	v := r.FormValue(name)
	if v == "" {
		return unless, nil
	}
	return strconv.ParseUint(v, 10, 63)
}
