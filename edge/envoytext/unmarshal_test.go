package envoytext_test

import (
	"strings"
	"testing"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillgate/spillgate/edge/envoytext"
)

func call(key, value string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{
		Domain: "shop", HitsAddend: 3, Descriptors: []*rlv3.RateLimitDescriptor{
			{Entries: []*rlv3.RateLimitDescriptor_Entry{{Key: "a", Value: "b"}, {Key: key, Value: value}}, IsNegativeHits: true},
			{HitsAddend: wrapperspb.UInt64(7), Limit: &rlv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: 3}},
		},
	}
}

func report(value string) *quotav3.RateLimitQuotaUsageReports {
	return &quotav3.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*quotav3.RateLimitQuotaUsageReports_BucketQuotaUsage{
		{BucketId: &quotav3.BucketId{Bucket: map[string]string{"user": value, "a": "b"}}, NumRequestsAllowed: 1 << 40, TimeElapsed: durationpb.New(1e9 + 5)}, {},
	}}
}

// written is a message as C++ writes it, which does not look at texts: so many bytes of x
// are others.
func written(tb testing.TB, in proto.Message, x, value string) []byte {
	tb.Helper()
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(in)
	if err != nil {
		tb.Fatal(err)
	}
	if strings.Count(string(text), x) != 1 {
		tb.Fatalf("%q is not once in %q", x, text)
	}
	return []byte(strings.Replace(string(text), x, value, 1))
}

// Texts are taken in byte for byte, and all else as proto reads it.
func TestUnmarshalTakesTextsAsTheyAre(t *testing.T) {
	for _, value := range []string{"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "caf\xe9", "\x80\x80\x80\x01", strings.Repeat("\xfe", 300), "\xef\xbf\xbd\xff"} {
		x := strings.Repeat("#", len(value))
		for name, c := range map[string]struct{ in, want proto.Message }{
			"a value":          {call("user", x), call("user", value)},
			"a key":            {call(x, "v"), call(value, "v")},
			"a bucket's value": {report(x), report(value)},
		} {
			got, text := c.want.ProtoReflect().New().Interface(), written(t, c.in, x, value)
			if proto.Unmarshal(text, got) == nil {
				t.Fatalf("%s of %.9q: proto takes it, and this proves nothing", name, value)
			}
			if err := envoytext.Unmarshal(text, got); err != nil || !proto.Equal(got, c.want) {
				t.Errorf("%s of %.9q: %v, %v, want %v", name, value, got, err, c.want)
			}
		}
	}
}

// What is no protocol buffer stays an error.
func TestUnmarshalRefusesWhatIsNoMessage(t *testing.T) {
	whole := written(t, call("user", "#"), "#", "\xff")
	for n := 1; n < len(whole); n++ { // the cuts between two of the fields are messages
		cut, got := whole[:n], &rlsv3.RateLimitRequest{}
		text := strings.ReplaceAll(string(cut), "\xff", "#")
		if want, err := proto.Unmarshal([]byte(text), got), envoytext.Unmarshal(cut, got); (err == nil) != (want == nil) {
			t.Errorf("the first %d bytes: %v, and of UTF-8 %v", n, err, want)
		}
	}
	for name, text := range map[string]string{
		"a byte": "\xff", "field 0": "\x02\x00", "an end of no group": "\x0c", "a length that is none": "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"a text that is longer than the rest": "\x0a\x05\xff", "an entry cut short": "\x12\x06\x0a\x04\x0a\x02\x0a\x09\xff\xff",
		"a group that does not end": "\x0a\x01\xff\xfb\x07",
	} {
		if err := envoytext.Unmarshal([]byte(text), &rlsv3.RateLimitRequest{}); err == nil {
			t.Errorf("%s is taken in", name)
		}
	}
}

// FuzzUnmarshal: whatever proto reads is read the same; what it refuses, and is read, is
// read as it is written: with texts that are no UTF-8, and nothing lost of them.
func FuzzUnmarshal(f *testing.F) {
	for _, in := range []proto.Message{&rlsv3.RateLimitRequest{}, call("user", "u"), report("u")} {
		text, err := proto.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add(written(f, call("user", "#"), "#", "\xff"))
	f.Add(written(f, report("#"), "#", "\xff"))
	f.Add([]byte("\x0a\x01\xff\x0a\x01a\x18\x01\xa0\x06\x01\x18\x02"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, in := range []proto.Message{&rlsv3.RateLimitRequest{}, &quotav3.RateLimitQuotaUsageReports{}} {
			want, got := proto.Clone(in), proto.Clone(in)
			wrong, err := proto.Unmarshal(text, want), envoytext.Unmarshal(text, got)
			switch {
			case wrong == nil && err != nil:
				t.Fatalf("proto reads %v, and this: %v", want, err)
			case wrong == nil && !proto.Equal(got, want):
				t.Fatalf("proto reads %v, and this %v", want, got)
			case wrong != nil && err == nil && !strings.Contains(wrong.Error(), "UTF-8"):
				t.Fatalf("proto refuses %q (%v), and this reads %v", text, wrong, got)
			}
		}
	})
}
