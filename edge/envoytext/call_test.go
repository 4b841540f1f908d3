package envoytext

import (
	"strings"
	"testing"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// plainCalls are those that plainCall is for.
func plainCalls() []*rlsv3.RateLimitRequest {
	entry := func(key, value string) *rlv3.RateLimitDescriptor_Entry {
		return &rlv3.RateLimitDescriptor_Entry{Key: key, Value: value}
	}
	return []*rlsv3.RateLimitRequest{
		{},
		{Domain: "shop"},
		{Domain: "shop", HitsAddend: 1<<32 - 1, Descriptors: []*rlv3.RateLimitDescriptor{{}}},
		{Domain: "shop", HitsAddend: 300, Descriptors: []*rlv3.RateLimitDescriptor{
			{Entries: []*rlv3.RateLimitDescriptor_Entry{entry("user", "u1"), entry("", ""), entry("generic_key", "")}}, {},
			{Entries: []*rlv3.RateLimitDescriptor_Entry{entry("path", strings.Repeat("/long", 100))}},
		}},
	}
}

// Plain calls are read without proto, as proto reads them; all others are left to it.
func TestPlainCalls(t *testing.T) {
	for _, want := range plainCalls() {
		text, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := &rlsv3.RateLimitRequest{}
		if !plainCall(text, got) || !proto.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
		again := &rlsv3.RateLimitRequest{Domain: "old", HitsAddend: 7, Descriptors: make([]*rlv3.RateLimitDescriptor, 3)}
		if err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text[:len(text)/2]), mem.SliceBuffer(text[len(text)/2:])}, again); err != nil || !proto.Equal(again, want) {
			t.Errorf("in two buffers, over what was there: %v, %v, want %v", again, err, want)
		}
		if took := testing.AllocsPerRun(10, func() { plainCall(text, &rlsv3.RateLimitRequest{}) }); took > 6 {
			t.Errorf("%v took %v allocations", want, took)
		}
	}
	d := &rlv3.RateLimitDescriptor{Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u1"}}}
	for name, change := range map[string]func(){
		"a limit": func() { d.Limit = &rlv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5} },
		"hits":    func() { d.Limit, d.HitsAddend = nil, wrapperspb.UInt64(3) },
		"gives":   func() { d.HitsAddend, d.IsNegativeHits = nil, true },
		"unknown": func() { d.IsNegativeHits = false; d.ProtoReflect().SetUnknown([]byte("\xa0\x06\x01")) },
	} {
		*d = rlv3.RateLimitDescriptor{Entries: d.Entries}
		change()
		want, got := &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*rlv3.RateLimitDescriptor{d}}, &rlsv3.RateLimitRequest{}
		text, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if plainCall(text, got) {
			t.Errorf("%s of a descriptor was read past: %v", name, got)
		}
		if err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, want)
		}
	}
}

// FuzzPlainCall: what it reads is what Unmarshal reads, and it panics at nothing.
func FuzzPlainCall(f *testing.F) {
	for _, in := range plainCalls() {
		text, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		"\x0a\x01\xff", "\x12\x04\x0a\x02\x0a\x00", "\x12\x06\x0a\x04\x0a\x02\x0a\x09\xff\xff", "\x12\x05\x0a\x04\x0a\x01a\x12\x00", "\x0a\x81\x00x",
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x18\xff",
		"\x0a\x01a\x0a\x01b\x18\x01\x18\x02", "\x12\x0a\x0a\x08\x0a\x01a\x0a\x01b\x12\x00", "\x8a\x00\x01a", "\x12\x02\x0a\x00\x12\x00",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, want := &rlsv3.RateLimitRequest{}, &rlsv3.RateLimitRequest{}
		if !plainCall(text, got) {
			return
		}
		if err := Unmarshal(text, want); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%q: %v, and by field %v, %v", text, got, want, err)
		}
	})
}
