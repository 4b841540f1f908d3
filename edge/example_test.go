package edge_test

import (
	"fmt"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// A limiter of its own in five lines.
func ExampleLocal() {
	node, err := edge.Local(limit.RuleSpec{
		Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 2, Per: time.Minute}},
	})
	if err != nil {
		panic(err)
	}
	for range 3 {
		req := node.Rules().Only().NewRequest()
		req.Set("user", "u1")
		d := node.Check(time.Now(), req)
		req.Release()
		fmt.Println(d.Allowed, d.Remaining, d.Rate.Policy)
	}
	// Output:
	// true 1 api.1m
	// true 0 api.1m
	// false 0 api.1m
}
