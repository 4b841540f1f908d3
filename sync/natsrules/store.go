package natsrules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	kv     jetstream.KeyValue
	stream jetstream.Stream // beneath
	now    func() time.Time
}

// Make makes the bucket, or has it be as this version makes it; an operator may, and does so once.
// With origin, the domain that has the bucket that is written to, it is a mirror of that: a Put goes
// there.
func Make(ctx context.Context, js jetstream.JetStream, bucket, origin string, replicas int) (*Store, error) {
	cfg := jetstream.KeyValueConfig{Bucket: bucket, Description: "rules, a document a namespace", History: history, MaxValueSize: maxValue, Replicas: replicas}
	if origin != "" {
		cfg.Mirror = &jetstream.StreamSource{Name: bucket, Domain: origin}
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("rules: make bucket %s: %w: %w", bucket, ErrUnavailable, err)
	}
	return over(ctx, js, kv)
}

// over is a store in a bucket.
func over(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) (*Store, error) {
	stream, err := js.Stream(ctx, streamPrefix+kv.Bucket())
	if err != nil {
		return nil, fmt.Errorf("rules: bucket %s: %w: %w", kv.Bucket(), ErrUnavailable, err)
	}
	return &Store{kv: kv, stream: stream, now: time.Now}, nil
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
	return over(ctx, js, kv)
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
	if v, err = read(e.Key(), e.Revision(), e.Value()); err != nil {
		v = Version{}
	}
	return v, e.Revision(), err
}

// read is the version that a key has.
func read(of string, revision uint64, value []byte) (Version, error) {
	v, err := unpack(value)
	if err == nil && key(v.Namespace) != of {
		err = fmt.Errorf("%w: it is of namespace %s", ErrBad, v.Namespace)
	}
	if err != nil {
		return Version{}, fmt.Errorf("rules: key %s, revision %d: %w", of, revision, err)
	}
	return v, nil
}

// Put makes a version the newest of its namespace: Number and At are set. was is the number of
// the one that its author has seen; 0: none, or that the namespace was taken away. Errors wrap
// ErrConflict, ErrBad, ErrTooLarge or ErrUnavailable; after the last one it may have been written.
func (s *Store) Put(ctx context.Context, v Version, was uint64) (Version, error) {
	last, revision, err := s.get(ctx, v.Namespace)
	if errors.Is(err, ErrBad) { // what cannot be read is written over
		last, err = s.readable(ctx, v.Namespace)
	}
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

// What a bucket is beneath (nats-architecture-and-design, ADR-8).
const (
	streamPrefix  = "KV_"
	subjectPrefix = "$KV."
	operation     = "KV-Operation" // a header of what is no value
)

// keyOf is the key that a message is of.
func keyOf(subject string) string {
	_, of, _ := strings.Cut(strings.TrimPrefix(subject, subjectPrefix), ".")
	return of
}

// state is the revision that was written last, and when the bucket was made: one that is made anew
// begins with revision 1.
func (s *Store) state(ctx context.Context) (revision uint64, made time.Time, err error) {
	info, err := s.stream.Info(ctx)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("rules: %w: %w", ErrUnavailable, err)
	}
	return info.State.LastSeq, info.Created, nil
}

// contents is state, and the subjects of all keys.
func (s *Store) contents(ctx context.Context) (revision uint64, made time.Time, subjects []string, err error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(subjectPrefix+s.kv.Bucket()+".>"))
	if err != nil {
		return 0, time.Time{}, nil, fmt.Errorf("rules: %w: %w", ErrUnavailable, err)
	}
	return info.State.LastSeq, info.Created, slices.Sorted(maps.Keys(info.State.Subjects)), nil
}

// last is the newest message of a key, and nil where there is none.
func (s *Store) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return s.message(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.stream.GetLastMsgForSubject(ctx, subject)
	})
}

// next is the first message from a revision on, of a key (">": of any), and nil where there is none.
func (s *Store) next(ctx context.Context, key string, revision uint64) (*jetstream.RawStreamMsg, error) {
	return s.message(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.stream.GetMsg(ctx, revision, jetstream.WithGetMsgSubject(subjectPrefix+s.kv.Bucket()+"."+key))
	})
}

func (s *Store) message(ctx context.Context, get func(context.Context) (*jetstream.RawStreamMsg, error)) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	m, err := get(ctx)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("rules: %w: %w", ErrUnavailable, err)
	}
	return m, nil
}

// History is the versions of a namespace that are kept, the oldest first. Those that cannot be
// read are left out. Errors wrap ErrNone or ErrUnavailable.
func (s *Store) History(ctx context.Context, namespace string) ([]Version, error) {
	_, newest, err := s.get(ctx, namespace)
	if err != nil && !errors.Is(err, ErrBad) {
		return nil, err
	}
	var out []Version
	for revision := uint64(0); revision < newest; { // by direct gets: its rights are those of who only reads
		m, err := s.next(ctx, key(namespace), revision+1)
		switch {
		case err != nil:
			return nil, err
		case m == nil:
			return out, nil
		}
		if v, err := read(keyOf(m.Subject), m.Sequence, m.Data); err == nil {
			out = append(out, v)
		}
		revision = m.Sequence
	}
	return out, nil
}

// All is the newest version of each namespace, in order of their names; those that were taken away
// are among them. Of a namespace whose newest one cannot be read it is the last that can, and unread
// says what is wrong. Its error wraps ErrUnavailable.
func (s *Store) All(ctx context.Context) (all []Version, unread []error, err error) {
	_, _, subjects, err := s.contents(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, subject := range subjects {
		m, err := s.last(ctx, subject)
		switch {
		case err != nil:
			return nil, nil, err
		case m == nil || m.Header.Get(operation) != "": // a namespace is not taken away so
			continue
		}
		v, err := read(keyOf(subject), m.Sequence, m.Data)
		if err != nil {
			unread = append(unread, err)
			namespace := strings.ReplaceAll(strings.TrimPrefix(keyOf(subject), keyPrefix), "=2e", ".")
			if key(namespace) != keyOf(subject) {
				continue
			}
			if v, err = s.readable(ctx, namespace); err != nil {
				return nil, nil, err
			}
		}
		if v.Number > 0 {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b Version) int { return strings.Compare(a.Namespace, b.Namespace) })
	return all, unread, nil
}

// readable is the last version of a namespace that can be read; Number 0: there is none.
func (s *Store) readable(ctx context.Context, namespace string) (Version, error) {
	all, err := s.History(ctx, namespace)
	if err != nil || len(all) == 0 {
		return Version{Namespace: namespace}, err
	}
	return all[len(all)-1], nil
}
