package natsrules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Bucket is what the bucket of rules is called, unless somebody calls it otherwise.
const Bucket = "rules"

// history is how many versions of a namespace a bucket has: as many as one may.
const history = 64

var (
	// ErrNone: there is no such namespace, or no such bucket.
	ErrNone = errors.New("there is none")
	// ErrConflict: somebody else has made a version since.
	ErrConflict = errors.New("there is another version by now")
	// ErrUnavailable: JetStream did not answer, or refused.
	ErrUnavailable = errors.New("the rules cannot be reached")
)

// Store reads and writes versions in a bucket. It is safe for concurrent use.
type Store struct {
	kv  jetstream.KeyValue
	now func() time.Time
}

// Make makes the bucket, or has it be as this version makes it; an operator may, and does so once.
// With origin, the domain that has the bucket that is written to, it is a mirror of that, which
// nobody writes to.
func Make(ctx context.Context, js jetstream.JetStream, bucket, origin string, replicas int) (*Store, error) {
	cfg := jetstream.KeyValueConfig{Bucket: bucket, Description: "rules, a document a namespace", History: history, MaxValueSize: maxValue, Replicas: replicas}
	if origin != "" {
		cfg.Mirror = &jetstream.StreamSource{Name: bucket, Domain: origin}
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("rules: make bucket %s: %w: %w", bucket, ErrUnavailable, err)
	}
	return &Store{kv: kv, now: time.Now}, nil
}

// Open opens a bucket that is there. Its error wraps ErrNone where it is not.
func Open(ctx context.Context, js jetstream.JetStream, bucket string) (*Store, error) {
	kv, err := js.KeyValue(ctx, bucket)
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return nil, fmt.Errorf("rules: bucket %s: %w", bucket, ErrNone)
	case err != nil:
		return nil, fmt.Errorf("rules: bucket %s: %w: %w", bucket, ErrUnavailable, err)
	}
	return &Store{kv: kv, now: time.Now}, nil
}

// Get is the newest version of a namespace, which may say that it was taken away. Errors wrap
// ErrNone, ErrBad or ErrUnavailable.
func (s *Store) Get(ctx context.Context, namespace string) (Version, error) {
	v, _, err := s.get(ctx, namespace)
	return v, err
}

func (s *Store) get(ctx context.Context, namespace string) (v Version, revision uint64, err error) {
	if !namespaceForm.MatchString(namespace) {
		return Version{}, 0, fmt.Errorf("rules: %.80q is no namespace: %w", namespace, ErrNone)
	}
	e, err := s.kv.Get(ctx, key(namespace))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return Version{}, 0, fmt.Errorf("rules: namespace %s: %w", namespace, ErrNone)
	case err != nil:
		return Version{}, 0, fmt.Errorf("rules: namespace %s: %w: %w", namespace, ErrUnavailable, err)
	}
	v, err = read(e)
	return v, e.Revision(), err
}

// read is the version of an entry.
func read(e jetstream.KeyValueEntry) (Version, error) {
	v, err := unpack(e.Value())
	if err == nil && key(v.Namespace) != e.Key() {
		err = fmt.Errorf("%w: it is of namespace %s", ErrBad, v.Namespace)
	}
	if err != nil {
		return Version{}, fmt.Errorf("rules: key %s, revision %d: %w", e.Key(), e.Revision(), err)
	}
	return v, nil
}

// Put makes a version the newest of its namespace: Number and At are set. was is the number of
// the one that its author has seen; 0: none, or that the namespace was taken away. Errors wrap
// ErrConflict, ErrBad, ErrTooLarge or ErrUnavailable; after the last one it may have been written.
func (s *Store) Put(ctx context.Context, v Version, was uint64) (Version, error) {
	last, revision, err := s.get(ctx, v.Namespace)
	if err != nil && (!errors.Is(err, ErrNone) || !namespaceForm.MatchString(v.Namespace)) {
		if errors.Is(err, ErrNone) {
			err = (&Version{Namespace: v.Namespace}).check()
		}
		return Version{}, err
	}
	if was != last.Number && !(was == 0 && last.Deleted) {
		return Version{}, fmt.Errorf("rules: namespace %s: %w: %d, not %d", v.Namespace, ErrConflict, last.Number, was)
	}
	v.Number = last.Number + 1
	v.At = s.now().UTC().Truncate(time.Microsecond)
	if !v.At.After(last.At) {
		v.At = last.At.Add(time.Microsecond)
	}
	value, err := v.pack()
	if err != nil {
		return Version{}, fmt.Errorf("rules: namespace %s: %w", v.Namespace, err)
	}
	switch _, err = s.kv.Update(ctx, key(v.Namespace), value, revision); {
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return Version{}, fmt.Errorf("rules: namespace %s: %w", v.Namespace, ErrConflict)
	case err != nil:
		return Version{}, fmt.Errorf("rules: namespace %s: %w: %w", v.Namespace, ErrUnavailable, err)
	}
	return v, nil
}

// state is the revision that was written last, and when the bucket was made: one that is made anew
// begins with revision 1.
func (s *Store) state(ctx context.Context) (revision uint64, made time.Time, err error) {
	status, err := s.kv.Status(ctx)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("rules: %w: %w", ErrUnavailable, err)
	}
	bucket, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok {
		return 0, time.Time{}, fmt.Errorf("rules: %w: its status is a %T", ErrUnavailable, status)
	}
	return bucket.StreamInfo().State.LastSeq, bucket.StreamInfo().Created, nil
}

// History is the versions of a namespace that are kept, the oldest first. Those that cannot be
// read are left out. Errors wrap ErrNone or ErrUnavailable.
func (s *Store) History(ctx context.Context, namespace string) ([]Version, error) {
	if _, _, err := s.get(ctx, namespace); err != nil && !errors.Is(err, ErrBad) {
		return nil, err
	}
	entries, err := s.kv.History(ctx, key(namespace))
	if err != nil {
		return nil, fmt.Errorf("rules: history of namespace %s: %w: %w", namespace, ErrUnavailable, err)
	}
	var out []Version
	for _, e := range entries {
		if v, err := read(e); err == nil {
			out = append(out, v)
		}
	}
	return out, nil
}
