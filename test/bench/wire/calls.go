package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// users is how many there are, any of whom a call is of.
const users = 10_000

func user() string { return "user" + strconv.Itoa(rand.IntN(users)) }

// asking asks a rate limit service of so many users at once.
func asking(conn *grpc.ClientConn, descriptors int) func(context.Context) error {
	client := rlsv3.NewRateLimitServiceClient(conn)
	return func(ctx context.Context) error {
		in := &rlsv3.RateLimitRequest{Domain: "bench"}
		for range descriptors {
			in.Descriptors = append(in.Descriptors, &rlv3.RateLimitDescriptor{Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "user", Value: user()}}})
		}
		out, err := client.ShouldRateLimit(ctx, in)
		if err == nil && out.OverallCode != rlsv3.RateLimitResponse_OK {
			err = fmt.Errorf("%v, want OK", out.OverallCode)
		}
		return err
	}
}

// visiting calls a page as a client of a limiter does: a POST says who it is of in its
// body, a GET in a header.
func visiting(client *http.Client, method, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		var body io.Reader
		if method == http.MethodPost {
			body = strings.NewReader(`{"namespace":"bench","attributes":{"user":"` + user() + `"}}`)
		}
		r, err := http.NewRequestWithContext(ctx, method, url, body)
		if err != nil {
			return err
		}
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/json")
		} else {
			r.Header.Set("X-User", user())
		}
		out, err := client.Do(r)
		if err != nil {
			return err
		}
		defer out.Body.Close()
		if _, err := io.Copy(io.Discard, out.Body); err != nil {
			return err
		}
		if out.StatusCode != http.StatusOK {
			return fmt.Errorf("%s, want 200", out.Status)
		}
		return nil
	}
}
