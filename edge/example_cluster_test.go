package edge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// Two nodes of a cluster in programs of their own share a limit. Here all of it is one
// process, over a bus in memory: a program that is one of many has natsbus.Connect in its
// place, and aggregators run elsewhere (cmd/aggregator).
func ExampleNew() {
	hub := membus.New()
	aggregator, err := regional.New(regional.Config{Region: "eu", Name: "a1"}, memstore.New(memstore.Config{}))
	if err != nil {
		panic(err)
	}
	stopAggregator := background(hub.Connect(), aggregator.Run)

	start := func(name string) (node *edge.Node, stop func()) {
		node, err := edge.New(edge.Config{
			Region: "eu", Pop: "fra", Name: name, // no two living nodes may share all three
			Secret: []byte("the same at every node"), // in earnest: 32 random bytes
		})
		if err != nil {
			panic(err)
		}
		rules, problems := limit.Compile(limit.Document{Namespace: "acme", Rules: []limit.RuleSpec{{
			Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}},
		}}})
		if rules == nil {
			panic(problems)
		}
		node.SetRules(rules)
		return node, background(hub.Connect(), node.Run)
	}
	ask := func(node *edge.Node, peek bool) limit.Decision {
		req := node.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", "u1")
		req.Peek = peek
		return node.Check(time.Now(), req)
	}

	one, stopOne := start("e1")
	fmt.Println("e1:", ask(one, false).Allowed, ask(one, false).Allowed, ask(one, false).Allowed)
	stopOne() // it tells what it counted before it goes

	other, stopOther := start("e2")
	for ask(other, true).Allowed { // the news takes a tenth of a second or so
		<-time.After(10 * time.Millisecond)
	}
	fmt.Println("e2:", ask(other, false).Allowed)
	stopOther()
	stopAggregator()
	// Output:
	// e1: true true false
	// e2: false
}

// background runs what a function does until its context ends; stop ends that, and waits.
func background(bus deltasync.Bus, run func(context.Context, deltasync.Bus) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, bus) }() // stop ends it
	return func() {
		cancel()
		if err := <-done; err != nil {
			fmt.Println(err)
		}
		_ = bus.Close() // nobody uses it any more
	}
}
