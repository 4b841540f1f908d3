package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
	"github.com/spillgate/spillgate/test/alone"
	"github.com/spillgate/spillgate/test/proc"
)

// A client of a data plane that invents names, which reports all of them in one message as
// Envoy does and lets all pass without an assignment, turns off nobody's limit.
func TestInventedNamesTurnOffNoQuota(t *testing.T) {
	alone.Quiet(t)
	// An edge that is too slow to read such reports in time takes a data plane to be idle.
	const most = 100
	node, err := edge.Local(limit.RuleSpec{Name: "user", Match: limit.MatchSpec{Has: []string{"user"}}, Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: most, Per: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	addr := servingOver(t, node)
	plane := dataplane.New(dataplane.Settings{Domain: edge.LocalNamespace, Interval: time.Second / 2, ByTimer: true, ExpiredFor: time.Hour})
	var running sync.WaitGroup
	var ended atomic.Value
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() { // stop ends it; it is waited for below
		plane.Run(ctx, quotav3.NewRateLimitQuotaServiceClient(dialled(t, addr)), func(err error) { ended.CompareAndSwap(nil, err) })
	})
	defer running.Wait()
	defer stop()
	honest, admitted := map[string]string{"user": "honest"}, 0
	ask := func() (passed bool) {
		if passed = plane.Allow(time.Now(), honest); passed {
			admitted++
		}
		return passed
	}
	until := func(what string, holds func() bool) {
		t.Helper()
		proc.Until(t, 30*time.Second, func() error {
			if err := ended.Load(); err != nil {
				t.Fatalf("the stream ended: %v", err)
			}
			if !holds() {
				return fmt.Errorf("it is not so that %s", what)
			}
			return nil
		})
	}
	until("the honest user is assigned something", func() bool { ask(); return plane.Strategy(time.Now(), honest) != nil })
	const names = 24_000 // a message of all of them would have 6 MB
	for i := range names {
		if i%100 == 0 { // who asks for nothing for a while has no place kept, as others
			ask()
		}
		plane.Allow(time.Now(), map[string]string{"user": fmt.Sprint(i, strings.Repeat("x", 220))})
		if i%4000 == 0 {
			until("those that have no place are forgotten", func() bool { ask(); return plane.Buckets() < 12_000 })
		}
	}
	until("those that have no place are forgotten at last", func() bool { ask(); return plane.Buckets() < 12_000 })
	until("the honest user has used up his limit", func() bool {
		for range 5 {
			ask()
		}
		s := plane.Strategy(time.Now(), honest)
		return admitted >= most/2 && s.GetTokenBucket() == nil && s.GetBlanketRule() == typev3.RateLimitStrategy_DENY_ALL
	})
	for range 1000 {
		ask()
	}
	if admitted > most+20 { // before the first assignment all pass, and are charged
		t.Errorf("%d of the honest user were admitted, of %d", admitted, most)
	}
}

// Calls other than reports of quotas have to be as small as before.
func TestLargeCalls(t *testing.T) {
	conn := dialled(t, serving(t))
	_, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
		Domain: edge.LocalNamespace, Descriptors: []*rlv3.RateLimitDescriptor{{Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "user", Value: strings.Repeat("x", grpcMaxBytes)}}}},
	})
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "are too many") {
		t.Errorf("a call of more than %d bytes: %v", grpcMaxBytes, err)
	}
}
