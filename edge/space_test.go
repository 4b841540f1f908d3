package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// A namespace that floods the ledger forgets its own keys and not those of the
// others, which may have as much as is left of it.
func TestNamespacesHaveTheirShare(t *testing.T) {
	alone.Mark(t)
	const quiet, most = 300, 8192
	var docs []limit.Document
	for _, name := range []string{"flooded", "quiet", "still"} {
		docs = append(docs, limit.Document{Namespace: name, Rules: []limit.RuleSpec{perUser(limit.RateSpec{Limit: 1000, Per: time.Hour})}})
	}
	n := newNode(t, Config{MaxKeys: most}, docs[0].Rules...)
	set, problems := limit.Compile(docs...)
	if set == nil {
		t.Fatal(problems)
	}
	n.SetRules(set)
	ask := func(namespace string, i int) {
		req := set.Namespace(namespace).NewRequest()
		defer req.Release()
		req.Set("user", fmt.Sprint("u", i))
		if !n.Check(start, req).Allowed {
			t.Fatalf("%s: request of user %d denied", namespace, i)
		}
	}
	lives := func(namespace string, users int) (live int) {
		for i := range users {
			req := set.Namespace(namespace).NewRequest()
			req.Set("user", fmt.Sprint("u", i))
			if n.Inspect(start, req)[0].Live {
				live++
			}
			req.Release()
		}
		return live
	}
	for i := range quiet {
		ask("quiet", i)
		ask("still", i)
	}
	for i := range 5 * most {
		for range 2 { // as much of its limit as the others, and more
			ask("flooded", i)
		}
	}
	if got := lives("quiet", quiet) + lives("still", quiet); got < 2*quiet*99/100 {
		t.Errorf("%d of %d keys of other namespaces are live after the flood, want all but a few", got, 2*quiet)
	}
	if got := lives("flooded", 5*most); got < most-3*quiet {
		t.Errorf("%d keys of the flood are live: what others left of their part is not used", got)
	}
	for i := range n.shards { // the counts are those of the records
		s := &n.shards[i]
		counted := make([]uint32, 256)
		for j := range s.table {
			if r := &s.table[j]; r.key != 0 {
				counted[r.space()]++
			}
		}
		settled := 0
		for space, want := range counted {
			got := uint32(0)
			if space < len(s.spaces) {
				got = s.spaces[space]
			}
			if got != want {
				t.Fatalf("shard %d counts %d records of namespace %d, want %d", i, got, space, want)
			}
			if want > 0 {
				settled++
			}
		}
		if s.namespaces != settled {
			t.Fatalf("shard %d counts %d namespaces, want %d", i, s.namespaces, settled)
		}
	}
}
