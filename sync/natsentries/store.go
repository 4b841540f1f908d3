package natsentries

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrNone: there is no such entry, or no such bucket.
	ErrNone = errors.New("there is none")
	// ErrConflict: somebody else has written since.
	ErrConflict = errors.New("there is another entry by now")
	// ErrFull: the bucket has MaxEntries.
	ErrFull = errors.New("the bucket is full")
	// ErrUnavailable: JetStream did not answer, or refused.
	ErrUnavailable = errors.New("the entries cannot be reached")
)

const (
	callTime    = 2 * time.Second
	notMessages = "KV-Operation" // a header of what is no value
	storeFailed = 10077          // an error of JetStream, for which there are many reasons
	maxPerBatch = 4096
	maxBytes    = 1 << 20 // of a batch
	maxAtOnce   = 2000    // that are written and not acknowledged; nats.go has at most 4000
)

// nameOf is what the bucket beside a bucket of rules is called.
func nameOf(bucket string) string { return bucket + "_entries" }

// Store reads and writes entries in a bucket. It is safe for concurrent use.
type Store struct {
	js     jetstream.JetStream
	stream jetstream.Stream // beneath
	bucket string
	api    string // begins the subjects of what is asked of it
	put    string // and of what is written
	now    func() time.Time
}

// Make makes the bucket beside a bucket of rules, or has it be as this version makes it; an operator may,
// and does so once. With origin, the domain that has the bucket that is written to, it is a mirror of
// that: a Put goes there.
func Make(ctx context.Context, js jetstream.JetStream, rules, origin string, replicas int) (*Store, error) {
	bucket := nameOf(rules)
	cfg := jetstream.StreamConfig{
		Name: "KV_" + bucket, Description: "what changes one by one beside the rules: tenants, exceptions, capacity",
		MaxMsgSize: maxValue, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowMsgTTL: true,
		DenyDelete: true, AllowRollup: true, AllowDirect: true, Replicas: replicas,
	}
	if origin == "" {
		cfg.Subjects, cfg.MaxMsgs = []string{"$KV." + bucket + ".>"}, MaxEntries
	} else {
		cfg.Mirror, cfg.MirrorDirect = &jetstream.StreamSource{Name: "KV_" + bucket, Domain: origin}, true
	}
	stream, err := js.CreateOrUpdateStream(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("entries: make bucket %s: %w: %w", bucket, ErrUnavailable, err)
	}
	return over(js, stream, bucket), nil
}

// Open opens the bucket beside a bucket of rules. Its error wraps ErrNone where there is none.
func Open(ctx context.Context, js jetstream.JetStream, rules string) (*Store, error) {
	bucket := nameOf(rules)
	stream, err := js.Stream(ctx, "KV_"+bucket)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("entries: bucket %s: %w; aggregator rules init makes it", bucket, ErrNone)
	case err != nil:
		return nil, fmt.Errorf("entries: bucket %s: %w: %w", bucket, ErrUnavailable, err)
	}
	return over(js, stream, bucket), nil
}

// over is a store in a stream. Who writes to a mirror does so where it is from (ADR-8).
func over(js jetstream.JetStream, stream jetstream.Stream, bucket string) *Store {
	s := &Store{js: js, stream: stream, bucket: bucket, api: jetstream.DefaultAPIPrefix, put: "$KV." + bucket + ".", now: time.Now}
	if domain := js.Options().Domain; domain != "" {
		s.api = "$JS." + domain + ".API."
	}
	switch mirror := stream.CachedInfo().Config.Mirror; {
	case mirror != nil && mirror.External != nil:
		s.put = mirror.External.APIPrefix + "." + s.put
	case s.api != jetstream.DefaultAPIPrefix:
		s.put = s.api + s.put
	}
	return s
}

// Get is the newest entry of a thing, which may say that it was taken away. Its error wraps ErrNone,
// ErrBad, with the Revision of what cannot be read, or ErrUnavailable.
func (s *Store) Get(ctx context.Context, kind, namespace, name string) (Entry, error) {
	e := Entry{Kind: kind, Namespace: namespace, Name: name}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	m, err := s.stream.GetLastMsgForSubject(ctx, "$KV."+s.bucket+"."+e.key())
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Entry{}, fmt.Errorf("entries: %s %.80q: %w", kind, name, ErrNone)
	case err != nil:
		return Entry{}, fmt.Errorf("entries: %s %.80q: %w: %w", kind, name, ErrUnavailable, err)
	case m.Header.Get(notMessages) != "":
		return Entry{Revision: m.Sequence}, fmt.Errorf("entries: %s %.80q: %w: the key was deleted", kind, name, ErrBad)
	}
	if e, err = unpack(e.key(), m.Data); err != nil {
		e, err = Entry{}, fmt.Errorf("entries: %s %.80q, revision %d: %w", kind, name, m.Sequence, err)
	}
	e.Revision = m.Sequence
	return e, err
}

