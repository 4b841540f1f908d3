package rlqs

import (
	"testing"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
)

// A limit that the edge is cut off from, and that is closed then, admits nothing, as one
// that is used up; which of the two it was the metric tells.
func TestCutOff(t *testing.T) {
	rule := perUser(fixed(100, time.Minute))
	w := newWorld(t, Config{}, rule)
	rule.OnPartition = "closed"
	w.node = limitertest.Node(t, limit.Document{Namespace: edge.LocalNamespace, Rules: []limit.RuleSpec{rule}})
	w.node.Flush(start.Add(-2 * time.Second)) // it asks its region, and is never answered
	w.book.limiter = w.node
	p := w.join("a", 50, dataplane.Settings{NoAssignment: denyAll})
	w.run(10*time.Second, nil)
	if s := p.Strategy(w.now, user); p.admitted != 0 || s.GetBlanketRule() != typev3.RateLimitStrategy_DENY_ALL {
		t.Errorf("%d admitted, told %v", p.admitted, s)
	}
	told := w.book.metrics.assignments
	if cut, deny := testutil.ToFloat64(told[kindCutOff]), testutil.ToFloat64(told[kindDeny]); cut < 2 || cut > 10 || deny != 0 {
		t.Errorf("told cut_off %v times and deny %v times, want it renewed, and told apart", cut, deny)
	}
}
