package envoy

import (
	"fmt"
	"math/rand/v2"
	"strings"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// None of the words has an underscore: where the reference takes one key and value for
// others we do not mean to follow it. Stars stand at the end, as newer builds of it
// understand them elsewhere, too, and this one does not.
var (
	keys   = []string{"user", "path", "plan", "us*"}
	values = []string{"", "", "a", "a1", "a*", "*", "b.c", "ä", "7", "yes"}
	asked  = []string{"", "a", "a1", "a12", "a*", "b", "b.c", "ä", "7", "yes"}
	units  = []string{"minute", "hour", "Day", "WEEK", "month", "year"}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// chance is true once in n times.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// domainFile is a random configuration of a domain. Names of limits in quota mode begin
// with "quota", so that answers say which they are.
func domainFile(r *rand.Rand, domain string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	b.WriteString("- key: brings\n") // requests bring limits for it
	descriptors(&b, r, "", 3)
	return b.String()
}

func descriptors(b *strings.Builder, r *rand.Rand, indent string, depth int) {
	taken := map[string]bool{}
	for range 2 + r.IntN(5) {
		key, value := pick(r, keys), pick(r, values)
		if strings.HasSuffix(key, "*") {
			value = ""
		}
		if taken[key+value] {
			continue
		}
		taken[key+value] = true
		fmt.Fprintf(b, "%s- key: %q\n", indent, key)
		in := indent + "  "
		if value != "" {
			fmt.Fprintf(b, "%svalue: %q\n", in, value)
		}
		if strings.HasSuffix(key+value, "*") && chance(r, 2) {
			fmt.Fprintf(b, "%sshare_threshold: true\n", in)
		}
		for _, word := range []string{"detailed_metric", "value_to_metric"} {
			if chance(r, 4) {
				fmt.Fprintf(b, "%s%s: true\n", in, word)
			}
		}
		if !chance(r, 4) {
			rateLimit(b, r, in)
		}
		if depth > 1 && chance(r, 2) {
			fmt.Fprintf(b, "%sdescriptors:\n", in)
			descriptors(b, r, in, depth-1)
		}
	}
	if len(taken) == 0 {
		fmt.Fprintf(b, "%s- key: nobody\n", indent)
	}
}

func rateLimit(b *strings.Builder, r *rand.Rand, in string) {
	name := pick(r, []string{"", "", "one", "two"})
	switch r.IntN(6) {
	case 0:
		fmt.Fprintf(b, "%sshadow_mode: true\n", in)
	case 1:
		fmt.Fprintf(b, "%squota_mode: true\n", in)
		name = "quota " + name
	}
	fmt.Fprintf(b, "%srate_limit:\n", in)
	in += "  "
	if chance(r, 10) {
		fmt.Fprintf(b, "%sunlimited: true\n", in)
	} else {
		fmt.Fprintf(b, "%sunit: %s\n%srequests_per_unit: %d\n", in, pick(r, units), in, pick(r, []int{0, 1, 2, 3, 5, 8, 4294967295}))
	}
	if name != "" {
		fmt.Fprintf(b, "%sname: %s\n", in, name)
	}
	if other := pick(r, []string{"one", "two"}); other != name && chance(r, 4) {
		fmt.Fprintf(b, "%sreplaces: [{name: %s}]\n", in, other)
	}
}

// request is a random one to a domain.
func request(r *rand.Rand, domain string) *rlsv3.RateLimitRequest {
	in := &rlsv3.RateLimitRequest{Domain: domain}
	if chance(r, 3) {
		in.HitsAddend = uint32(r.IntN(4))
	}
	for range 1 + r.IntN(3) {
		d := &rlv3.RateLimitDescriptor{}
		if chance(r, 10) {
			unit := 1 + r.Int32N(6)
			if unit == int32(typev3.RateLimitUnit_SECOND) {
				unit++
			}
			// One unit a value: the reference has one counter where windows of two begin together.
			d.Entries = append(d.Entries, &rlv3.RateLimitDescriptor_Entry{Key: "brings", Value: fmt.Sprint(unit)})
			d.Limit = &rlv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: r.Uint32N(4), Unit: typev3.RateLimitUnit(unit)}
		}
		for range r.IntN(4) {
			d.Entries = append(d.Entries, &rlv3.RateLimitDescriptor_Entry{Key: pick(r, []string{"user", "path", "plan", "usage"}), Value: pick(r, asked)})
		}
		if chance(r, 4) {
			d.HitsAddend = wrapperspb.UInt64(r.Uint64N(4))
		}
		in.Descriptors = append(in.Descriptors, d)
	}
	return in
}