// Put writes an entry over the one that its author has seen, which is none where it has no Revision: At
// and Revision are set. Errors wrap ErrConflict, ErrBad, ErrFull or ErrUnavailable; after the last one it
// may have been written.
func (s *Store) Put(ctx context.Context, e Entry, was Entry) (Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	m, options, err := s.message(&e, &was)
	if err != nil {
		return Entry{}, err
	}
	ack, err := s.js.PublishMsg(ctx, m, options...)
	if err != nil {
		return Entry{}, e.refused(err)
	}
	e.Revision = ack.Sequence
	return e, nil
}

// Change is an entry, and the one that is there, of which the Revision and At matter.
type Change struct{ Entry, Was Entry }

// PutAll puts many, side by side, and is as long as the slowest takes; errs has what became of each,
// and is nil where all are written. None is written where one is ErrBad.
func (s *Store) PutAll(ctx context.Context, changes []Change) (written []Entry, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, 10*callTime)
	defer cancel()
	written, errs = make([]Entry, len(changes)), make([]error, len(changes))
	messages, options := make([]*nats.Msg, len(changes)), make([][]jetstream.PublishOpt, len(changes))
	failed := false
	for i, c := range changes {
		written[i] = c.Entry
		messages[i], options[i], errs[i] = s.message(&written[i], &c.Was)
		failed = failed || errs[i] != nil
	}
	if failed {
		return nil, errs
	}
	for begin := 0; begin < len(changes); begin += maxAtOnce {
		end := min(begin+maxAtOnce, len(changes))
		futures := make([]jetstream.PubAckFuture, end)
		for i := begin; i < end; i++ {
			if futures[i], errs[i] = s.js.PublishMsgAsync(messages[i], options[i]...); errs[i] != nil {
				errs[i], failed = written[i].refused(errs[i]), true
			}
		}
		for i := begin; i < end; i++ {
			if futures[i] == nil {
				continue
			}
			select {
			case ack := <-futures[i].Ok():
				written[i].Revision = ack.Sequence
			case err := <-futures[i].Err():
				errs[i], failed = written[i].refused(err), true
			case <-ctx.Done():
				errs[i], failed = written[i].refused(ctx.Err()), true
			}
		}
	}
	if !failed {
		errs = nil
	}
	return written, errs
}

// message is what is published for an entry over another.
func (s *Store) message(e, was *Entry) (*nats.Msg, []jetstream.PublishOpt, error) {
	now := s.now()
	e.At = now.UTC().Truncate(time.Microsecond)
	if !e.At.After(was.At) {
		e.At = was.At.Add(time.Microsecond)
	}
	value, err := e.pack()
	if err != nil {
		return nil, nil, fmt.Errorf("entries: %s %.80q: %w", e.Kind, e.Name, err)
	}
	options := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(was.Revision)}
	switch {
	case e.Deleted:
		options = append(options, jetstream.WithMsgTTL(Keep))
	case !e.Until.IsZero():
		options = append(options, jetstream.WithMsgTTL((max(0, e.Until.Sub(now)) + Keep).Truncate(time.Second)))
	}
	return &nats.Msg{Subject: s.put + e.key(), Data: value}, options, nil
}

// refused is why an entry was not written.
func (e *Entry) refused(err error) error {
	var api *jetstream.APIError
	what := ErrUnavailable
	switch {
	case !errors.As(err, &api):
	case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return fmt.Errorf("entries: %s %.80q: %w", e.Kind, e.Name, ErrConflict)
	case api.ErrorCode == storeFailed && strings.Contains(api.Description, "maximum"):
		what = ErrFull
	}
	return fmt.Errorf("entries: %s %.80q: %w: %w", e.Kind, e.Name, what, err)
}

// List is the entries of a kind, and of a namespace unless that is empty, that were written after a
// revision, in the order in which they were, and at most n of them; more is the revision to go on with
// (0: there are no more). Those that cannot be read are left out, and unread says of each what is wrong.
// Its error wraps ErrUnavailable.
func (s *Store) List(ctx context.Context, kind, namespace string, after uint64, n int) (found []Entry, more uint64, unread []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*callTime)
	defer cancel()
	filter := kind + ".>"
	if namespace != "" {
		filter = key(kind, namespace, "") + ">"
	}
	in, err := s.reader(filter)
	if err != nil {
		return nil, 0, nil, err
	}
	defer in.close()
	for len(found) < n {
		messages, left, err := in.next(ctx, after+1, min(maxPerBatch, n-len(found)))
		if err != nil {
			return nil, 0, nil, err
		}
		for _, m := range messages {
			after = m.revision
			e, err := m.entry()
			if err != nil {
				unread = append(unread, err)
				continue
			}
			found = append(found, e)
		}
		if !left {
			return found, 0, unread, nil
		}
	}
	return found, after, unread, nil
}

// state is the revision that was written last, and when the bucket was made: one that is made anew
// begins with revision 1.
func (s *Store) state(ctx context.Context) (revision uint64, made time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	info, err := s.stream.Info(ctx)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("entries: %w: %w", ErrUnavailable, err)
	}
	return info.State.LastSeq, info.Created, nil
}
