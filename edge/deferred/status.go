package deferred

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// State is what became of a request.
type State string

// The states of a request.
const (
	Queued    State = "queued"    // it waits for room
	Running   State = "running"   // it was sent, and what came of it is not known yet
	Done      State = "done"      // the upstream answered
	Dead      State = "dead"      // it was given up
	Unclaimed State = "unclaimed" // its client was not told that it waits: it is about to be dead
)

// Status is a request's state, and what led to it.
type Status struct {
	State State `json:"state"`
	// Tries is how often it was sent to the upstream.
	Tries int `json:"tries"`
	// Status is the upstream's last answer; 0: there was none.
	Status int `json:"status,omitempty"`
	// Reason is why it is dead, or why the last try failed; or why the answer by which it is
	// done was cut after its status.
	Reason   string    `json:"reason,omitempty"`
	Accepted time.Time `json:"accepted"`
	Expires  time.Time `json:"expires"`
	// Updated is when this was written; while it is running, again and again.
	Updated time.Time `json:"updated"`

	revision uint64
	life     time.Duration // for how long it is kept; 0: as long as the bucket keeps all
}

// over says that nothing more happens.
func (s *Status) over() bool { return s.State == Done || s.State == Dead }

const (
	// statusBytes is what a status takes, whatever it says, with the revision that it
	// replaces, and the time for which it is kept: so the bucket takes what became of a request though it has no room for
	// another, as NATS does not refuse what is no larger than what it replaces.
	statusBytes = 512
	// lookEvery is how often it is looked how full the bucket is.
	lookEvery = time.Second
)

// encoded is a status as it is kept. A reason that is too long is cut.
func (s *Status) encoded() []byte {
	text, most := *s, statusBytes-len(strconv.FormatUint(s.revision, 10))
	if s.life > 0 {
		most -= len(jetstream.MsgTTLHeader+": \r\n") + len(s.life.String())
	}
	for {
		b, err := json.Marshal(&text)
		if err != nil {
			panic(err) // it is made of strings, numbers and times of this century
		}
		if over := len(b) - most; over > 0 && text.Reason != "" {
			text.Reason = text.Reason[:max(0, len(text.Reason)-max(over/6, 1))] // a byte takes 6 at the most
			continue
		}
		return append(b, bytes.Repeat([]byte{' '}, max(0, most-len(b)))...)
	}
}

// notes is nil where the bucket has room for another status: an eighth of it is left to
// those that it has.
func (q *Queue) notes(ctx context.Context) error {
	if err := q.look(ctx); err != nil {
		return err
	}
	if noted, bound := q.noted.Load(), q.bound.Load(); bound > 0 && noted > bound/8*7 {
		return fmt.Errorf("deferred: %w: what became of others takes %d bytes of %d", ErrFull, noted, bound)
	}
	return nil
}

// Status is what became of a request.
func (q *Queue) Status(ctx context.Context, id string) (Status, error) {
	if !validID(id) {
		return Status{}, fmt.Errorf("deferred: %q: %w", id, ErrUnknown)
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	entry, err := q.statuses.Get(ctx, id)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return Status{}, fmt.Errorf("deferred: %s: %w", id, ErrUnknown)
	case err != nil:
		return Status{}, q.unavailable("look for "+id, err)
	}
	s := Status{revision: entry.Revision()}
	if err := json.Unmarshal(entry.Value(), &s); err != nil {
		return Status{}, fmt.Errorf("deferred: status of %s: %w", id, err)
	}
	s.Tries = max(0, s.Tries) // whoever may write one wrote it
	return s, nil
}

// note writes a status over the one that was read. It fails where somebody else did.
func (q *Queue) note(ctx context.Context, id string, s *Status) error {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	s.Updated = q.cfg.Now()
	// As the bucket's Update, which takes no time to live.
	m := nats.NewMsg(q.noteOf(id))
	m.Data = s.encoded()
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(s.revision)}
	if s.life > 0 {
		opts = append(opts, jetstream.WithMsgTTL(s.life))
	}
	ack, err := q.js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return q.unavailable("note "+id, err)
	}
	s.revision = ack.Sequence
	return nil
}

// unnote leaves a mark in a status's place, as the bucket's Delete, which takes no time to live.
func (q *Queue) unnote(ctx context.Context, id string) error {
	m := nats.NewMsg(q.noteOf(id))
	m.Header.Set("KV-Operation", "DEL")
	var opts []jetstream.PublishOpt
	if q.markers.Load() {
		opts = append(opts, jetstream.WithMsgTTL(markerTTL))
	}
	_, err := q.js.PublishMsg(ctx, m, opts...)
	return err
}

// noteOf is where a status is written to: in another domain, through its API.
func (q *Queue) noteOf(id string) string {
	subject := "$KV." + q.bucket + "." + id
	if domain := q.js.Options().Domain; domain != "" {
		subject = "$JS." + domain + ".API." + subject
	}
	return subject
}
