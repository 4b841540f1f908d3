package deferred

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// Admin is the handler of what operators ask: how many requests wait and are dead, which these are
// and why, and has one wait once more or be forgotten. A tenant is a namespace, a rule, and a key
// of it.
//
//	GET    /admin/v1/deferred                    {"waiting": 3, "dead": 1}
//	GET    /admin/v1/deferred/tenants?limit=     those of whom the most wait, and how many there are
//	GET    /admin/v1/deferred/waiting?tenant=&from=&limit=  what waits, the oldest first
//	GET    /admin/v1/deferred/dead?from=&limit=  the letters, the oldest first
//	POST   /admin/v1/deferred/dead/{id}/revive   {"id": the new one}; 409: that is dead, too
//	DELETE /admin/v1/deferred/dead/{id}
//	GET    /admin/v1/deferred/{id}               what became of it
func (f *Front) Admin() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, serve func(q *Queue, w http.ResponseWriter, r *http.Request), parameters ...string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := onlyOf(r, parameters); err != nil {
				fail(w, http.StatusBadRequest, err)
			} else if q, err := f.open(); err != nil {
				fail(w, statusOf(err), err)
			} else {
				serve(q, w, r)
			}
		})
	}
	answer := func(w http.ResponseWriter, v any, err error) {
		if err != nil {
			fail(w, statusOf(err), err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
	handle("GET /admin/v1/deferred", func(q *Queue, w http.ResponseWriter, r *http.Request) {
		waiting, dead, err := q.Depth(r.Context())
		answer(w, map[string]uint64{"waiting": waiting, "dead": dead}, err)
	})
	// ask is a list's bounds; false: they are none, and it is told.
	ask := func(w http.ResponseWriter, r *http.Request, unless, most int) (from uint64, limit int, ok bool) {
		from, err1 := number(r, "from", 0)
		n, err2 := number(r, "limit", uint64(unless))
		if ok = err1 == nil && err2 == nil && n > 0 && n <= uint64(most); !ok {
			fail(w, http.StatusBadRequest, fmt.Errorf("from=%q, limit=%q: want a number, and one from 1 to %d", r.FormValue("from"), r.FormValue("limit"), most))
		}
		return from, int(n), ok
	}
	handle("GET /admin/v1/deferred/tenants", func(q *Queue, w http.ResponseWriter, r *http.Request) {
		if _, limit, ok := ask(w, r, mostTold, mostTold); ok {
			tenants, of, err := q.Tenants(r.Context(), limit)
			answer(w, map[string]any{"tenants": list(tenants), "of": of}, err)
		}
	}, "limit")
	handle("GET /admin/v1/deferred/waiting", func(q *Queue, w http.ResponseWriter, r *http.Request) {
		if from, limit, ok := ask(w, r, 100, mostLetters); ok {
			waiting, err := q.Waiting(r.Context(), r.FormValue("tenant"), from, limit)
			answer(w, map[string]any{"waiting": list(waiting)}, err)
		}
	}, "tenant", "from", "limit")
	handle("GET /admin/v1/deferred/dead", func(q *Queue, w http.ResponseWriter, r *http.Request) {
		if from, limit, ok := ask(w, r, 100, mostLetters); ok {
			letters, err := q.Dead(r.Context(), from, limit)
			answer(w, map[string]any{"dead": list(letters)}, err)
		}
	}, "from", "limit")
	handle("POST /admin/v1/deferred/dead/{id}/revive", func(q *Queue, w http.ResponseWriter, r *http.Request) {
		id, err := q.Revive(r.Context(), r.PathValue("id"))
		answer(w, map[string]string{"id": id}, err)
	})
	handle("DELETE /admin/v1/deferred/dead/{id}", func(q *Queue, w http.ResponseWriter, r *http.Request) {
		if err := q.Forget(r.Context(), r.PathValue("id")); err != nil {
			fail(w, statusOf(err), err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	handle("GET /admin/v1/deferred/{id}", func(q *Queue, w http.ResponseWriter, r *http.Request) {
		s, err := q.Status(r.Context(), r.PathValue("id"))
		answer(w, &s, err)
	})
	return httpapi.Routes(mux)
}

// onlyOf refuses what is asked with a parameter that there is not: with one misspelt it would be
// something else that is told.
func onlyOf(r *http.Request, parameters []string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("the query cannot be read: %w", err)
	}
	for name := range query {
		if !slices.Contains(parameters, name) {
			if len(parameters) == 0 {
				return fmt.Errorf("unknown parameter %.100q: there is none here", name)
			}
			return fmt.Errorf("unknown parameter %.100q: there is %s", name, strings.Join(parameters, ", "))
		}
	}
	return nil
}

func number(r *http.Request, name string, unless uint64) (uint64, error) {
	v := r.FormValue(name)
	if v == "" {
		return unless, nil
	}
	return strconv.ParseUint(v, 10, 63)
}

// list is one that JSON has as a list though it is empty.
func list[T any](of []T) []T {
	if of == nil {
		return []T{}
	}
	return of
}
