package httpapi

import (
	"hash/maphash"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// An id proves what was charged for each reading of a path, and nothing of another path
// that begins with the same.
func TestDigestIsOfAllReadings(t *testing.T) {
	ids := ids{seed: maphash.MakeSeed()}
	for key, differ := range map[string]bool{"path": true, "user": false} {
		l := limitertest.New(t, limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{Name: "r", Key: []string{key}, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}}}})
		digest := func(paths ...string) uint64 {
			req := l.Rules().Only().NewRequest()
			defer req.Release()
			req.Set("user", "u")
			req.Set("path", paths[0])
			req.AlsoPaths(append([]string(nil), paths[1:]...))
			return ids.digest(req)
		}
		whole := digest("/a", "/b", "/c")
		if digest("/a", "/b", "/c") != whole {
			t.Errorf("key %s: the same request has two digests", key)
		}
		for _, paths := range [][]string{{"/a"}, {"/a", "/b"}, {"/a", "/b", "/d"}, {"/d", "/b", "/c"}} {
			if got := digest(paths...); (got != whole) != differ {
				t.Errorf("key %s: digests of /a, read as /b and /c too, and of %q: differ %v, want %v", key, paths, got != whole, differ)
			}
		}
	}
}

// Each request that strict limits admit has one.
func TestDigestAllocatesNothing(t *testing.T) {
	ids := ids{seed: maphash.MakeSeed()}
	req := limitertest.New(t, acme()).Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	if got := testing.AllocsPerRun(100, func() { ids.digest(req) }); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}
