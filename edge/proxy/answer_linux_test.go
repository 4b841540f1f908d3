package proxy

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// A client that takes its answer without a pause has it, however slowly: what a socket holds back
// until a third of its buffer is free is no pause of his.
func TestSlowTakersHaveTheirAnswers(t *testing.T) {
	const pause = 2 * time.Second
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 1<<20); ; {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}, options{cfg: Config{ClientTimeout: pause}}, hourly(1))
	resp, err := http.Get(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ticker := time.NewTicker(pause / 20)
	defer ticker.Stop()
	for range 50 { // two pauses and a half, at 160 KB a second
		<-ticker.C
		if _, err := io.CopyN(io.Discard, resp.Body, 16<<10); err != nil {
			t.Fatal(err)
		}
	}
	if left := s.metric("spillgate_proxy_requests_total", "result", "left"); left != 0 {
		t.Error("it was taken for one that takes nothing")
	}
}
