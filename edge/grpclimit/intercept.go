package grpclimit

import (
	"context"

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
func (l *Interceptors) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if l.exempt(info.FullMethod) {
		return handler(ctx, req)
	}
	v := l.decide(ctx, info.FullMethod, req)
	if len(v.Fields) > 0 {
		// It fails only where no header can be sent any more, and a client that
		// is not told how much is left is no reason to fail its call.
		_ = grpc.SetHeader(ctx, v.Fields)
	}
	if !v.Allowed {
		return nil, denial(&v)
	}
	return handler(ctx, req)
}

// Stream is the interceptor of streams.
func (l *Interceptors) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if l.exempt(info.FullMethod) {
		return handler(srv, ss)
	}
	v := l.decide(ss.Context(), info.FullMethod, nil)
	if len(v.Fields) > 0 {
		_ = ss.SetHeader(v.Fields) // as in Unary
	}
	if !v.Allowed {
		return denial(&v)
	}
	if l.messages {
		ss = &metered{ServerStream: ss, limit: l, method: info.FullMethod}
	}
	return handler(srv, ss)
}

// metered is a stream whose messages are charged as they are received.
type metered struct {
	grpc.ServerStream
	limit  *Interceptors
	method string
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
	v := m.limit.decide(m.Context(), m.method, msg)
	if v.Allowed {
		return nil
	}
	m.SetTrailer(v.Fields) // the header may be gone
	m.denied = denial(&v)
	return m.denied
}

// decide asks the limiter about one call or one message of a stream.
func (l *Interceptors) decide(ctx context.Context, method string, message any) httpapi.Verdict {
	md, _ := metadata.FromIncomingContext(ctx)
	call := httpapi.Call{Namespace: l.namespace, Method: "POST", Path: method, Metadata: md}
	if authority := md[":authority"]; len(authority) > 0 {
		call.Host = authority[0]
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		call.Peer = p.Addr.String()
	}
	if l.cost != nil {
		call.Cost = l.cost(ctx, method, message)
		call.Peek = call.Cost == 0
	}
	return l.api.Decide(&call)
}

// denial is the error that a denied call ends with.
func denial(v *httpapi.Verdict) error {
	if v.Decision.Rate == nil {
		return status.Error(codes.PermissionDenied, "this call is not served")
	}
	details := []protoadapt.MessageV1{&errdetails.RetryInfo{RetryDelay: durationpb.New(v.RetryAfter)}}
	reason := "the limit is used up"
	if v.Policy != "" {
		reason = v.Reason
		details = append(details, &errdetails.QuotaFailure{
			Violations: []*errdetails.QuotaFailure_Violation{{Subject: v.Policy, Description: reason}},
		})
	}
	st := status.New(codes.ResourceExhausted, reason)
	if with, err := st.WithDetails(details...); err == nil { // it fails on status OK alone
		st = with
	}
	return st.Err()
}
