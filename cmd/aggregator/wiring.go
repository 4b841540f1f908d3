package main

import (
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
)

// aggregatorConfig is what the settings say of the aggregator; what it runs on
// is serve's. (sync.timeout is of edges: regions are further away, and wait
// longer.)
func aggregatorConfig(s *configs.AggregatorSettings) regional.Config {
	return regional.Config{
		Region: s.Region, Name: s.Name, Peers: s.Peers, Lanes: s.Lanes, Targets: regional.Targets(s.Targets), MaxBytes: ownBytes(s),
		Interval: s.Sync.Interval, Urgent: s.Sync.UrgentInterval, Budget: s.Sync.Budget,
	}
}

// ownBytes is what the aggregator itself may take. Without a Redis the other half
// is its store's.
func ownBytes(s *configs.AggregatorSettings) int64 {
	if s.Redis.Set() {
		return s.MaxBytes
	}
	return s.MaxBytes / 2
}
