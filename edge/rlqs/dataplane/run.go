package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
)

const (
	// lookEvery is how often Run looks for reports that are due.
	lookEvery = 5 * time.Millisecond
	// againAfter is how long it waits to open a stream again.
	againAfter = 20 * time.Millisecond
)

// Run keeps a stream open until ctx ends, and another one after each that breaks, of which
// broken (nil: nobody) is told.
func (p *Plane) Run(ctx context.Context, client quotav3.RateLimitQuotaServiceClient, broken func(error)) {
	for ctx.Err() == nil {
		if err := p.stream(ctx, client); err != nil && broken != nil && ctx.Err() == nil {
			broken(err)
		}
		wait(ctx, againAfter)
	}
}

func wait(ctx context.Context, span time.Duration) {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (p *Plane) stream(ctx context.Context, client quotav3.RateLimitQuotaServiceClient) error {
	ctx, cancel := context.WithCancel(ctx)
	call, err := client.StreamRateLimitQuotas(ctx)
	if err != nil {
		cancel()
		return fmt.Errorf("open a stream: %w", err)
	}
	p.Reconnected()
	ended := make(chan error, 1)
	// The end of the call's context ends it; it is waited for below.
	go func() {
		for {
			in, err := call.Recv()
			if err != nil {
				ended <- err
				return
			}
			p.Apply(time.Now(), in)
		}
	}()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			cancel()
			return err
		case <-ctx.Done():
			cancel()
			return errors.Join(ctx.Err(), <-ended)
		case now := <-ticker.C:
			for out := p.Reports(now); out != nil; out = p.Reports(now) {
				_ = call.Send(out) // that it failed, Recv says, and why
			}
		}
	}
}
