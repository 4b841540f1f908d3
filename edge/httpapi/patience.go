package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// patience is the header by which a caller over HTTP says for how many milliseconds he waits
// for an answer, as a call's deadline says over gRPC. What is no such number is passed over.
const patience = "X-Spillgate-Timeout-Ms"

// mostPatience is longer than any wait for rights.
const mostPatience = int64(limit.MostStrictWait*2) / int64(time.Millisecond)

// told is the context of a call over HTTP, which ends when its caller goes.
func told(r *http.Request) (context.Context, context.CancelFunc) {
	if v := r.Header[patience]; len(v) > 0 {
		if ms, err := strconv.ParseInt(v[0], 10, 64); err == nil && ms > 0 && ms <= mostPatience {
			return context.WithTimeout(r.Context(), time.Duration(ms)*time.Millisecond)
		}
	}
	return r.Context(), func() {}
}

// inTime waits for rights (strict_wait) for three quarters of the time that the caller has:
// the rest is for the answer's way. One that comes when he is gone decides nothing, and he
// lets pass, as a rule, what nobody decided.
func inTime(ctx context.Context, wait func(context.Context) limit.Decision) limit.Decision {
	if deadline, ok := ctx.Deadline(); ok {
		early, cancel := context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/4))
		defer cancel()
		ctx = early
	}
	return wait(ctx)
}
