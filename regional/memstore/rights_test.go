package memstore_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/regional/storetest"
)

func TestRights(t *testing.T) {
	storetest.Rights(t, func(*testing.T) storetest.RightsSubject {
		c := newClock()
		r := memstore.NewRights(c.now(), c.now)
		return storetest.RightsSubject{Log: r, Wipe: r.Wipe, Advance: func(d time.Duration) {
			c.advance(d)
			runtime.Gosched()
		}}
	})
}

// Where no log was before, there is nothing that it could have forgotten.
func TestFirstRights(t *testing.T) {
	origin, err := memstore.NewRights(time.Time{}, nil).Take(t.Context(), 0, 1, nil)
	if err != nil || origin.Age < 100*365*24*time.Hour {
		t.Errorf("Take = %+v, %v, want longer ago than anything", origin, err)
	}
}
