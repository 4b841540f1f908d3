package grpclimit

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillgate/spillgate/edge/httpapi"
)

var (
	_ grpc.UnaryServerInterceptor  = (*Interceptors)(nil).Unary
	_ grpc.StreamServerInterceptor = (*Interceptors)(nil).Stream
)

// Unary is the interceptor of unary calls.
func (l *Interceptors) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (answer any, err error) {
	if l.exempt(info.FullMethod) {
		return handler(ctx, req)
	}
	call := l.call(ctx, info.FullMethod, req)
	fields, visit, denied := l.decide(ctx, &call)
	if len(fields) > 0 {
		// It fails only where no header can be sent any more, and a client that
		// is not told how much is left is no reason to fail its call.
		_ = grpc.SetHeader(ctx, fields)
	}
	if denied != nil {
		return nil, denied
	}
	if visit.Wait(ctx) != nil {
		return nil, turnPassed(ctx)
	}
	if visit != nil {
		err = errPanicked // unless the handler says else
		defer func() { end(visit, err) }()
	}
	answer, err = handler(ctx, req)
	return answer, err
}

// Stream is the interceptor of streams.
func (l *Interceptors) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	if l.exempt(info.FullMethod) {
		return handler(srv, ss)
	}
	call := l.call(ss.Context(), info.FullMethod, nil)
	call.Parts = l.messages
	fields, visit, denied := l.decide(ss.Context(), &call)
	if len(fields) > 0 {
		_ = ss.SetHeader(fields) // as in Unary
	}
	if denied != nil {
		return denied
	}
	if visit.Wait(ss.Context()) != nil {
		return turnPassed(ss.Context())
	}
	if visit != nil {
		err = errPanicked
		defer func() { end(visit, err) }()
	}
	if l.messages {
		ss = &metered{ServerStream: ss, limit: l, method: info.FullMethod, visit: visit}
	}
	err = handler(srv, ss)
	return err
}

// decide decides about a call. What is denied ends with an error.
func (l *Interceptors) decide(ctx context.Context, call *httpapi.Call) (fields metadata.MD, visit *httpapi.Visit, denied error) {
	if l.remote != nil {
		fields, denied = l.decideElsewhere(ctx, call)
		return fields, nil, denied
	}
	v, visit := l.api.Decide(ctx, call)
	if !v.Allowed {
		denied = denial(&v)
	}
	return v.Fields, visit, denied
}

// errPanicked stands for the answer of a handler that made none.
var errPanicked = status.Error(codes.Internal, "the handler panicked")

// end ends the visit of a call by what its handler returned.
func end(visit *httpapi.Visit, err error) {
	code := status.Code(err)
	if err != nil && code == codes.Unknown { // a bare context error is what grpc makes of it
		code = status.FromContextError(err).Code()
	}
	visit.End(httpapi.CallAnswer(uint32(code)))
}

// turnPassed is the error of a call that ended before its turn in a queue.
func turnPassed(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.DeadlineExceeded, httpapi.ErrGone.Error())
}

// metered is a stream whose messages are charged as they are received.
type metered struct {
	grpc.ServerStream
	limit  *Interceptors
	method string
	visit  *httpapi.Visit
	denied error // once a message was denied; only the receiver touches it
}

// RecvMsg implements grpc.ServerStream. After a denial every further message
// is denied too, without being read or counted: a handler that goes on all the
// same would charge its client for messages that it never gets.
func (m *metered) RecvMsg(msg any) error {
	if m.denied != nil {
		return m.denied
	}
	if err := m.ServerStream.RecvMsg(msg); err != nil {
		return err
	}
	call := m.limit.call(m.Context(), m.method, msg)
	if m.limit.remote != nil {
		if call.Peek { // as Part has it
			return nil
		}
		fields, denied := m.limit.decideElsewhere(m.Context(), &call)
		if m.denied = denied; denied != nil {
			m.SetTrailer(fields) // the header may be gone
		}
		return denied
	}
	v, err := m.visit.Part(m.Context(), &call)
	switch {
	case err != nil:
		m.denied = turnPassed(m.Context())
	case !v.Allowed:
		m.SetTrailer(v.Fields) // the header may be gone
		m.denied = denial(&v)
	}
	return m.denied
}

// call describes one call, or one message of a stream, to the limiter.
func (l *Interceptors) call(ctx context.Context, method string, message any) httpapi.Call {
	md, _ := metadata.FromIncomingContext(ctx)
	call := httpapi.Call{Namespace: l.namespace, Method: "POST", Path: method, Metadata: md}
	if authority := md[":authority"]; len(authority) > 0 {
		call.Host = authority[0]
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		if call.Peer = p.Addr.String(); p.Addr.Network() == "unix" {
			call.Peer = "@" // whatever name its end has
		}
	}
	if l.cost != nil {
		call.Cost = l.cost(ctx, method, message)
		call.Peek = call.Cost == 0
	}
	return call
}

// denial is the error that a denied call ends with.
func denial(v *httpapi.Verdict) error {
	if v.Decision.Rate == nil {
		return status.Error(codes.PermissionDenied, "this call is not served")
	}
	if v.Decision.Basis.CutOff { // no fault of the caller's
		return again(codes.Unavailable, "the limiter cannot hear of the others that share the limit", v.RetryAfter)
	}
	if v.Policy == "" {
		return again(codes.ResourceExhausted, usedUp, v.RetryAfter)
	}
	return again(codes.ResourceExhausted, v.Reason, v.RetryAfter, &errdetails.QuotaFailure{
		Violations: []*errdetails.QuotaFailure_Violation{{Subject: v.Policy, Description: v.Reason}},
	})
}

const usedUp = "the limit is used up"

// again is the error of a call that may be tried again after a while.
func again(code codes.Code, reason string, after time.Duration, beside ...protoadapt.MessageV1) error {
	st := status.New(code, reason)
	details := append([]protoadapt.MessageV1{&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}}, beside...)
	if with, err := st.WithDetails(details...); err == nil { // it fails on status OK alone
		st = with
	}
	return st.Err()
}
