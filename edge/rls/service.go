// Package rls is Envoy's rate limit service, version 3 (envoy.service.ratelimit.v3), over
// the limiter of this edge: proxies and meshes that speak it need no change.
//
// A request's domain is a namespace. Each of its descriptors is a request of its own,
// whose entries are the attributes that rules see: the entry {key: user, value: u1} is
// the attribute user. remote_address is client_ip, too. Values of a key that stands more
// than once are joined by commas, as those of HTTP's fields are.
//
// As with the reference (envoyproxy/ratelimit) each descriptor is decided and charged by
// itself, and the answer is OVER_LIMIT if one is: descriptors that pass are charged all the
// same, unless the domain says otherwise (defaults: {descriptors: all_or_nothing}; see
// asone.go). What one descriptor is charged to, if several of its limits deny it, its rule
// says (charge). A call that a queue admits is answered when its turn has come: where that
// is longer than Envoy waits (20 ms, unless its timeout says otherwise), it is as if it had
// not been asked. Slots of concurrency limits come back with their leases: Envoy does not say
// when a request ends.
//
// A limit that the edge is cut off from (on_partition: closed) is OVER_LIMIT, too: UNAVAILABLE
// would have Envoy let the request pass, unless failure_mode_deny says otherwise, which is
// what such a limit is not to do. It is told apart by the field x-spillgate-cut-off, by the
// problem type of the body (temporary-reduced-capacity), by cut_off in dynamic_metadata, and
// by the metric; /json answers it with 503.
//
// A cost that is known after the answer only (apply_on_stream_done) is no question. A
// descriptor with the entry {key: spillgate.report, value: true} says that its hits were
// spent, as POST /v1/report does: they are charged to every rate, whatever is left, nothing
// waits, and its status is OK. The entry is no attribute, and changes nothing that the
// others match. It is the operator's word, of a generic_key action: whoever had a client's
// header make an entry of that name would have clients pass as reports.
//
// A limit that a descriptor brings takes the place of the rates' that apply over the same
// window (but for those with count_when, which count nothing here), else of the rules: it counts by its entries then, in windows of its unit since the
// Unix epoch (a metadata limit of 5 an HOUR where rules have minutes, or where there are none).
//
// Values need not be UTF-8: Envoy copies those of headers as clients wrote them, and they
// are counted byte for byte, as edge/httplimit counts them. That takes a server with
// envoytext.ServerOption: any other refuses such a call before it gets here, and Envoy lets
// the request pass.
//
// Where nothing can be decided (no rules are loaded yet) the call fails with UNAVAILABLE,
// and Envoy does what failure_mode_deny says. A domain that has no rules, and a descriptor
// to which none applies, are OK without a current_limit, as with the reference.
//
// A domain that has the reference's own configuration (configs.FormatEnvoy) is decided
// as the reference decides: see tree.go.
//
// The same by HTTP, as the reference has it: POST /json and /healthcheck.
package rls

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

const (
	// maxDescriptors and maxEntries bound what one call has decided.
	maxDescriptors = 100
	maxEntries     = 100
	// reportKey and reportValue are the entry of a descriptor whose hits were spent.
	reportKey   = "spillgate.report"
	reportValue = "true"
)

// Service answers ShouldRateLimit. It is safe for concurrent use.
type Service struct {
	rlsv3.UnimplementedRateLimitServiceServer
	surface *httpapi.Surface
}

var _ rlsv3.RateLimitServiceServer = (*Service)(nil)

// New returns the service over an API, whose limiter and metrics it shares.
func New(api *httpapi.API) *Service { return &Service{surface: api.Surface("grpc")} }

// Register has a server serve it, which was made with envoytext.ServerOption, or reads by
// envoytext.Codec.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	rlsv3.RegisterRateLimitServiceServer(server, s)
}

