package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/httpapi"
)

// RemoteConfig is how calls are limited by an edge elsewhere. The zero value is usable.
type RemoteConfig struct {
	// RemoteConfig is what it shares with edge/httplimit. Headers are names of metadata.
	httpapi.RemoteConfig

	// Exempt, Cost and Messages are those of Config. Each message is asked about then, one
	// after the other.
	Exempt   []string
	Cost     func(ctx context.Context, fullMethod string, message any) uint64
	Messages bool
}

// Validate reports every mistake, each by its field.
func (c *RemoteConfig) Validate() error {
	return errors.Join(append(validExempt(c.Exempt), c.RemoteConfig.Validate())...)
}

// Remote is interceptors over an edge elsewhere, which edge/client asks, over gRPC
// (edge/client/grpcclient, by a connection with its Options) or HTTP: each call waits for its
// answer, for Config.Timeout at the most. Where the edge is away calls pass, or end with
// codes.Unavailable if the client fails closed; a denial is codes.ResourceExhausted, as with
// New. Calls that no edge can be told of, as a value of theirs is not UTF-8 or longer than an
// edge takes, end with codes.InvalidArgument.
//
// What a check over a network does not give: slots of concurrency limits come back with their
// leases, rules with count_when count nothing, and a cost that metadata name counts as its
// rule's default.
func Remote(limiter client.Limiter, cfg RemoteConfig) (*Interceptors, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("grpclimit config: %w", err)
	}
	remote, err := httpapi.NewRemote(limiter, cfg.RemoteConfig)
	if err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	l := &Interceptors{remote: remote, cost: cfg.Cost, messages: cfg.Messages}
	l.letPass(cfg.Exempt)
	return l, nil
}

// decideElsewhere is decide by an edge elsewhere.
func (l *Interceptors) decideElsewhere(ctx context.Context, call *httpapi.Call) (fields metadata.MD, denied error) {
	reply, err := l.remote.Decide(ctx, call)
	if len(reply.Headers) > 0 {
		fields = make(metadata.MD, len(reply.Headers))
		for name, value := range reply.Headers {
			fields[strings.ToLower(name)] = []string{value}
		}
	}
	var refused *client.Mistake
	switch {
	case errors.As(err, &refused):
		return fields, status.Error(codes.InvalidArgument, refused.Detail)
	case err != nil:
		return fields, turnPassed(ctx)
	case reply.Allowed:
		return fields, nil
	}
	after := time.Second
	if seconds, err := strconv.ParseInt(reply.Headers["Retry-After"], 10, 32); err == nil {
		after = time.Duration(seconds) * time.Second
	}
	switch {
	case reply.Undecided:
		return fields, again(codes.Unavailable, "the limiter is not reached", after)
	case reply.Basis.CutOff:
		return fields, again(codes.Unavailable, "the limiter cannot hear of the others that share the limit", after)
	case reply.Policy == "":
		return fields, status.Error(codes.PermissionDenied, "this call is not served")
	}
	return fields, again(codes.ResourceExhausted, usedUp, after)
}
