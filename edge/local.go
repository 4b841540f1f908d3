package edge

import (
	"crypto/rand"
	"fmt"

	"github.com/spillgate/spillgate/edge/limit"
)

// What a node of Local holds at the most. So many keys of windows take less than a quarter
// of these bytes; a log takes 16 for each request.
const (
	localKeys  = 1 << 17
	localBytes = 256 << 20
)

// LocalNamespace is the namespace of the rules given to Local.
const LocalNamespace = "local"

// Local makes a node that limits in this process alone: no cluster, no bus,
// nothing to run. Rates that name no scope get scope edge: rules that SetRules puts in
// their place go on with what they counted if they are compiled so, too (see the example
// there). It holds at most 131,072 keys, in 256 MiB (as Config.MaxBytes has it: half of
// that under a flood of keys alone), and forgets those with the smallest share of their
// limit first; New has every other choice. What works, but hardly as it was meant, stands
// in its Rules().Warnings().
func Local(rules ...limit.RuleSpec) (*Node, error) { return LocalWith(limit.Options{}, rules...) }

// LocalWith is Local for rules that need an option, as those with conditions do:
//
//	edge.LocalWith(limit.Options{Conditions: when.Compile}, rules...)
func LocalWith(options limit.Options, rules ...limit.RuleSpec) (*Node, error) {
	set, problems := options.Compile(limit.Document{
		Namespace: LocalNamespace, Defaults: limit.Defaults{Scope: limit.ScopeEdge.String()}, Rules: rules,
	})
	if set == nil {
		return nil, fmt.Errorf("rules: %w", problems[0])
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	n, err := New(Config{Region: "local", Pop: "local", Name: "local", Secret: secret, MaxKeys: localKeys, MaxBytes: localBytes})
	if err != nil {
		return nil, err
	}
	return n, n.SetRules(set)
}
