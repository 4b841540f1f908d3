package rlqs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/spillgate/spillgate/edge/envoytext"
	"github.com/spillgate/spillgate/edge/limit"
)

// Limiter is what decides: a node of the edge. httpapi.Limiter says what its calls do.
type Limiter interface {
	Rules() *limit.Set
	Check(now time.Time, req *limit.Request) limit.Decision
	Report(now time.Time, req *limit.Request) limit.Decision
	Refund(now time.Time, charges []limit.Charge, cost uint64)
	// Asked notes what was asked for of what is charged in lumps, or was denied.
	Asked(now time.Time, req *limit.Request)
}

// Config is how the service behaves. The zero value is usable.
type Config struct {
	// TTL is how long an assignment lives; it is renewed at half of that. Default: 5 s. A
	// longer one outlives a longer fault, and has data planes hold more of what the others
	// might have spent.
	TTL time.Duration

	// MaxStreams, MaxStreamBuckets and MaxBuckets bound the streams, the buckets of each,
	// and those of all (one that several streams have counts with each). Defaults: 4,096,
	// 10,000 and 200,000. One takes about 1.3 kB with its id, of which there are at most 128
	// bytes each, on average; README.md says what it is in all. A stream beyond is ended; a bucket beyond gets no tokens,
	// and what it used is charged.
	MaxStreams, MaxStreamBuckets, MaxBuckets int

	// Logger gets panics. Default: nowhere.
	Logger *slog.Logger

	// Registerer gets the metrics. Default: they are not exported.
	Registerer prometheus.Registerer
}

const (
	defaultTTL = 5 * time.Second
	// tickEvery is how often what is due is looked for.
	tickEvery = 100 * time.Millisecond
	// mostReading is how many messages larger than smallMessage are read at once: each may take
	// some 40 MB until it is taken in, for which all wait for each other anyway.
	mostReading  = 2
	smallMessage = 16 << 10
	// maxAnswer is how large a message to a data plane is, unless one bucket's name is longer: of
	// a stream that nobody reads gRPC keeps one, and 64 KiB, for as long as the connection lasts.
	maxAnswer = 32 << 10
)

// Validate reports every mistake, each by its field.
func (c *Config) Validate() error {
	var errs []error
	if c.TTL != 0 && c.TTL < time.Second || c.TTL > time.Hour {
		errs = append(errs, fmt.Errorf("TTL: %v is not from 1s to 1h (0 is %v)", c.TTL, defaultTTL))
	}
	for _, f := range []struct {
		name string
		is   int
	}{{"MaxStreams", c.MaxStreams}, {"MaxStreamBuckets", c.MaxStreamBuckets}, {"MaxBuckets", c.MaxBuckets}} {
		if f.is < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is below 0 (0 is the default)", f.name, f.is))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	or := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	or(&c.MaxStreams, DefaultMaxStreams)
	or(&c.MaxStreamBuckets, 10_000)
	or(&c.MaxBuckets, 200_000)
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// DefaultMaxStreams is Config.MaxStreams, where it is not set.
const DefaultMaxStreams = 4096

// Service serves StreamRateLimitQuotas. It is safe for concurrent use.
type Service struct {
	quotav3.UnimplementedRateLimitQuotaServiceServer
	book *book
	log  *slog.Logger

	reading chan struct{} // a place for each large message that is read and taken in

	drain    sync.Once
	draining chan struct{}
}

var _ quotav3.RateLimitQuotaServiceServer = (*Service)(nil)

// New returns the service over a limiter. It starts nothing: Run does what is due.
func New(limiter Limiter, cfg Config) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("rlqs config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Service{book: newBook(limiter, cfg), log: cfg.Logger, reading: make(chan struct{}, mostReading), draining: make(chan struct{})}, nil
}

// Register has a server serve it, which was made with envoytext.ServerOption, or reads by
// envoytext.Codec.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	quotav3.RegisterRateLimitQuotaServiceServer(server, s)
}

// Run renews assignments until ctx ends.
func (s *Service) Run(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.tick()
		}
	}
}

func (s *Service) tick() {
	defer func() {
		if p := recover(); p != nil {
			s.panicked(p)
		}
	}()
	for !s.book.stretch(time.Now()) {
	}
}

// Drain ends all streams, and those that come. Data planes keep what they were assigned
// until it expires, and go to another edge: it is charged.
func (s *Service) Drain() { s.drain.Do(func() { close(s.draining) }) }

