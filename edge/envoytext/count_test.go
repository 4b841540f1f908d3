package envoytext

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A megabyte of nothing but empty messages is refused, and takes no more than itself; the
// largest calls that can be decided are read.
func TestWhatWouldGrowIsRefused(t *testing.T) {
	c := codec{encoding.GetCodecV2(protocodec.Name)}
	many := func(text string) []byte { return bytes.Repeat([]byte(text), 1<<20/len(text)) }
	for name, in := range map[string]struct {
		text []byte
		into proto.Message
	}{
		"descriptors":     {many("\x12\x00"), &rlsv3.RateLimitRequest{}},
		"entries":         {append([]byte("\x12\x80\x80\x40"), many("\x0a\x00")...), &rlsv3.RateLimitRequest{}},
		"reports":         {many("\x12\x00"), &quotav3.RateLimitQuotaUsageReports{}},
		"entries of ids":  {many("\x12\x04\x0a\x02\x0a\x00"), &quotav3.RateLimitQuotaUsageReports{}},
		"no UTF-8 before": {append([]byte("\x0a\x01\xff"), many("\x12\x00")...), &rlsv3.RateLimitRequest{}},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(in.text)}, in.into)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "messages in it") {
			t.Errorf("%s: %v, want it refused", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
			t.Errorf("%s: %d MiB were allocated", name, took>>20)
		}
	}
	call, report := &rlsv3.RateLimitRequest{Domain: "shop"}, &quotav3.RateLimitQuotaUsageReports{Domain: "shop"}
	for range 100 {
		d := &rlv3.RateLimitDescriptor{Limit: &rlv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5}}
		for range 100 {
			d.Entries = append(d.Entries, &rlv3.RateLimitDescriptor_Entry{Key: "k", Value: "v"})
		}
		call.Descriptors = append(call.Descriptors, d)
	}
	for range 25_000 {
		report.BucketQuotaUsages = append(report.BucketQuotaUsages, &quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: &quotav3.BucketId{Bucket: map[string]string{"user": "u", "name": "n", "a": "b", "c": "d"}}, TimeElapsed: durationpb.New(1e9),
		})
	}
	for _, in := range []proto.Message{call, report} {
		text, err := proto.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		got := in.ProtoReflect().New().Interface()
		if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(text[:9]), mem.SliceBuffer(text[9:])}, got); err != nil || !proto.Equal(got, in) {
			t.Errorf("%T of %d bytes: %v", in, len(text), err)
		}
	}
}
