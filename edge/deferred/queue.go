package deferred

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrFull: as many requests of this tenant's, or of all, wait as may.
	ErrFull = errors.New("the queue of deferred requests is full")
	// ErrTooLarge: the request is larger than what is kept.
	ErrTooLarge = errors.New("the request is too large to be deferred")
	// ErrUnknown: there is no such request, or it is long over.
	ErrUnknown = errors.New("no such deferred request")
	// ErrDeadAgain: a dead request was revived, and given up again.
	ErrDeadAgain = errors.New("it was given up again")
	// ErrUnavailable: JetStream did not answer, or refused.
	ErrUnavailable = errors.New("deferred requests cannot be kept now")
)

// Config says where deferred requests wait, and how many.
type Config struct {
	// Region is whose queue it is: letters, digits, "-" and "_".
	Region string
	// Upstream is what requests are sent to. Those that were kept for another, by edges of
	// another site of the region, are left to these. "": any will do.
	Upstream string
	// PerTenant is how many requests of a tenant wait at once; 0: DefaultPerTenant. Bytes
	// is what all that wait may take on disk, and as much again what became of them, and
	// the dead; 0: DefaultBytes.
	PerTenant int
	Bytes     int64
	// Secret is what nobody knows but the region's edges, the same at all of them: by it a request
	// that comes again under its client's key has the id that it had, and nobody guesses that.
	// Nil: one of this Queue's own, so that no other knows the request.
	Secret []byte
	// Replicas is on how many servers it is kept; 0: 1.
	Replicas int
	// Tries is how often a request is sent to an upstream that fails; 0: DefaultTries.
	Tries int
	// Longest is how long a request may wait at the most; 0: DefaultLongest. Kept is for
	// how long one can ask what became of it, where there is room for so many answers; 0:
	// DefaultKept.
	Longest, Kept time.Duration
	// Timeout bounds a call to JetStream; 0: DefaultTimeout.
	Timeout time.Duration
	// Lease is how long nobody else takes a request that a worker has, which renews it
	// as long as it lives; 0: DefaultLease.
	Lease time.Duration
	// Drain is how long what is at the upstream has to end when its worker is to; 0:
	// DefaultDrain.
	Drain time.Duration
	// Command is what an operator runs to have the queue made, or changed, as this says; it is told
	// where that is to be done. "": DefaultCommand.
	Command string
	// Now tells the time; nil: time.Now.
	Now func() time.Time
	// Metrics counts; nil: it is not exported.
	Metrics *Metrics
	// Logger hears of what dies; nil: nobody does.
	Logger *slog.Logger
}

// What a Config has where it says nothing.
const (
	DefaultPerTenant = 1000
	DefaultBytes     = 1 << 30
	DefaultTries     = 5
	DefaultLongest   = 24 * time.Hour
	DefaultKept      = 7 * 24 * time.Hour
	DefaultTimeout   = 2 * time.Second
	DefaultLease     = 30 * time.Second
	DefaultDrain     = 7 * time.Second // as requests of the proxy's
	DefaultCommand   = "edge deferred apply --yes"
)

// MaxBytes is the largest request that is kept, with its headers: what NATS carries is
// 1 MB, as the shipped configuration has it.
const MaxBytes = 1<<20 - 16<<10

// Queue is a region's queue of deferred requests. Its methods may be called from several
// goroutines.
type Queue struct {
	cfg      Config
	js       jetstream.JetStream
	stream   string
	dead     string
	waiting  jetstream.Stream
	statuses jetstream.KeyValue
	plan     *Plan // by which it was opened
	bucket   string
	markers  atomic.Bool // the server lets marks of what was deleted expire
	log      *slog.Logger

	noted atomic.Uint64 // bytes of the bucket, when it was last looked at
	bound atomic.Uint64 // and what it may have; 0: it was not
	looks atomic.Int64  // when it is looked at again, ns since 1970

	lives     lives
	lifeLeast time.Duration
	short     atomic.Int64 // when it is told again that lives are short, ns since 1970
	crammed   atomic.Bool  // the bucket had no room, when it was last looked at
}

// Open binds the queue. What is missing it makes, if it may; what differs stays as it is, since
// the region's edges share it: see Plan.Apply.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Queue, error) {
	return open(ctx, js, cfg, func() bool { return true })
}