func (s *Service) panicked(p any) {
	s.book.metrics.panics.Inc()
	s.log.Error("panic in the rate limit quota service", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// StreamRateLimitQuotas serves one data plane. It ends with INVALID_ARGUMENT, NOT_FOUND or
// FAILED_PRECONDITION where its reports cannot be taken in, RESOURCE_EXHAUSTED where there
// are too many streams or it does not read, UNAVAILABLE where there are no rules yet or the edge drains, and INTERNAL
// where this package has a bug.
func (s *Service) StreamRateLimitQuotas(call quotav3.RateLimitQuotaService_StreamRateLimitQuotasServer) (err error) {
	defer s.recovered(&err)
	st, err := s.book.open(hostOf(call.Context()))
	if err != nil {
		return err
	}
	defer func() { s.book.close(time.Now(), st) }()
	ended := make(chan error, 1)
	// The end of the call ends it, as its Recv fails then; nobody waits for it, and what it
	// reports to a stream that is closed counts nothing.
	go func() { ended <- s.receive(call, st) }()
	wake, sent := st.wake, make(chan error, 1)
	for {
		select {
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-s.draining:
			return status.Error(codes.Unavailable, "this edge drains: what it assigned holds until it expires; ask another edge")
		case <-wake:
			wake = nil // until that is sent
			actions := s.book.take(time.Now(), st)
			// It stands while it is not read, and the stream may end meanwhile: the end of the call
			// ends it, too, and nobody waits for it then.
			go func() { sent <- s.send(call, actions) }()
		case err := <-sent:
			if err != nil {
				return err
			}
			wake = st.wake
		}
	}
}

// receive takes in reports until the call or its data plane ends.
func (s *Service) receive(call quotav3.RateLimitQuotaService_StreamRateLimitQuotasServer, st *stream) (err error) {
	defer s.recovered(&err)
	for {
		in := &envoytext.Unread{}
		if err := call.RecvMsg(in); err != nil {
			s.unread(st.host, err)
			return err
		}
		if err := s.takeIn(call.Context(), st, in); err != nil {
			return err
		}
	}
}

// takeIn reads a message and takes it in, when its turn comes.
func (s *Service) takeIn(ctx context.Context, st *stream, message *envoytext.Unread) error {
	defer message.Free()
	if message.Len() > smallMessage {
		select {
		case s.reading <- struct{}{}:
			defer func() { <-s.reading }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if n := message.Count(usagesField); n > maxUsages {
		s.book.metrics.refused.WithLabelValues(refusedInvalid).Inc()
		return tooMany(n)
	}
	in := &quotav3.RateLimitQuotaUsageReports{}
	if err := message.Read(in); err != nil {
		err = status.Errorf(codes.Internal, "the message cannot be read: %v", err)
		s.unread(st.host, err)
		return err
	}
	return s.book.report(time.Now(), st, in)
}

// recovered ends a stream at which this package, or the limiter, has panicked.
func (s *Service) recovered(err *error) {
	if p := recover(); p != nil {
		s.panicked(p)
		s.book.metrics.refused.WithLabelValues(refusedPanic).Inc()
		*err = status.Error(codes.Internal, "the limiter failed; its log says where")
	}
}

// unread tells of a stream that gRPC ends, as it does not take in a message. Its data plane
// may well come back with the same one, and nothing of it counts.
func (s *Service) unread(host string, err error) {
	reason := ""
	switch status.Code(err) {
	case codes.ResourceExhausted:
		reason = refusedLarge
	case codes.Internal:
		reason = refusedUnread
	default: // the stream has ended
		return
	}
	s.book.metrics.refused.WithLabelValues(reason).Inc()
	s.log.Warn("a data plane's message is not taken in: its limits hold no more, as its stream ends", "host", host, "reason", reason, "err", err)
}

func (s *Service) send(call quotav3.RateLimitQuotaService_StreamRateLimitQuotasServer, actions []action) (err error) {
	defer s.recovered(&err)
	for len(actions) > 0 {
		answer := response(actions)
		if err := call.Send(answer); err != nil {
			return fmt.Errorf("send %d actions: %w", len(answer.BucketAction), err)
		}
		actions = actions[len(answer.BucketAction):]
	}
	return nil
}

// response is of as many actions as a message has room for.
func response(actions []action) *quotav3.RateLimitQuotaResponse {
	out, size := &quotav3.RateLimitQuotaResponse{}, 0
	for i := range actions {
		m := actions[i].message()
		if size += proto.Size(m); size > maxAnswer && i > 0 {
			break
		}
		out.BucketAction = append(out.BucketAction, m)
	}
	return out
}

// hostOf is the address of a data plane without its port: by it one that comes back is
// known.
func hostOf(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	if host, _, err := net.SplitHostPort(p.Addr.String()); err == nil {
		return host
	}
	return p.Addr.String()
}
