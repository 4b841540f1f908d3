package cli

import (
	"context"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// KindTenant is the kind of entries that say what a tenant has.
const KindTenant = "tenant"

// ApplyTenants has entries of tenants in force.
func ApplyTenants(tenants *limit.Tenants) ApplyEntries {
	return func(entries []natsentries.Entry) map[int]error {
		refused, places := map[int]error{}, make([]int, 0, len(entries))
		put, now := make([]limit.TenantEntry, 0, len(entries)), time.Now()
		for i := range entries {
			e := &entries[i]
			t := limit.TenantEntry{Namespace: e.Namespace, Tenant: e.Name, Until: e.Until, Deleted: e.Gone(now)} // what has ended takes nobody's place
			if !t.Deleted {
				if err := t.ReadBody(e.Body); err != nil {
					refused[i] = err
					continue
				}
			}
			put, places = append(put, t), append(places, i)
		}
		for i, err := range tenants.Put(put) {
			refused[places[i]] = err
		}
		return refused
	}
}

// sweepEvery is how often what tenants had, and has ended, is forgotten.
const sweepEvery = time.Minute

// SweepTenants forgets what has ended, until ctx ends.
func SweepTenants(ctx context.Context, tenants *limit.Tenants) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			tenants.Sweep(now)
		}
	}
}
