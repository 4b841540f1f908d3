package httpapi

import (
	"context"
	"net/http"
	"sync/atomic"
)

// Ends has each answer over HTTP/1 end its connection once a server is to stop, as ctx says: who keeps
// one then comes to another server, and none is closed under a request that is on its way. Over HTTP/2
// that would be what it is to prevent: other requests are on their way on each. What switches protocols
// goes on.
func Ends(ctx context.Context, h http.Handler) http.Handler {
	var stops atomic.Bool
	context.AfterFunc(ctx, func() { stops.Store(true) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stops.Load() && r.ProtoMajor == 1 && !AsksToSwitch(r) {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
