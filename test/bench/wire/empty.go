package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// Where one of these is set, this program is a server that does nothing, at that address.
const (
	emptyGRPC = "SPILLGATE_WIRE_EMPTY_GRPC"
	emptyHTTP = "SPILLGATE_WIRE_EMPTY_HTTP"
)

// empty answers, and decides nothing.
type empty struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (empty) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK}, nil
}

func serveEmptyGRPC(addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fail(err)
	}
	s := grpc.NewServer()
	rlsv3.RegisterRateLimitServiceServer(s, empty{})
	fail(s.Serve(l))
}

// serveEmptyHTTP reads what it is sent, and answers with a body of about a decision's
// length.
func serveEmptyHTTP(addr string) {
	answer := make([]byte, 300)
	for i := range answer {
		answer[i] = ' '
	}
	fail(http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // who hung up counts nothing
	})))
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "wire: %v\n", err)
	os.Exit(1)
}
