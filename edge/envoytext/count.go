package envoytext

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// MostReports is how many buckets one message reports at the most: more than a data plane has,
// by far. Each takes some 600 bytes once it is read, and may be twelve on the wire.
const MostReports = 1 << 16

const (
	// fewBytes are a message that is read as it is: a thousand messages at the most can stand
	// in it, as each takes two bytes.
	fewBytes = 2 << 10
	// mostWithin is how many may stand in a larger one, whatever it is: more than the limits of
	// what is decided in one call come to (100 descriptors of 100 entries). Each takes some
	// hundred bytes, once it is read, and may be two on the wire.
	mostWithin = 11_000
	// eachOfReports is how many stand in the usage of a bucket: its id, the entries of that, which
	// are 32 at the most, and its time. How many buckets there are clients of data planes choose,
	// and all are in one message.
	eachOfReports = 34
	reports       = protoreflect.FullName("envoy.service.rate_limit_quota.v3.RateLimitQuotaUsageReports")
)

// bounded says why a message is not read: too many others stand in it.
func bounded(text []byte, of protoreflect.MessageDescriptor) error {
	if of.FullName() == reports {
		return boundedReports(text, of)
	}
	left := mostWithin
	if !within(text, of, &left, mostNested) {
		return fmt.Errorf("has more than %d messages in it, as descriptors and entries are (split it)", mostWithin)
	}
	return nil
}

// boundedReports bounds what stands in each of the reports, and how many there are.
func boundedReports(text []byte, of protoreflect.MessageDescriptor) error {
	usages := of.Fields().ByName("bucket_quota_usages")
	for n := 0; len(text) > 0; {
		number, kind, size := protowire.ConsumeField(text)
		if size < 0 {
			return nil // whoever reads it says so
		}
		if number == usages.Number() && kind == protowire.BytesType {
			if n++; n > MostReports {
				return fmt.Errorf("has more than %d messages in it: so many buckets are reported at the most", MostReports)
			}
			if left := eachOfReports + 1; !within(text[:size], of, &left, mostNested) {
				return fmt.Errorf("has more than %d messages in it for a bucket, as entries are", eachOfReports)
			}
		}
		text = text[size:]
	}
	return nil
}

// within counts those that stand in a message; false: there are more than are left. What is
// no message ends the count: whoever reads it says so.
func within(text []byte, of protoreflect.MessageDescriptor, left *int, deep int) bool {
	fields := of.Fields()
	for len(text) > 0 {
		number, kind, tag := protowire.ConsumeTag(text)
		if tag < 0 {
			return true
		}
		size := protowire.ConsumeFieldValue(number, kind, text[tag:])
		if size < 0 {
			return true
		}
		if field := fields.ByNumber(number); kind == protowire.BytesType && field != nil && field.Kind() == protoreflect.MessageKind {
			if *left--; *left < 0 {
				return false
			}
			value, _ := protowire.ConsumeBytes(text[tag:]) // it was measured above
			if deep > 0 && !within(value, field.Message(), left, deep-1) {
				return false
			}
		}
		text = text[tag+size:]
	}
	return true
}