// open is Open, which makes what is missing where makes says so then.
func open(ctx context.Context, js jetstream.JetStream, cfg Config, makes func() bool) (*Queue, error) {
	q, err := newQueue(js, cfg)
	if err != nil {
		return nil, err
	}
	if q.plan, err = q.inspect(ctx); err == nil && q.plan.reason() == reasonMissing && makes() {
		made := q.plan.make(ctx)
		if q.plan, err = q.inspect(ctx); err == nil && made != nil && q.plan.reason() == reasonMissing {
			return nil, &unfit{q.plan, made}
		}
	}
	switch {
	case err != nil:
		return nil, err
	case q.plan.broken():
		return nil, &unfit{plan: q.plan}
	}
	q.waiting, err = bounded(ctx, q.cfg.Timeout, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, q.stream) })
	if err != nil {
		return nil, q.unavailable("ask for stream "+q.stream, err)
	}
	q.statuses, err = bounded(ctx, q.cfg.Timeout, func(ctx context.Context) (jetstream.KeyValue, error) { return js.KeyValue(ctx, q.bucket) })
	if err != nil {
		return nil, q.unavailable("ask for bucket "+q.bucket, err)
	}
	q.marks(q.plan)
	return q, nil
}

// marks takes from a plan whether the bucket lets single messages expire, and tells where it does
// not any more, or does not to begin with.
func (q *Queue) marks(plan *Plan) {
	is := plan.Parts[2].is.Config.AllowMsgTTL
	if was := q.markers.Swap(is); !is && (was || plan == q.plan) {
		q.log.Warn("JetStream does not let single messages expire (it is older than 2.11, or the bucket was made so): what became of deferred requests is kept for days, and where that takes up its room no more wait", "days", int((q.cfg.Longest+q.cfg.Kept).Hours()/24))
	}
}

// unfit is why nothing waits: JetStream has not got all of the queue, or has it otherwise.
type unfit struct {
	plan *Plan
	made error // why what is missing was not made; nil: it was not tried
}

func (e *unfit) Error() string {
	if e.made != nil {
		return fmt.Sprintf("deferred: %v, and this edge does not get it made (%v)", e.plan, e.made)
	}
	return fmt.Sprintf("deferred: %v", e.plan)
}

func (e *unfit) Unwrap() error { return ErrUnavailable }

// newQueue is a queue that JetStream was not asked for yet.
func newQueue(js jetstream.JetStream, cfg Config) (*Queue, error) {
	if cfg.Region == "" || strings.Trim(cfg.Region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return nil, fmt.Errorf("deferred: region %q: want letters, digits, - and _", cfg.Region)
	}
	if cfg.PerTenant < 0 || cfg.Bytes < 0 || cfg.Replicas < 0 || cfg.Tries < 0 || cfg.Longest < 0 || cfg.Kept < 0 || cfg.Timeout < 0 || cfg.Lease < 0 || cfg.Drain < 0 {
		return nil, errors.New("deferred: a setting is negative")
	}
	def(&cfg.PerTenant, DefaultPerTenant)
	def(&cfg.Bytes, DefaultBytes)
	def(&cfg.Replicas, 1)
	def(&cfg.Tries, DefaultTries)
	def(&cfg.Longest, DefaultLongest)
	def(&cfg.Kept, DefaultKept)
	def(&cfg.Timeout, DefaultTimeout)
	def(&cfg.Lease, DefaultLease)
	def(&cfg.Drain, DefaultDrain)
	def(&cfg.Command, DefaultCommand)
	if len(cfg.Secret) == 0 {
		cfg.Secret = []byte(NewID())
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	q := &Queue{cfg: cfg, js: js, stream: "SG_DEFER_" + cfg.Region, dead: "SG_DEAD_" + cfg.Region, bucket: "SG_DEFERRED_" + cfg.Region, log: cfg.Logger, lifeLeast: lifeLeast}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	return q, nil
}

func def[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// subject is where a tenant's requests wait.
func (q *Queue) subject(tenant string) string {
	if tenant != "*" {
		h := fnv.New128a() // tenants may be called anything
		h.Write([]byte(tenant))
		tenant = fmt.Sprintf("%x", h.Sum(nil))
	}
	return "sg.v1.defer." + q.cfg.Region + "." + tenant
}

// grave is where a dead letter lies.
func (q *Queue) grave(id string) string { return "sg.v1.dead." + q.cfg.Region + "." + id }

func (q *Queue) unavailable(verb string, err error) error {
	if !q.js.Conn().IsConnected() { // nats.go says that a buffer is full, or that it takes long
		err = fmt.Errorf("NATS is not connected: %w", err)
	}
	return fmt.Errorf("deferred: %s: %w: %w", verb, ErrUnavailable, err)
}

func (q *Queue) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, q.cfg.Timeout)
}

// Put keeps a request, which is dead when it expires, at the latest Config.Longest from
// now. It is kept when Put returns nil; else it is not, but where JetStream did not answer
// (ErrUnavailable) and could not be told to forget it either: then it is a dead letter.
func (q *Queue) Put(ctx context.Context, r *Request) error { return q.put(ctx, r, false) }

