package edge

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// An edge that stops sends what is left however small its budget of bytes: what
// would wait for that is lost.
func TestRunEndsBeyondItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 5000 // some 100 kB
		n := newNode(t, Config{Budget: 2000}, perUser(limit.RateSpec{Limit: 1000, Per: time.Hour}))
		var users []string
		for i := range keys {
			users = append(users, fmt.Sprint("u", i))
		}
		r, err := stopRunning(t, n, ok, users...)
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		if len(r.taken) != keys {
			t.Errorf("the region has counts of %d keys, want all %d", len(r.taken), keys)
		}
	})
}

// Why an edge stops with counts unsent is named as it is.
func TestRunSaysWhyCountsAreUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // nobody serves
		n, bus := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour})), membus.New()
		defer bus.Close()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		check(n, time.Now(), "u")
		if err := n.Run(ctx, bus); err == nil || !strings.Contains(err.Error(), "1 keys unsent: nobody of eu answered") {
			t.Errorf("Run = %v, want that nobody answered", err)
		}
	})
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	for _, c := range []struct {
		status  deltasync.Status
		mistake deltasync.Mistake
		want    string
	}{
		{deltasync.StatusOK, 0, "more than it took within 2s"},
		{deltasync.StatusStoreDown, 0, "answered store_down"},
		{deltasync.StatusForbidden, deltasync.MistakeLanes, "other lanes"},
	} {
		n.stats.replied(start.UnixNano(), c.status)
		n.lanes[0].mistake = c.mistake
		if got := n.whyUnsent(start.UnixNano()); !strings.Contains(got, c.want) {
			t.Errorf("%s, %q: %q, want %q", c.status, c.mistake, got, c.want)
		}
	}
}
