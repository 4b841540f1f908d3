package cli

import (
	"log/slog"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// excepts is who has exceptions for single keys be in force: an edge.Node.
type excepts interface {
	SetExceptions(now time.Time, list []limit.Exception) []limit.Problem
}

// mostExceptionsTold is how many exceptions that are wrong are logged at a time.
const mostExceptionsTold = 10

// ApplyExceptions has entries of exceptions in force. Those that have no rule by now are kept: their rules
// may yet come.
func ApplyExceptions(node excepts, log *slog.Logger) ApplyEntries {
	all := map[[2]string]limit.Exception{} // of the one goroutine that applies entries
	told := map[string]bool{}
	return func(entries []natsentries.Entry) map[int]error {
		refused, now := map[int]error{}, time.Now()
		for i := range entries {
			e := &entries[i]
			id := [2]string{e.Namespace, e.Name}
			if e.Gone(now) {
				delete(all, id)
				continue
			}
			x := limit.Exception{ID: e.Name, Namespace: e.Namespace, Since: e.At, Until: e.Until}
			if err := x.ReadBody(e.Body); err != nil {
				refused[i] = err
				continue
			}
			all[id] = x
		}
		list := make([]limit.Exception, 0, len(all))
		for id, x := range all {
			if !x.Holds(now) {
				delete(all, id)
				continue
			}
			list = append(list, x)
		}
		wrong := map[string]bool{}
		for i, p := range node.SetExceptions(now, list) {
			what := p.Path + ": " + p.Detail
			wrong[what] = true
			if i < mostExceptionsTold && !told[what] { // once, while it is so
				log.Warn("an exception for a key is not in force", "code", p.Code, "exception", p.Path, "detail", p.Detail, "hint", p.Hint)
			}
		}
		told = wrong
		return refused
	}
}

// capacities is who hears of capacity: an edge.Node.
type capacities interface {
	SetCapacity(now time.Time, name string, used float64, ttl time.Duration) error
	ForgetCapacity(name string)
}

// ApplyCapacity has entries of capacity in force.
func ApplyCapacity(node capacities) ApplyEntries {
	return func(entries []natsentries.Entry) map[int]error {
		refused, now := map[int]error{}, time.Now()
		for i := range entries {
			e := &entries[i]
			if e.Deleted {
				node.ForgetCapacity(e.Name)
			}
			if e.Gone(now) {
				continue
			}
			used, err := limit.ReadCapacityBody(e.Body)
			if err == nil {
				err = node.SetCapacity(now, e.Name, used, e.Until.Sub(now))
			}
			if err != nil {
				refused[i] = err
			}
		}
		return refused
	}
}
