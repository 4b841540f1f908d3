package deferred

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// duplicates is for how long a message that is told twice is known.
	duplicates = 2 * time.Minute
	// markerTTL is for how long it is known that a status was deleted.
	markerTTL = time.Minute
)

// settings are those of the queue, and not of an edge: all edges of the region share it.
type settings struct {
	PerKey   int   `json:"per_key"`
	MaxBytes int64 `json:"max_bytes"`
	Replicas int   `json:"replicas"`
}

// adopt is the settings of a queue that was made, and tells where they are not the edge's:
// else edges that differ would overwrite each other's whenever one starts.
func (q *Queue) adopt(made *jetstream.StreamConfig) settings {
	own, theirs := q.own(), settings{int(made.MaxMsgsPerSubject), made.MaxBytes, made.Replicas}
	if own != theirs {
		q.log.Warn("the queue of deferred requests was made with other settings than this edge's: they stand",
			"region", q.cfg.Region, "per_key", theirs.PerKey, "max_bytes", theirs.MaxBytes, "replicas", theirs.Replicas,
			"own_per_key", own.PerKey, "own_max_bytes", own.MaxBytes, "own_replicas", own.Replicas,
			"hint", "give all edges of the region the same proxy.defer, and have one apply it: POST /admin/v1/deferred/settings")
	}
	return theirs
}

func (q *Queue) own() settings { return settings{q.cfg.PerTenant, q.cfg.Bytes, q.cfg.Replicas} }

// Apply gives the queue this edge's settings, for all edges of the region. What waits stays.
func (q *Queue) Apply(ctx context.Context) error {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	own := q.own()
	for _, stream := range []jetstream.StreamConfig{q.waitingConfig(own), q.deadConfig(own)} {
		if _, err := q.js.UpdateStream(ctx, stream); err != nil {
			return unavailable("change stream "+stream.Name, err)
		}
	}
	if _, err := q.js.UpdateKeyValue(ctx, q.statusConfig(own, q.markers)); err != nil {
		return unavailable("change bucket "+q.bucket, err)
	}
	q.log.Info("the queue of deferred requests has this edge's settings", "region", q.cfg.Region, "per_key", own.PerKey, "max_bytes", own.MaxBytes, "replicas", own.Replicas)
	return nil
}

// make makes what the queue is made of. Of two edges that do at once, with different
// settings, one fails, as it creates the first, and finds the other's the next time.
func (q *Queue) make(ctx context.Context, s settings, first func(context.Context, jetstream.StreamConfig) (jetstream.Stream, error)) (err error) {
	if q.waiting, err = first(ctx, q.waitingConfig(s)); err != nil {
		return unavailable("make stream "+q.stream, err)
	}
	if _, err = q.js.CreateOrUpdateStream(ctx, q.deadConfig(s)); err != nil {
		return unavailable("make stream "+q.dead, err)
	}
	q.statuses, err = q.js.CreateOrUpdateKeyValue(ctx, q.statusConfig(s, true))
	if q.markers = err == nil; errors.Is(err, jetstream.ErrLimitMarkerTTLNotSupported) {
		q.statuses, err = q.js.CreateOrUpdateKeyValue(ctx, q.statusConfig(s, false))
	}
	if err != nil {
		return unavailable("make bucket "+q.bucket, err)
	}
	if !q.markers {
		q.log.Warn("JetStream is older than 2.11: what became of deferred requests is kept for days, and where that takes up its room no more wait", "days", int((q.cfg.Longest+q.cfg.Kept).Hours()/24))
	}
	return nil
}

// waitingConfig is the work queue. Nothing of it expires by itself: what is not done is
// reported.
func (q *Queue) waitingConfig(s settings) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: q.stream, Subjects: []string{q.subject("*")}, Description: "requests that wait for room in a limit",
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: s.Replicas,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: int64(s.PerKey), MaxBytes: s.MaxBytes,
		MaxMsgs: -1, Duplicates: duplicates,
	}
}

func (q *Queue) deadConfig(s settings) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: q.dead, Subjects: []string{q.grave("*")}, Description: "deferred requests that were given up",
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: s.Replicas,
		MaxMsgsPerSubject: 1, MaxAge: q.cfg.Kept, MaxBytes: s.MaxBytes, AllowDirect: true, Duplicates: duplicates,
	}
}

func (q *Queue) statusConfig(s settings, markers bool) jetstream.KeyValueConfig {
	c := jetstream.KeyValueConfig{
		Bucket: q.bucket, Description: "what became of deferred requests", TTL: q.cfg.Longest + q.cfg.Kept,
		Storage: jetstream.FileStorage, Replicas: s.Replicas, History: 1, MaxBytes: s.MaxBytes,
	}
	if markers {
		c.LimitMarkerTTL = markerTTL
	}
	return c
}
