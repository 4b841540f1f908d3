package deferred

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// duplicates is for how long a message that is told twice is known.
	duplicates = 2 * time.Minute
	// markerTTL is for how long it is known that a status was deleted.
	markerTTL = time.Minute
	// replay is the consumer of what waits.
	replay = "replay"
)

// waitingConfig is the work queue. Nothing of it expires by itself: what is not done is
// reported.
func (q *Queue) waitingConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: q.stream, Subjects: []string{q.subject("*")}, Description: "requests that wait for room in a limit",
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: q.cfg.Replicas,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: int64(q.cfg.PerTenant), MaxBytes: q.cfg.Bytes,
		MaxMsgs: -1, Duplicates: duplicates,
	}
}

func (q *Queue) deadConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: q.dead, Subjects: []string{q.grave("*")}, Description: "deferred requests that were given up",
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: q.cfg.Replicas,
		MaxMsgsPerSubject: 1, MaxAge: q.cfg.Kept, MaxBytes: q.cfg.Bytes, AllowDirect: true, Duplicates: duplicates,
	}
}

// statusConfig is the bucket, as of jetstream.KeyValueConfig, but that it allows no rollups:
// by one of those who may write a status all others would be gone.
func (q *Queue) statusConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "KV_" + q.bucket, Subjects: []string{"$KV." + q.bucket + ".>"}, Description: "what became of deferred requests",
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: q.cfg.Replicas,
		Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, MaxAge: q.cfg.Longest + q.cfg.Kept, MaxBytes: q.cfg.Bytes, AllowDirect: true,
		DenyDelete: true, Duplicates: min(duplicates, q.cfg.Longest+q.cfg.Kept), AllowMsgTTL: true,
	}
}

func (q *Queue) replayConfig() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: replay, AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.cfg.Lease,
		MaxDeliver: -1, MaxAckPending: -1, // what is put off counts as pending; tries are counted with the request
	}
}
