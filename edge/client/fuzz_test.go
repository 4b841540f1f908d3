package client_test

import (
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

// Whatever a request says, over either transport it is decided, or refused as a mistake: it
// never passes for want of a decision. Both say the same.
func FuzzCheck(f *testing.F) {
	f.Add("user", "u", "path", "/a?b", uint64(1))
	f.Add("user", "\xff", "client_ip", "unix", uint64(0))
	f.Add("header.x", "<\u2028\x00\"", "header.X", "", uint64(1<<63))
	limiters := map[string]client.Limiter{}
	for name, start := range transports {
		limiters[name] = start(f, limitertest.New(f, limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{{
			Name: "closed", Group: "closed", Deny: true,
		}}}), patient)
	}
	f.Fuzz(func(t *testing.T, a, x, b, y string, cost uint64) {
		check := client.Check{Attributes: map[string]string{a: x, b: y}, Cost: cost}
		said := map[string]string{}
		for name, limiter := range limiters {
			reply, err := limiter.Check(t.Context(), check)
			var wrong *client.Mistake
			switch {
			case reply.Allowed:
				t.Fatalf("%s: passes: %+v, %v", name, reply, err)
			case errors.As(err, &wrong) && !wrong.Setup:
				said[name] = wrong.Detail
			case err != nil || !text(check.Attributes):
				t.Fatalf("%s: %+v, %v", name, reply, err)
			}
		}
		if said["http"] != said["grpc"] {
			t.Fatalf("over HTTP %q, over gRPC %q", said["http"], said["grpc"])
		}
	})
}

// text says that attributes are text.
func text(attributes map[string]string) bool {
	for name, value := range attributes {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return false
		}
	}
	return true
}
