// Package limiterapi is spillgate.v1.Limiter (edge/limiterpb), over the limiter of this
// edge: what /v1/check, /v1/check/batch and /v1/report are, for programs that speak gRPC. It
// decides by the same code as those, and says the same.
//
// A denial is an answer. Errors are INVALID_ARGUMENT, NOT_FOUND (no rules for the
// namespace), UNAVAILABLE (no rules yet) and INTERNAL (the limiter failed); with the first
// three nothing was counted.
package limiterapi

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limiterpb"
)

// Service answers for a limiter. It is safe for concurrent use.
type Service struct {
	limiterpb.UnimplementedLimiterServer
	surface *httpapi.Surface
}

var _ limiterpb.LimiterServer = (*Service)(nil)

// New returns the service over an API, whose limiter and metrics it shares.
func New(api *httpapi.API) *Service { return &Service{surface: api.Surface("grpc")} }

// Register has a server serve it.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	limiterpb.RegisterLimiterServer(server, s)
}

// Check implements limiterpb.LimiterServer.
func (s *Service) Check(ctx context.Context, in *limiterpb.CheckRequest) (out *limiterpb.CheckResponse, err error) {
	defer s.failOnPanic("Limiter/Check", &err)
	reply := s.surface.Check(ctx, question(in))
	if reply.Err != nil {
		return nil, fault(reply.Err)
	}
	return checked(&reply), nil
}

// CheckBatch implements limiterpb.LimiterServer.
func (s *Service) CheckBatch(ctx context.Context, in *limiterpb.CheckBatchRequest) (out *limiterpb.CheckBatchResponse, err error) {
	defer s.failOnPanic("Limiter/CheckBatch", &err)
	replies, err := s.surface.CheckBatch(ctx, len(in.GetChecks()), func(i int) *httpapi.Question { return question(in.Checks[i]) })
	if err != nil {
		return nil, fault(err)
	}
	out = &limiterpb.CheckBatchResponse{Results: make([]*limiterpb.CheckResult, len(replies))}
	for i := range replies {
		if err := replies[i].Err; err != nil {
			st := status.Convert(fault(err))
			out.Results[i] = &limiterpb.CheckResult{Result: &limiterpb.CheckResult_Error{Error: &limiterpb.Error{Code: int32(st.Code()), Message: st.Message()}}}
			continue
		}
		out.Results[i] = &limiterpb.CheckResult{Result: &limiterpb.CheckResult_Reply{Reply: checked(&replies[i])}}
	}
	return out, nil
}

// Report implements limiterpb.LimiterServer.
func (s *Service) Report(_ context.Context, in *limiterpb.ReportRequest) (out *limiterpb.ReportResponse, err error) {
	defer s.failOnPanic("Limiter/Report", &err)
	r, err := s.surface.Report(&httpapi.Statement{
		Namespace: in.GetNamespace(), Attributes: in.GetAttributes(), Cost: in.Cost, Answered: in.GetAnswered(), DecisionID: in.GetDecisionId(),
	})
	if err != nil {
		return nil, fault(err)
	}
	out = &limiterpb.ReportResponse{Recorded: r.Recorded}
	if d := &r.Decision; d.Rate != nil {
		out.Rule, out.Policy, out.Limit, out.Remaining, out.NearLimit = d.Rule.Name, d.Rate.Name, d.Limit, d.Remaining, d.Near
	}
	return out, nil
}

// failOnPanic is deferred: it makes an error of a bug.
func (s *Service) failOnPanic(at string, err *error) {
	if p := recover(); p != nil {
		s.surface.Panicked(at, p)
		*err = status.Error(codes.Internal, "the limiter failed; its log says where")
	}
}

// fault is what a call that was not decided ends with.
func fault(err error) error {
	code := codes.InvalidArgument
	switch {
	case errors.Is(err, httpapi.ErrNotReady):
		code = codes.Unavailable
	case errors.Is(err, httpapi.ErrNamespace):
		code = codes.NotFound
	}
	return status.Error(code, err.Error())
}

func question(in *limiterpb.CheckRequest) *httpapi.Question {
	return &httpapi.Question{Namespace: in.GetNamespace(), Attributes: in.GetAttributes(), Cost: in.Cost, Peek: in.GetPeek()}
}

// checked tells a decision, as /v1/check does.
func checked(r *httpapi.Reply) *limiterpb.CheckResponse {
	d := &r.Decision
	out := &limiterpb.CheckResponse{Allowed: d.Allowed, DecisionId: r.ID}
	if d.Rule == nil {
		return out
	}
	out.Rule, out.Status = d.Rule.Name, int32(r.Status)
	if d.Rate == nil { // a rule that denies or allows, with no quota to tell of
		if d.Zone == limit.ZoneHard || d.Zone == limit.ZoneShadow {
			out.Zone = zones[d.Zone]
		}
		return out
	}
	out.Policy, out.Limit, out.Remaining, out.NearLimit = d.Rate.Name, d.Limit, d.Remaining, d.Near
	out.RetryAfterMs, out.DelayMs, out.Zone = ceilMilliseconds(r.Wait), ceilMilliseconds(d.Delay), zones[d.Zone]
	b := &d.Basis
	out.Basis = &limiterpb.Basis{
		Local: b.Local, Merged: b.Merged, AgeMs: -1, Regions: int32(b.Regions), ShortOfShare: b.Short, CutOff: b.CutOff,
	}
	if b.Age >= 0 {
		out.Basis.AgeMs = b.Age.Milliseconds()
	}
	if r.Bound.Known {
		out.Basis.ErrorBound, out.Basis.ErrorBoundSurge = &r.Bound.Now, &r.Bound.Surge
	}
	if len(r.Fields) > 0 {
		out.Headers = make(map[string]string, len(r.Fields))
		for _, f := range r.Fields {
			out.Headers[f.Name] = f.Value
		}
	}
	return out
}

var zones = map[limit.Zone]limiterpb.Zone{
	limit.ZoneNormal: limiterpb.Zone_ZONE_NORMAL, limit.ZoneSoft: limiterpb.Zone_ZONE_SOFT, limit.ZoneElastic: limiterpb.Zone_ZONE_ELASTIC,
	limit.ZoneHard: limiterpb.Zone_ZONE_HARD, limit.ZoneShadow: limiterpb.Zone_ZONE_SHADOW,
}

// ceilMilliseconds is d in milliseconds, rounded up, so that waiting as long is enough.
func ceilMilliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
