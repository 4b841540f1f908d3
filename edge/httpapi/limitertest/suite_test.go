package limitertest_test

import (
	"testing"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
)

var (
	_ httpapi.Limiter = (*limitertest.Limiter)(nil)
	_ httpapi.Limiter = (*edge.Node)(nil)
)

// The fake and the real thing pass the same suite.
func TestSuite(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		limitertest.Suite(t, func(tb testing.TB, doc limit.Document) limitertest.Tested { return limitertest.New(tb, doc) })
	})
	t.Run("node", func(t *testing.T) {
		limitertest.Suite(t, func(tb testing.TB, doc limit.Document) limitertest.Tested { return limitertest.Node(tb, doc) })
	})
}
