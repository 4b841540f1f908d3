package httpapi

import (
	"io"
	"net/http"
	"time"
)

const (
	// skimBytes is what is taken of a body that nobody reads before its request is
	// answered, and skimTime how long that may take.
	skimBytes = 64 << 10
	skimTime  = 20 * time.Millisecond
)

// skim takes what is there of a body that nobody reads, so that the connection may go on.
// Where that is not all of it the answer ends the connection: net/http would wait for the
// rest before it sends the answer, and a proxy that tells the length of its client's body,
// and does not send it, would wait as long.
func skim(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 || r.Body == nil {
		return
	}
	if r.Header.Get("Expect") == "" { // or a read would ask for the body
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(skimTime))
		if _, err := io.CopyN(io.Discard, r.Body, skimBytes); err == io.EOF {
			// Or net/http takes the deadline for the client's leaving.
			_ = rc.SetReadDeadline(time.Time{})
			return
		}
	}
	w.Header().Set("Connection", "close")
}
