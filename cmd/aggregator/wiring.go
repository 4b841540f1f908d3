package main

import (
	"fmt"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
)

// aggregatorConfig is what the settings say of the aggregator; what it runs on
// is serve's.
func aggregatorConfig(s *configs.AggregatorSettings) regional.Config {
	return regional.Config{
		Region: s.Region, Name: s.Name, Peers: s.Peers, Lanes: s.Lanes, Targets: regional.Targets(s.Targets), MaxBytes: ownBytes(s),
		Interval: s.Sync.Interval, Urgent: s.Sync.UrgentInterval, Timeout: s.Sync.Timeout, Budget: s.Sync.Budget,
	}
}

// checkRoom refuses a max_bytes that is too little for so many lanes and peers.
func checkRoom(s *configs.AggregatorSettings) error {
	least := regional.LeastBytes(s.Lanes, len(s.Peers))
	if !s.Redis.Set() {
		least *= 2
	}
	if s.MaxBytes < least {
		return fmt.Errorf("max_bytes: %d MiB is too little for %d lanes and %d peers: set %d MiB or more, or fewer lanes on every edge and aggregator",
			s.MaxBytes>>20, s.Lanes, len(s.Peers), (least+1<<20-1)>>20)
	}
	return nil
}

// ownBytes is what the aggregator itself may take. Without a Redis the other half
// is its store's.
func ownBytes(s *configs.AggregatorSettings) int64 {
	if s.Redis.Set() {
		return s.MaxBytes
	}
	return s.MaxBytes / 2
}
