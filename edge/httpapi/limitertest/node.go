package limitertest

import (
	"testing"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// Node is the real thing with the rules of docs, alone: nothing runs.
func Node(tb testing.TB, docs ...limit.Document) *edge.Node {
	tb.Helper()
	n, err := edge.New(edge.Config{Region: "test", Pop: "test", Name: "test", Secret: []byte("a secret of the tests"), MaxKeys: 1 << 14})
	if err != nil {
		tb.Fatal(err)
	}
	n.SetRules(Compile(tb, docs...))
	return n
}
