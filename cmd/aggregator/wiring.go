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
		Region: s.Region, Name: s.Name, Peers: s.Peers, Lanes: s.Lanes, MaxKeys: s.MaxKeys,
		Interval: s.Sync.Interval, Urgent: s.Sync.UrgentInterval,
	}
}
