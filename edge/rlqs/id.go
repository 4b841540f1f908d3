package rlqs

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge/envoytext"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

const (
	// maxEntries and maxIDBytes bound the id of a bucket that has a place; idShare what those of
	// many have each, on average.
	maxEntries = 32
	maxIDBytes = 2048
	idShare    = 128
	// maxUsages is what one message reports.
	maxUsages = envoytext.MostReports
)

// MaxMessage is how many bytes the server is to take in one message. An Envoy reports all its
// buckets in one, and would do so again and again if that were too large: it has room for
// those of a stream that have a place, as many again that have none, and a crowd that comes
// between two messages.
const MaxMessage = 4 << 20

// remoteAddress is how rls reads the entry of that name, too.
const remoteAddress = "remote_address"

// nameOf is the same text for ids of the same entries, whatever their order: the length of
// each part stands before it, so that no two ids share one.
func nameOf(domain string, id *quotav3.BucketId) string {
	var b strings.Builder
	write := func(s string) {
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(':')
		b.WriteString(s)
	}
	write(domain)
	for _, key := range slices.Sorted(maps.Keys(id.Bucket)) {
		write(key)
		write(id.Bucket[key])
	}
	return b.String()
}

// validID says what is wrong with a bucket's id, at a place in the message, that no client
// of a data plane brings about: an Envoy makes no entry of an empty value.
func validID(at int, id *quotav3.BucketId) error {
	for key, value := range id.GetBucket() {
		if key == "" {
			return status.Errorf(codes.InvalidArgument, "bucket_quota_usages[%d].bucket_id.bucket: has an entry without a key", at)
		}
		if value == "" {
			return status.Errorf(codes.InvalidArgument, "bucket_quota_usages[%d].bucket_id.bucket: the entry %q is without a value", at, shortened(key))
		}
		if !utf8.ValidString(key) {
			return status.Errorf(codes.InvalidArgument, "bucket_quota_usages[%d].bucket_id.bucket: the key %q is not UTF-8", at, shortened(key))
		}
	}
	switch n := len(id.GetBucket()); {
	case id == nil:
		return status.Errorf(codes.InvalidArgument, "bucket_quota_usages[%d].bucket_id: is missing (a bucket_id_builder makes it; its entries are the attributes that rules see)", at)
	case n > maxEntries:
		return status.Errorf(codes.InvalidArgument, "bucket_quota_usages[%d].bucket_id.bucket: %d entries are too many (%d at the most)", at, n, maxEntries)
	}
	return nil
}

// newRequest is a request of a bucket's attributes under the rules of its namespace.
func newRequest(ns *limit.Namespace, entries map[string]string) *limit.Request {
	req := ns.NewRequest()
	req.Trusted = true // who says what was used, says what it cost
	for key, value := range entries {
		if _, told := entries["client_ip"]; key == remoteAddress && !told {
			req.Set("client_ip", value)
		}
		httpapi.Set(req, key, value)
	}
	return req
}
