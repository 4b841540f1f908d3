package rlqs

import (
	"fmt"
	"strings"
	"testing"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/proto"
)

// What a data plane is told goes in messages of a bounded size, each action once and in order;
// a name that is longer goes alone.
func TestAnswersAreBounded(t *testing.T) {
	var actions []action
	for i := range 450 {
		name := fmt.Sprint(i, strings.Repeat("x", 1900))
		if i == 7 {
			name = fmt.Sprint(i, strings.Repeat("x", 2*maxAnswer))
		}
		actions = append(actions, action{sub: &subscription{bucket: &bucket{id: &quotav3.BucketId{Bucket: map[string]string{"user": name}}}}, kind: kindAbandon})
	}
	next := 0
	for rest := actions; len(rest) > 0; {
		answer := response(rest)
		if size := proto.Size(answer); size > maxAnswer+200 && len(answer.BucketAction) > 1 {
			t.Errorf("%d bytes with %d actions from %d on, want some %d", size, len(answer.BucketAction), next, maxAnswer)
		}
		for _, a := range answer.BucketAction {
			if a.BucketId != actions[next].sub.bucket.id {
				t.Fatalf("action %d is not told in its place", next)
			}
			next++
		}
		rest = rest[len(answer.BucketAction):]
	}
	if next != len(actions) {
		t.Errorf("%d actions were told, of %d", next, len(actions))
	}
}
