package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// held is a client that sends a byte whenever it is told to.
type held struct {
	sends chan struct{}
	late  chan struct{}
}

func (h *held) Read(p []byte) (int, error) {
	select {
	case <-h.sends:
		return 1, nil
	case <-h.late:
		return 0, os.ErrDeadlineExceeded
	}
}

// A client is late where somebody waits for what it has, and for that alone.
func TestPausesOfBodies(t *testing.T) {
	const pause = time.Second
	for name, c := range map[string]struct {
		upto func(b *body, h *held) // its pauses
		late bool                   // after one that is read
	}{
		"wanted":           {func(*body, *held) {}, true},
		"wanted after one": {func(_ *body, h *held) { time.Sleep(pause / 2); h.sends <- struct{}{}; time.Sleep(pause / 2) }, true},
		"it talks":         {func(b *body, _ *held) { b.talk(true) }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &held{make(chan struct{}), make(chan struct{})}
			b := &body{src: h, pause: pause, left: -1, pauses: &pauses{due: due{most: pause, late: func() { close(h.late) }}}}
			read := make(chan error, 9)
			go func() {
				for err := error(nil); err == nil; {
					_, err = b.Read(make([]byte, 9))
					read <- err
				}
			}()
			synctest.Wait()
			c.upto(b, h)
			time.Sleep(pause + time.Millisecond)
			synctest.Wait()
			if late := b.failure.Load() != nil; late != c.late {
				t.Errorf("%s: late is %v", name, late)
			}
			if !c.late {
				close(h.late)
			}
			synctest.Wait()
		})
	}
}

// Of what waits for its turn nobody wants the body, and then it is wanted.
func TestPausesBeforeTheTurn(t *testing.T) {
	const pause = time.Second
	synctest.Test(t, func(t *testing.T) {
		h := &held{make(chan struct{}), make(chan struct{})}
		b := &body{src: h, pause: pause, left: -1, pauses: &pauses{due: due{most: pause, late: func() { close(h.late) }}}}
		b.stands.ahead = &(&Proxy{}).ahead
		go b.store()
		time.Sleep(time.Hour)
		h.sends <- struct{}{}
		time.Sleep(time.Hour)
		if err := b.failure.Load(); err != nil {
			t.Fatalf("while it waits: %v", *err)
		}
		b.itsTurn()
		time.Sleep(pause - time.Millisecond)
		if err := b.failure.Load(); err != nil {
			t.Errorf("less than a pause from its turn: %v", *err)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if err := b.failure.Load(); err == nil || !errors.Is(*err, os.ErrDeadlineExceeded) {
			t.Error("it may be silent for ever")
		}
	})
}

// So it is over HTTP/2, where net/http ends a body for good at its deadline.
func TestPausesOverHTTP2(t *testing.T) {
	const pause = 700 * time.Millisecond // net/http waits 200 ms for a body before it sends a header
	takesItsTime := func(w http.ResponseWriter, r *http.Request) {
		<-time.After(3 * pause)
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	o := options{cfg: Config{ClientTimeout: pause}}
	for name, s := range map[string]*site{
		"an upstream of HTTP/1": newSite(t, takesItsTime, o, hourly(9)),
		"one of HTTP/2":         (&site{t: t}).before(h2cUpstream(t, takesItsTime), o, hourly(9)),
	} {
		const size = 9_000_000 // more than stands in between
		resp, err := client.Post(s.url, "", strings.NewReader(strings.Repeat("x", size)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprint(size, nil); resp.StatusCode != 200 || string(text) != want || err != nil {
			t.Errorf("%s that takes its time: %d %s, %v; want %s", name, resp.StatusCode, text, err, want)
		}
	}
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reads" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		rc := http.NewResponseController(w)
		_, _ = rc.EnableFullDuplex(), rc.Flush()
	}, o, limit.RuleSpec{Name: "q", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{
		Algorithm: "leaky_bucket", Capacity: 9, Outflow: limit.Flow{Units: 1, Per: 3 * pause}, Queue: true, MaxWait: time.Minute,
	}}})
	s.get("/")
	c := s.dialHTTP2()
	defer c.Close()
	c.post(1, "/", 0, false) // it waits for longer than a pause, and its body is not wanted
	if got := c.status(1); got != "200" {
		t.Errorf("a silent client in the queue: %q, want 200", got)
	}
	c.post(3, "/reads", 0, false)
	if got := c.status(3); got != "408" {
		t.Errorf("a silent client: %q, want 408", got)
	}
}
