package main

import (
	"reflect"
	"strings"
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
		Interval: time.Second, Urgent: 2 * time.Millisecond, Timeout: 3 * time.Second,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("aggregatorConfig = %+v, want %+v", got, want)
	}
}

// What is refused is the figure that was set, though without Redis half of it is
// the aggregator's.
func TestLittleRoomIsRefused(t *testing.T) {
	s := configs.AggregatorSettings{Lanes: 64, Peers: make([]string, 20), MaxBytes: 150 << 20}
	err := checkRoom(&s)
	if want := "max_bytes: 150 MiB is too little for 64 lanes and 20 peers: set 160 MiB or more"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	for name, enough := range map[string]configs.AggregatorSettings{
		"more":  {Lanes: 64, Peers: s.Peers, MaxBytes: 160 << 20},
		"Redis": {Lanes: 64, Peers: s.Peers, MaxBytes: 80 << 20, Redis: configs.RedisSettings{URL: "redis://r"}},
	} {
		if err := checkRoom(&enough); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
