// Package grpcclient is edge/client over gRPC (spillgate.v1.Limiter).
package grpcclient

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/limiterpb"
)

// Client asks an edge. It is safe for concurrent use.
type Client struct {
	limiter limiterpb.LimiterClient
	cfg     client.Config
}

var _ client.Limiter = (*Client)(nil)

// Options are those of a connection to an edge that may be away for a while: of one that is
// back, or another that is there in its place, it knows within some seconds. gRPC's own leave a
// program without limits for up to two minutes after an edge was away for long, and for a quarter
// of an hour where its machine, or what is between, fell silent. Edges permit as many pings.
func Options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: time.Second, PermitWithoutStream: true}),
	}
}

// New returns a client over a connection, which remains the caller's to close:
//
//	conn, err := grpc.NewClient("127.0.0.1:8081", append(grpcclient.Options(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
//
// Without one, as where that fails, each call fails with a client.Fault.
func New(conn grpc.ClientConnInterface, cfg client.Config) *Client {
	if c, is := conn.(*grpc.ClientConn); conn == nil || is && c == nil {
		conn = nowhere{}
	}
	return &Client{limiterpb.NewLimiterClient(conn), cfg}
}

// nowhere is the connection of who has none.
type nowhere struct{}

var errNowhere = status.Error(codes.Unavailable, "there is no connection: grpcclient.New was given nil for one")

func (nowhere) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return errNowhere }

func (nowhere) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNowhere
}

// Check implements client.Limiter.
func (c *Client) Check(ctx context.Context, check client.Check) (client.Reply, error) {
	if wrong := client.Tellable("check", check.Attributes); wrong != nil {
		return c.cfg.Undecided(wrong), wrong
	}
	ctx, cancel := c.cfg.Bound(ctx)
	defer cancel()
	in := &limiterpb.CheckRequest{Namespace: check.Namespace, Attributes: check.Attributes, Peek: check.Peek}
	if check.Cost != 0 {
		in.Cost = &check.Cost
	}
	r, err := c.limiter.Check(ctx, in)
	if err != nil {
		err = failed("check", err)
		return c.cfg.Undecided(err), err
	}
	out := client.Reply{
		Allowed: r.Allowed, DecisionID: r.DecisionId, Rule: r.Rule, Policy: r.Policy, Limit: r.Limit, Remaining: r.Remaining,
		RetryAfter: milliseconds(r.RetryAfterMs), Delay: milliseconds(r.DelayMs), Zone: zones[r.Zone], NearLimit: r.NearLimit,
		Basis: client.Basis{Age: -1}, Status: int(r.Status), Headers: r.Headers,
	}
	if b := r.Basis; b != nil {
		out.Basis = client.Basis{
			Local: b.Local, Merged: b.Merged, Age: -1, Regions: int(b.Regions), ErrorBound: b.ErrorBound, ErrorBoundSurge: b.ErrorBoundSurge,
			ShortOfShare: b.ShortOfShare, CutOff: b.CutOff,
		}
		if b.AgeMs >= 0 {
			out.Basis.Age = milliseconds(b.AgeMs)
		}
	}
	return out, nil
}

// Report implements client.Limiter.
func (c *Client) Report(ctx context.Context, report client.Report) (client.Recorded, error) {
	if wrong := client.Tellable("report", report.Attributes); wrong != nil {
		return client.Recorded{}, wrong
	}
	ctx, cancel := c.cfg.Bound(ctx)
	defer cancel()
	in := &limiterpb.ReportRequest{Namespace: report.Namespace, Attributes: report.Attributes, Answered: report.Answered, DecisionId: report.DecisionID}
	if report.Cost != 0 {
		in.Cost = &report.Cost
	}
	r, err := c.limiter.Report(ctx, in)
	if err != nil {
		return client.Recorded{}, failed("report", err)
	}
	return client.Recorded{Recorded: r.Recorded, Rule: r.Rule, Policy: r.Policy, Limit: r.Limit, Remaining: r.Remaining, NearLimit: r.NearLimit}, nil
}

var zones = map[limiterpb.Zone]string{
	limiterpb.Zone_ZONE_NORMAL: "normal", limiterpb.Zone_ZONE_SOFT: "soft", limiterpb.Zone_ZONE_ELASTIC: "elastic",
	limiterpb.Zone_ZONE_HARD: "hard", limiterpb.Zone_ZONE_SHADOW: "shadow",
}

// failed tells the caller's mistakes from what is none of his.
func failed(op string, err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument:
		detail := status.Convert(err).Message()
		return &client.Mistake{Op: op, Detail: detail, Setup: strings.HasPrefix(detail, "namespace: ")}
	case codes.NotFound, codes.Unauthenticated, codes.PermissionDenied:
		return &client.Mistake{Op: op, Detail: status.Convert(err).Message(), Setup: true}
	case codes.DeadlineExceeded, codes.Canceled: // as errors.Is knows them over HTTP
		return &client.Fault{Op: op, Err: fmt.Errorf("%w: %w", contextError(err), err)}
	}
	return &client.Fault{Op: op, Err: err}
}

func contextError(err error) error {
	if status.Code(err) == codes.Canceled {
		return context.Canceled
	}
	return context.DeadlineExceeded
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
