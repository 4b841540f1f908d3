package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
)

// A setting that is read and not handed on is one that does nothing.
func TestSettingsReachTheAggregator(t *testing.T) {
	got := aggregatorConfig(&configs.AggregatorSettings{
		Region: "r", Name: "n", Peers: []string{"s", "t"}, Lanes: 3, Targets: "homes", MaxBytes: 64 << 20, Redis: configs.RedisSettings{URL: "redis://r"},
		Sync: configs.SyncSettings{Interval: time.Second, UrgentInterval: 2 * time.Millisecond, Timeout: 3 * time.Second},
	})
	want := regional.Config{
		Region: "r", Name: "n", Peers: []string{"s", "t"}, Lanes: 3, Targets: regional.TargetsHomes, MaxBytes: 64 << 20,
		Interval: time.Second, Urgent: 2 * time.Millisecond,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("aggregatorConfig = %+v, want %+v", got, want)
	}
}
