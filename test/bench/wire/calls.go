package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
)

// users is how many there are, any of whom a call is of.
const users = 10_000

func user() string { return "user" + strconv.Itoa(rand.IntN(users)) }

// way is how a server is called: by ourselves, and by a tool of others.
type way struct {
	call func(context.Context) error
	rpc  *rpc  // of gRPC, or
	page *page // of HTTP
}

// rpc is a call of gRPC for ghz.
type rpc struct {
	addr   string
	method string // package.Service/Method
	proto  string
	body   func() []byte // a message in JSON
}

// page is a call of HTTP for h2load.
type page struct {
	url  string
	body func() []byte // nil: a GET
}

// unary is how a method is called.
type unary struct {
	rpc
	call func(context.Context, *grpc.ClientConn) error
}

// overGRPC calls a method at an address, all calls over one connection.
func (f *field) overGRPC(addr string, u unary) way {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err) // the address is ours: it can be read
	}
	f.ends = append(f.ends, func() { _ = conn.Close() })
	u.addr = addr
	return way{call: func(ctx context.Context) error { return u.call(ctx, conn) }, rpc: &u.rpc}
}

// envoyCall asks Envoy's rate limit service of so many users at once.
func envoyCall(descriptors int) unary {
	message := func() *rlsv3.RateLimitRequest {
		in := &rlsv3.RateLimitRequest{Domain: "bench"}
		for range descriptors {
			in.Descriptors = append(in.Descriptors, &rlv3.RateLimitDescriptor{Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "user", Value: user()}}})
		}
		return in
	}
	return unary{
		rpc: rpc{method: "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", proto: envoyProto, body: func() []byte {
			text, err := protojson.Marshal(message())
			if err != nil {
				panic(err) // it is ours
			}
			return text
		}},
		call: func(ctx context.Context, conn *grpc.ClientConn) error {
			out, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, message())
			if err == nil && out.OverallCode != rlsv3.RateLimitResponse_OK {
				err = fmt.Errorf("%v, want OK", out.OverallCode)
			}
			return err
		},
	}
}

// envoyProto is as much of the service as ghz needs to know.
const envoyProto = `syntax = "proto3";
package envoy.service.ratelimit.v3;
message Entry { string key = 1; string value = 2; }
message Descriptor { repeated Entry entries = 1; }
message RateLimitRequest { string domain = 1; repeated Descriptor descriptors = 2; }
message RateLimitResponse { int32 overall_code = 1; }
service RateLimitService { rpc ShouldRateLimit(RateLimitRequest) returns (RateLimitResponse); }
`

// gubernatorProto likewise; our own calls speak it without generated code.
const gubernatorProto = `syntax = "proto3";
package pb.gubernator;
message RateLimitReq { string name = 1; string unique_key = 2; int64 hits = 3; int64 limit = 4; int64 duration = 5; int32 behavior = 7; }
message GetRateLimitsReq { repeated RateLimitReq requests = 1; }
message RateLimitResp { int32 status = 1; string error = 5; }
message GetRateLimitsResp { repeated RateLimitResp responses = 1; }
service V1 { rpc GetRateLimits(GetRateLimitsReq) returns (GetRateLimitsResp); }
`

const (
	gubernatorPath = "/v1/GetRateLimits"
	aMinute        = 60_000 // milliseconds
	plenty         = 4_000_000_000
	noBatching     = 1
)

// gubernatorCall asks Gubernator for the limits of so many users at once.
func gubernatorCall(limits int) unary {
	return unary{
		rpc: rpc{method: "pb.gubernator.V1/GetRateLimits", proto: gubernatorProto, body: func() []byte { return gubernatorJSON(limits, noBatching) }},
		call: func(ctx context.Context, conn *grpc.ClientConn) error {
			var in, one []byte
			for range limits {
				one = protowire.AppendString(protowire.AppendTag(one[:0], 1, protowire.BytesType), "bench")
				one = protowire.AppendString(protowire.AppendTag(one, 2, protowire.BytesType), user())
				for field, value := range map[protowire.Number]uint64{3: 1, 4: plenty, 5: aMinute, 7: noBatching} {
					one = protowire.AppendVarint(protowire.AppendTag(one, field, protowire.VarintType), value)
				}
				in = protowire.AppendBytes(protowire.AppendTag(in, 1, protowire.BytesType), one)
			}
			var out []byte
			if err := conn.Invoke(ctx, "/pb.gubernator.V1/GetRateLimits", &in, &out, grpc.ForceCodec(raw{})); err != nil {
				return err
			}
			return granted(out, limits)
		},
	}
}

// granted says whether an answer of Gubernator's grants so many limits.
func granted(out []byte, want int) error {
	got := 0
	for ; len(out) > 0; got++ {
		_, _, n := protowire.ConsumeTag(out)
		if n < 0 {
			return protowire.ParseError(n)
		}
		one, m := protowire.ConsumeBytes(out[n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		out = out[n+m:]
		for len(one) > 0 {
			field, kind, n := protowire.ConsumeTag(one)
			if n < 0 {
				return protowire.ParseError(n)
			}
			m := protowire.ConsumeFieldValue(field, kind, one[n:])
			if m < 0 {
				return protowire.ParseError(m)
			}
			if field == 1 || field == 5 { // over its limit, or an error
				return fmt.Errorf("it answered %q", one)
			}
			one = one[n+m:]
		}
	}
	if got != want {
		return fmt.Errorf("%d limits in an answer, want %d", got, want)
	}
	return nil
}

// raw is the codec of messages that are bytes already.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func checkBody() []byte {
	return []byte(`{"namespace":"bench","attributes":{"user":"` + user() + `"}}`)
}

func envoyBody() []byte {
	return []byte(`{"domain":"bench","descriptors":[{"entries":[{"key":"user","value":"` + user() + `"}]}]}`)
}

func gubernatorBody() []byte { return gubernatorJSON(1, noBatching) }

func gubernatorJSON(limits, behavior int) []byte {
	type one struct {
		Name     string `json:"name"`
		Key      string `json:"unique_key"`
		Hits     int    `json:"hits"`
		Limit    int64  `json:"limit"`
		Duration int64  `json:"duration"`
		Behavior int    `json:"behavior"`
	}
	var in struct {
		Requests []one `json:"requests"`
	}
	for range limits {
		in.Requests = append(in.Requests, one{"bench", user(), 1, plenty, aMinute, behavior})
	}
	text, err := json.Marshal(in)
	if err != nil {
		panic(err) // it is ours
	}
	return text
}

// overHTTP calls a page as a client of a limiter does: a POST says who it is of in its
// body, a GET, where there is none, in a header.
func (f *field) overHTTP(addr, path string, body func() []byte) way {
	transport := &http.Transport{MaxIdleConnsPerHost: inFlight}
	f.ends = append(f.ends, transport.CloseIdleConnections)
	client, url := &http.Client{Transport: transport}, "http://"+addr+path
	return way{page: &page{url, body}, call: func(ctx context.Context) error { return visit(ctx, client, url, body) }}
}

func visit(ctx context.Context, client *http.Client, url string, body func() []byte) error {
	method, in := http.MethodGet, io.Reader(nil)
	if body != nil {
		method, in = http.MethodPost, bytes.NewReader(body())
	}
	r, err := http.NewRequestWithContext(ctx, method, url, in)
	if err != nil {
		return err
	}
	if body != nil {
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
