package limiterapi_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limiterapi"
	"github.com/spillgate/spillgate/edge/limiterpb"
)

// FuzzCalls: whatever a caller sends is answered, or refused as his mistake with nothing
// asked of the limiter, and what is answered can be sent.
func FuzzCalls(f *testing.F) {
	zero, huge, back := uint64(0), uint64(1<<63), int64(-1<<63)
	checks := []*limiterpb.CheckRequest{
		{}, {Namespace: "shop", Attributes: map[string]string{"user": "u", "client_ip": "192.0.2.1", "path": "/api/%2e%2e/a?b", "header.X-Id": "1"}},
		{Namespace: "none", Cost: &zero}, {Attributes: map[string]string{"": "", "header.X-Id": "1", "header.x-id": "2"}, Cost: &huge, Peek: true},
	}
	seeds := []proto.Message{
		checks[1], checks[3], &limiterpb.CheckBatchRequest{Checks: checks}, &limiterpb.ReportRequest{Attributes: checks[1].Attributes, Cost: &back},
		&limiterpb.ReportRequest{Attributes: map[string]string{"login": "l", "response.status": "401"}, Answered: true, DecisionId: "x"},
	}
	for _, in := range seeds {
		b, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	limiter := limitertest.New(f, shop)
	api, _ := newAPI(f, limiter)
	service := limiterapi.New(api)
	f.Fuzz(func(t *testing.T, text []byte) {
		before := limiter.Checks()
		answered := func(out proto.Message, err error) {
			t.Helper()
			switch code := status.Code(err); {
			case code != codes.OK && code != codes.InvalidArgument && code != codes.NotFound:
				t.Fatalf("%v, want an answer or a mistake of the caller's", err)
			case err != nil && limiter.Checks() != before:
				t.Fatalf("%v, and asked the limiter", err)
			case err == nil:
				if _, err := proto.Marshal(out); err != nil {
					t.Fatalf("%v cannot be sent: %v", out, err)
				}
			}
			before = limiter.Checks()
		}
		if in := new(limiterpb.CheckRequest); proto.Unmarshal(text, in) == nil { // else gRPC refuses it
			out, err := service.Check(t.Context(), in)
			answered(out, err)
		}
		if in := new(limiterpb.ReportRequest); proto.Unmarshal(text, in) == nil {
			out, err := service.Report(t.Context(), in)
			answered(out, err)
		}
		in := new(limiterpb.CheckBatchRequest)
		if proto.Unmarshal(text, in) != nil {
			return
		}
		out, err := service.CheckBatch(t.Context(), in)
		answered(out, err)
		if err == nil && len(out.Results) != len(in.Checks) {
			t.Fatalf("%d results of %d checks", len(out.Results), len(in.Checks))
		}
		for i, r := range out.GetResults() {
			if (r.GetReply() == nil) == (r.GetError() == nil) {
				t.Fatalf("result %d is %v", i, r)
			}
		}
	})
}