// ShouldRateLimit decides about a request. Its errors are INVALID_ARGUMENT, where nothing
// was charged; UNAVAILABLE, where there are no rules yet; and INTERNAL, where the limiter
// failed.
func (s *Service) ShouldRateLimit(ctx context.Context, in *rlsv3.RateLimitRequest) (out *rlsv3.RateLimitResponse, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.surface.Panicked("ShouldRateLimit", p)
			out, err = nil, status.Error(codes.Internal, "the limiter failed; its log says where")
		}
	}()
	serving, err := s.surface.Serving()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	if err := valid(in); err != nil {
		s.surface.Refused()
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	ns := serving.Namespace(in.Domain)
	tree := ns.Descriptors()
	if err := validEntries(in, tree != nil); err != nil {
		s.surface.Refused()
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if ns == nil {
		s.surface.Refused()
		out, _ := answer(len(in.Descriptors))
		return out, nil
	}
	c := calls.Get().(*call)
	defer c.release()
	c.serving, c.ns, c.began = serving, ns, s.surface.Now()
	c.now = c.began
	if tree != nil {
		for _, d := range in.Descriptors {
			c.addByTree(tree, in, d)
		}
		return c.decideByTree(ctx, tree, in), nil
	}
	for _, d := range in.Descriptors {
		c.add(in, d)
	}
	return c.decide(ctx, in)
}

// valid says what of a request cannot be decided.
func valid(in *rlsv3.RateLimitRequest) error {
	switch n := len(in.GetDescriptors()); {
	case in.GetDomain() == "":
		return fmt.Errorf("domain: is missing (it is the namespace of a rules file)")
	case n == 0:
		return fmt.Errorf("descriptors: there are none (the actions of a route's rate_limits make them)")
	case n > maxDescriptors:
		return fmt.Errorf("descriptors: %d are too many (%d at the most)", n, maxDescriptors)
	}
	return nil
}

// validEntries says what of the descriptors cannot be decided. To a tree it is one that
// meets no limit if it has no entries, or one without a key, and no entry says that hits were
// spent.
func validEntries(in *rlsv3.RateLimitRequest, tree bool) error {
	for i, d := range in.Descriptors {
		switch n := len(d.GetEntries()); {
		case n == 0 && tree:
		case n == 0:
			return fmt.Errorf("descriptors[%d].entries: there are none", i)
		case n > maxEntries:
			return fmt.Errorf("descriptors[%d].entries: %d are too many (%d at the most)", i, n, maxEntries)
		}
		if tree {
			continue
		}
		reports := 0
		for j, e := range d.Entries {
			switch {
			case e.GetKey() == "":
				return fmt.Errorf("descriptors[%d].entries[%d].key: is missing", i, j)
			case e.Key == reportKey && e.Value != reportValue:
				return fmt.Errorf("descriptors[%d].entries[%d].value: %s is %q alone (the hits of its descriptor were spent)", i, j, reportKey, reportValue)
			case e.Key == reportKey:
				reports++
			}
		}
		if reports == len(d.Entries) {
			return fmt.Errorf("descriptors[%d].entries: there are none but %s (those of the question say whose hits they are)", i, reportKey)
		}
	}
	return nil
}

// row is what a status consists of; those of a call are allocated at once.
type row struct {
	status rlsv3.RateLimitResponse_DescriptorStatus
	limit  rlsv3.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// answer is one by which all descriptors pass.
func answer(descriptors int) (*rlsv3.RateLimitResponse, []row) {
	out := &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK, Statuses: make([]*rlsv3.RateLimitResponse_DescriptorStatus, descriptors)}
	rows := make([]row, descriptors)
	for i := range rows {
		rows[i].status.Code = rlsv3.RateLimitResponse_OK
		out.Statuses[i] = &rows[i].status
	}
	return out, rows
}

// call is one call under way.
type call struct {
	serving httpapi.Serving
	ns      *limit.Namespace
	began   time.Time
	now     time.Time
	reqs    []*limit.Request
	spent   []bool              // which of them report
	judged  []httpapi.Judgement // not cleared for the next: each is written whole

	// Of a tree of descriptors: the limit that each meets, nil where it meets none, and
	// its key there, "" where the request is made already or is not to be; and which of
	// them others take the place of.
	met      []*limit.DescriptorLimit
	keys     []string
	replaced []int
}

var calls = sync.Pool{New: func() any { return new(call) }}

func (c *call) release() {
	for _, req := range c.reqs {
		req.Release()
	}
	clear(c.reqs)
	clear(c.met)
	clear(c.keys)
	*c = call{reqs: c.reqs[:0], spent: c.spent[:0], judged: c.judged[:0], met: c.met[:0], keys: c.keys[:0], replaced: c.replaced[:0]}
	calls.Put(c)
}

// add makes the request of a descriptor. Of one that brings a limit which is none of the
// rates' that apply, that limit is all that it meets.
func (c *call) add(in *rlsv3.RateLimitRequest, d *rlv3.RateLimitDescriptor) {
	req := c.ns.NewRequest()
	entries, spent := reports(d.Entries)
	fill(req, entries)
	if l := d.Limit; l != nil && !override(req, l) {
		if own := c.serving.DescriptorLimits(); own != nil {
			brings := own.NewRequest()
			if limit.AskOverride(own.Descriptors(), brings, c.ns.Name, entries, unitOf(l), l.RequestsPerUnit) {
				req, brings = brings, req
			}
			brings.Release()
		}
	}
	c.reqs, c.spent = append(c.reqs, req), append(c.spent, spent)
	req.Trusted = true // who says what a request is, says what it costs
	costs(req, in, d)
}

// costs has a request cost what the call says, or its descriptor.
func costs(req *limit.Request, in *rlsv3.RateLimitRequest, d *rlv3.RateLimitDescriptor) {
	req.Cost = uint64(in.HitsAddend)
	if a := d.HitsAddend; a != nil {
		req.Cost, req.Peek = a.Value, a.Value == 0
	}
}

// decide decides about all of them, in their order.
func (c *call) decide(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	out, rows := answer(len(c.reqs))
	told := -1 // whose fields are sent
	c.judged = slices.Grow(c.judged, len(c.reqs))[:len(c.reqs)]
	asOne := c.asOne()
	if asOne {
		c.judgeAsOne(ctx, in)
	}
	for i := range c.reqs {
		gives, j := in.Descriptors[i].IsNegativeHits, &c.judged[i]
		if !asOne {
			c.judge(ctx, i, gives)
		}
		rows[i].describe(j)
		if gives || c.spent[i] { // it asks for nothing
			out.Statuses[i].Code = rlsv3.RateLimitResponse_OK
			continue
		}
		if out.Statuses[i].Code == rlsv3.RateLimitResponse_OVER_LIMIT {
			out.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		if j.Decision().Rate != nil || !j.Decision().Allowed {
			if told < 0 || tighter(j, &c.judged[told]) {
				told = i
			}
		}
	}
	c.serving.Judged(c.began)
	if told >= 0 {
		c.tell(out, &c.judged[told])
	}
	if out.OverallCode == rlsv3.RateLimitResponse_OK { // else nothing goes on that could wait
		if err := c.serving.Await(ctx, c.reqs, c.judged); err != nil {
			return nil, status.FromContextError(cmp.Or(ctx.Err(), context.DeadlineExceeded)).Err()
		}
	}
	return out, nil
}

// judge decides about one descriptor, or does what it says.
func (c *call) judge(ctx context.Context, i int, gives bool) {
	req, j := c.reqs[i], &c.judged[i]
	switch {
	case gives && !req.Peek:
		*j = c.serving.GiveBack(req, c.now)
	case c.spent[i]:
		*j = c.serving.Spent(req, c.now)
	default:
		c.now = c.serving.Judge(ctx, req, c.now, j)
	}
}

// tighter says that a client is rather to be told of one judgement than of another: of a
// denial, of the longer wait, and rather of a limit that is used up than of one that is cut
// off, else of what has less of its limit left.
func tighter(a, b *httpapi.Judgement) bool {
	da, db := a.Decision(), b.Decision()
	switch {
	case da.Allowed != db.Allowed:
		return db.Allowed
	case da.Basis.CutOff != db.Basis.CutOff:
		return db.Basis.CutOff
	case !da.Allowed:
		return da.Rate == nil && db.Rate != nil || (da.Rate == nil) == (db.Rate == nil) && a.RetryAfter() > b.RetryAfter()
	case a.Shown() != b.Shown():
		return a.Shown()
	}
	return float64(da.Remaining)/float64(max(1, da.Limit)) < float64(db.Remaining)/float64(max(1, db.Limit))
}

// tell adds what the client is told of a judgement, and of a denial what Envoy's log is.
func (c *call) tell(out *rlsv3.RateLimitResponse, j *httpapi.Judgement) {
	fields := j.Fields()
	if d := j.Decision(); !d.Allowed {
		body, beside := j.Denial()
		out.RawBody = body
		fields = append(fields, beside...)
		out.DynamicMetadata = c.metadata(j)
	}
	if len(fields) == 0 {
		return
	}
	out.ResponseHeadersToAdd = make([]*corev3.HeaderValue, len(fields))
	for i, f := range fields {
		out.ResponseHeadersToAdd[i] = &corev3.HeaderValue{Key: f.Name, Value: f.Value}
	}
}

// metadata says which limit denied, for Envoy's access log: clients may not be shown it.
func (c *call) metadata(j *httpapi.Judgement) *structpb.Struct {
	d := j.Decision()
	of := map[string]*structpb.Value{
		"decision_id": structpb.NewStringValue(j.ID()),
		"domain":      structpb.NewStringValue(c.ns.Name),
		"rule":        structpb.NewStringValue(d.Rule.Name),
		"retry_after": structpb.NewNumberValue(j.RetryAfter().Seconds()),
		"cut_off":     structpb.NewBoolValue(d.Basis.CutOff),
	}
	if d.Rate != nil {
		of["policy"] = structpb.NewStringValue(d.Rate.Policy)
		of["limit"] = structpb.NewNumberValue(float64(d.Limit))
	}
	return &structpb.Struct{Fields: of}
}

// clamped is v as the protocol has it.
func clamped(v uint64) uint32 { return uint32(min(v, math.MaxUint32)) }
