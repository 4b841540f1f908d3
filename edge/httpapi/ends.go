package httpapi

import (
	"context"
	"net/http"
	"sync/atomic"
)

// Ends has each answer end its connection once a server is to stop, as ctx says: who keeps one then
// comes to another server, and none is closed under a request that is on its way. Over HTTP/2 it has
// the client begin no more there (GOAWAY). What switches protocols goes on.
func Ends(ctx context.Context, h http.Handler) http.Handler {
	var stops atomic.Bool
	context.AfterFunc(ctx, func() { stops.Store(true) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stops.Load() && !AsksToSwitch(r) {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
