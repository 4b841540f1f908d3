package httpapi

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/clocks"
)

// Resets are told by the clock that windows end by, and as the client's shows it, where the
// machine's was set back: with what is admitted as with what is denied.
func TestResetsOfAMachineThatWasSetBack(t *testing.T) {
	n, err := edge.Local(limit.RuleSpec{
		Name: "r", Key: []string{"user"}, OnLimit: limit.OnLimitSpec{Headers: []string{"github"}},
		Rates: []limit.RateSpec{{Limit: 2, Per: time.Minute, Algorithm: "fixed_window"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, m := newBench(t, acme()), clocks.Begin()
	began := time.Minute - time.Duration(m.True(0)%int64(time.Minute)) + 10*time.Second // into a minute
	ask := func(d time.Duration) reply {
		b.now = m.After(d)
		return send(t, "POST", b.listen(t)+"/v1/check", `{"attributes":{"user":"u"}}`, "X-Namespace", "local")
	}
	b.now = m.After(0)
	b.api = b.over(t, n)
	ask(began - 30*time.Second)
	m.Set = -25 * time.Second
	for range 3 {
		r := ask(began)
		var reset int64
		headers, _ := r.body["headers"].(map[string]any)
		_, _ = fmt.Sscan(fmt.Sprint(headers["X-RateLimit-Reset"]), &reset)
		if left := reset - m.After(began).Unix(); left < 50 || left > 52 {
			t.Errorf("10 s into a minute the reset is told %d s ahead, want 50: %v", left, r.body)
		}
	}
}