// put is Put; or, once, that of one of several who put the same request, at once maybe: what
// cannot be noted is not taken back then, and a dead letter, if none of the others notes it. One
// that was kept under the id before, and is gone, is a goneError.
func (q *Queue) put(ctx context.Context, r *Request, once bool) error {
	if !validID(r.ID) {
		return fmt.Errorf("deferred: id %q: want one of NewID", r.ID)
	}
	now := q.cfg.Now()
	r.Accepted, r.Expires = now, earlier(r.Expires, now.Add(q.cfg.Longest))
	if r.Upstream == "" { // a dead one that is revived has its own
		r.Upstream = q.cfg.Upstream
	}
	m, err := r.message(q.subject(r.Tenant))
	if err != nil {
		return fmt.Errorf("deferred: %w", err)
	}
	if len(m.Data) > MaxBytes {
		return fmt.Errorf("deferred: %w: it has %d bytes of %d", ErrTooLarge, len(m.Data), MaxBytes)
	}
	if err := ctx.Err(); err != nil {
		return q.unavailable("keep "+r.ID, err)
	}
	// From here on it ends whether its client waits or not: who leaves in the midst would make a
	// dead letter of what else waits as any other, and as many as he likes.
	ctx, cancel := q.bounded(context.WithoutCancel(ctx))
	defer cancel()
	if err := q.notes(ctx); err != nil {
		return err
	}
	// First the request: what is refused leaves nothing behind. Who takes it before its
	// status is there puts it off; see unclaimed.
	ack, err := q.js.PublishMsg(ctx, m, jetstream.WithExpectStream(q.stream))
	if tooLarge(err) {
		return fmt.Errorf("deferred: %w: %w", ErrTooLarge, err)
	}
	if err != nil {
		return q.refusal("keep "+r.ID, err)
	}
	if once && ack.Duplicate { // one of this id was kept a while ago: nothing was now
		switch _, err := q.waiting.GetMsg(ctx, ack.Sequence); {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return &goneError{ack.Sequence}
		case err != nil:
			return q.unavailable("look for "+r.ID, err)
		}
	}
	status := Status{State: Queued, Accepted: r.Accepted, Expires: r.Expires, Updated: now}
	switch _, err = q.statuses.Create(ctx, r.ID, status.encoded()); {
	case err == nil:
		return nil
	case once && errors.Is(err, jetstream.ErrKeyExists):
		return errAgain
	case !once:
		q.withdraw(r.ID, ack.Sequence)
	}
	return q.refusal("note "+r.ID, err)
}

// withdraw takes a request back whose client is told that it is not kept. Where it fails
// workers find no status, or, if the note of one came late, do what need not be done.
func (q *Queue) withdraw(id string, sequence uint64) {
	try := func(call func(ctx context.Context) error) error {
		ctx, cancel := q.bounded(context.Background())
		defer cancel()
		return call(ctx)
	}
	err := errors.Join(
		try(func(ctx context.Context) error { return q.unnote(ctx, id) }),
		try(func(ctx context.Context) error { return q.waiting.DeleteMsg(ctx, sequence) }))
	if err != nil {
		q.log.Warn("a request that was denied may be done, or be a dead letter", "id", id, "err", err)
	}
}

func (q *Queue) refusal(verb string, err error) error {
	if full(err) {
		return fmt.Errorf("deferred: %w", ErrFull)
	}
	return q.unavailable(verb, err)
}

// full says that a stream refused a message as it has too many.
func full(err error) bool {
	api, is := errors.AsType[*jetstream.APIError](err)
	return is && api.ErrorCode == storeFailed && strings.Contains(api.Description, "maximum")
}

// tooLarge says that a stream, or a server, takes no message of that size. It is there: or one such
// request would have all others be denied for a while, without being asked about.
func tooLarge(err error) bool {
	api, is := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, nats.ErrMaxPayload) || is && api.ErrorCode == exceedsMaximum
}

// The server's codes for what is larger than a stream's max_msg_size, and for what its other
// limits refuse, or other trouble with its store.
const (
	exceedsMaximum = 10054
	storeFailed    = 10077
)

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Depth is how many requests wait, and how many are dead.
func (q *Queue) Depth(ctx context.Context) (waiting, dead uint64, err error) {
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	for name, n := range map[string]*uint64{q.stream: &waiting, q.dead: &dead} {
		s, err := q.js.Stream(ctx, name)
		if err != nil {
			return 0, 0, q.unavailable("ask for "+name, err)
		}
		*n = s.CachedInfo().State.Msgs
	}
	return waiting, dead, nil
}
