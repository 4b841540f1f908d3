package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/proc"
)

// queued is a rule that has requests to /q wait, all but the first for longer than tests do.
func queued() limit.RuleSpec {
	return limit.RuleSpec{Name: "q", Match: limit.MatchSpec{Path: []string{"/q"}}, Key: []string{"client_ip"}, Rates: []limit.RateSpec{{
		Algorithm: "leaky_bucket", Capacity: 100, Outflow: limit.Flow{Units: 1, Per: time.Hour}, Queue: true, MaxWait: 200 * time.Hour,
	}}}
}

// post begins a request with a body, of which parts come; it is over with the last if it ends.
func (c *frames) post(stream uint32, path string, size int, ends bool) {
	c.header(stream, false, ":method", "POST", ":scheme", "http", ":path", path, ":authority", "h")
	for size > 0 {
		n := min(size, maxFrame)
		size -= n
		c.WriteData(stream, ends && size == 0, make([]byte, n))
	}
}

// allowed waits until so many bytes may come on the connection.
func (c *frames) allowed(most int) {
	c.t.Helper()
	for n := 65535; n < most; {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("%d bytes may come on a connection, want %d: %v", n, most, err)
		}
		if f, ok := f.(*http2.WindowUpdateFrame); ok && f.StreamID == 0 {
			n += int(f.Increment)
		}
	}
	c.WriteSettingsAck()
}

// refused waits until a request is, of those for which there is not room for each.
func (c *frames) refused() {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("no request is refused: %v", err)
		}
		if f, ok := f.(*http2.MetaHeadersFrame); ok {
			if status := f.PseudoValue("status"); status != "503" {
				c.t.Fatalf("stream %d: %s, want 503", f.StreamID, status)
			}
			return
		}
	}
}

// taken waits until so much room is for what is not read.
func (s *site) taken(want int64) {
	s.t.Helper()
	proc.Until(s.t, patience, func() error {
		if n := s.proxy.bodies.Taken(); n != want {
			return fmt.Errorf("%d bytes of room are taken, want %d", n, want)
		}
		return nil
	})
}

// Uploads that wait, or that the upstream does not take, keep no others of their connection back.
func TestWaitingUploadsKeepNobodyBack(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-over
			return
		}
		_, _ = io.Copy(w, r.Body)
	}, options{}, queued())
	c := s.dialHTTP2()
	defer c.Close()
	c.allowed(connWindow)
	stream := uint32(1)
	for range 4 {
		c.post(stream, "/slow", 400<<10, false)
		c.post(stream+2, "/q", 400<<10, false)
		stream += 4
	}
	c.post(stream, "/quick", 5, true)
	if got := c.status(stream); got != "200" {
		t.Errorf("beside uploads that wait: %q, want 200", got)
	}
}

// What nobody reads of uploads has room, in all and of an address; those beyond it end, and room
// is given back with the request.
func TestRoomForWhatIsNotRead(t *testing.T) {
	s := newSite(t, func(http.ResponseWriter, *http.Request) {}, options{}, queued())
	s.proxy.unread = time.Second
	s.proxy.bodies.Try(netip.Addr{}, bodyRoom-bodyWindow) // as others have it
	const others = bodyRoom - bodyWindow
	c := s.dialHTTP2()
	defer c.Close()
	c.allowed(connWindow)
	c.post(1, "/q", 1, true) // the first has its turn
	c.status(1)
	c.post(3, "/q", 100<<10, false)
	s.taken(others + bodyWindow)
	c.post(5, "/q", 100<<10, false)
	c.refused()
	for stream := uint32(7); stream < 27; stream += 2 {
		c.post(stream, "/q", 5, stream%4 == 1) // small, and over, or with more to come
	}
	proc.Until(t, patience, func() error {
		if n := s.proxy.ahead.Load(); n != 64<<10+10*aheadFirst {
			return fmt.Errorf("%d bytes are read ahead", n)
		}
		return nil
	})
	s.taken(others + bodyWindow) // they need none
	for stream := uint32(3); stream < 27; stream += 2 {
		c.WriteRSTStream(stream, http2.ErrCodeCancel)
	}
	s.taken(others)
	proc.Until(t, patience, func() error {
		if n := s.proxy.ahead.Load(); n != 0 {
			return fmt.Errorf("%d bytes are read ahead, of nobody", n)
		}
		return nil
	})
	s.result("left", 11)
}

// An upload that the upstream does not take ends likewise, where there is no room, and lasts where
// there is, or where nothing of it is there that could be read.
func TestRoomForWhatIsNotTaken(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	up := ends(t, func(*http2.Framer, uint32) { <-over }) // takes 64 KiB
	s := (&site{t: t}).before(up, options{}, hourly(9))
	s.proxy.unread = time.Second
	s.proxy.bodies.Try(netip.Addr{}, bodyRoom-bodyWindow) // as others have it
	c := s.dialHTTP2()
	defer c.Close()
	c.allowed(connWindow)
	c.post(1, "/", 400<<10, false)
	s.taken(bodyRoom)
	c.post(3, "/", 0, false)
	c.post(5, "/", 400<<10, false)
	c.refused()
	s.result("refused", 1)
	s.taken(bodyRoom)
	s.reaches(2, "spillgate_proxy_requests_under_way")
}

// What was read ahead of a body comes to the upstream with the rest of it, in its turn.
func TestStoredBodiesAreWhole(t *testing.T) {
	got := make(chan string, 9)
	s := newSite(t, func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		got <- fmt.Sprint(string(b), err)
	}, options{}, limit.RuleSpec{Name: "q", Key: []string{"client_ip"}, Rates: []limit.RateSpec{{
		Algorithm: "leaky_bucket", Capacity: 9, Outflow: limit.Flow{Units: 1, Per: 100 * time.Millisecond}, Queue: true, MaxWait: time.Minute,
	}}})
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: patience}
	for _, size := range []int{1, 5000, 300_000} {
		text := strings.Repeat("x", size-1) + "y"
		for _, body := range []io.Reader{strings.NewReader(text), io.MultiReader(strings.NewReader(text))} { // how long it is is said, or not
			resp, err := c.Post(s.url, "", body)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if b := <-got; b != text+"<nil>" {
				t.Errorf("the upstream got %d bytes of %d", len(b)-5, size)
			}
		}
	}
	if n := s.proxy.bodies.Taken(); n != 0 {
		t.Errorf("%d bytes of room are taken, of nobody", n)
	}
}

// A body of which little is left needs no room while it waits.
func TestLittleNeedsNoRoom(t *testing.T) {
	for rest, lasts := range map[int64]bool{littleLeft: true, littleLeft + 1: false, -1: false} {
		synctest.Test(t, func(t *testing.T) {
			b := &body{stands: standing{room: httpapi.NewRoom(0, nil), rest: rest, after: unreadTime}}
			var ended atomic.Bool
			b.endBy(func() { ended.Store(true) })
			b.mu.Lock()
			b.rests()
			b.mu.Unlock()
			time.Sleep(2 * unreadTime)
			if ended.Load() == lasts {
				t.Errorf("with %d bytes left it ended: %v", rest, lasts)
			}
		})
	}
}

// steady is a client that is ahead of who reads; by short reads, it is not.
type steady struct{ short int }

func (s steady) Read(p []byte) (int, error) { return len(p) - s.short, nil }

// An upload for which there is no room lasts as long as the upstream takes it in time.
func TestUploadsWithoutRoomThatMove(t *testing.T) {
	for _, c := range []struct {
		name   string
		client steady
		every  time.Duration // 32 KiB are taken
		lasts  bool
	}{
		{"640 KiB a second", steady{}, 50 * time.Millisecond, true},
		{"320 KiB a second", steady{}, 100 * time.Millisecond, false},
		{"as fast as it comes", steady{1}, 900 * time.Millisecond, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &body{src: c.client, rc: http.NewResponseController(httptest.NewRecorder()), pause: time.Minute, left: -1}
			b.stands = standing{room: httpapi.NewRoom(0, nil), rest: -1, after: unreadTime}
			var ended atomic.Bool
			b.endBy(func() { ended.Store(true) })
			for range 1000 {
				if _, err := b.Read(make([]byte, 32<<10)); err != nil {
					break
				}
				time.Sleep(c.every)
			}
			if ended.Load() == c.lasts {
				t.Errorf("%s: it ended: %v", c.name, c.lasts)
			}
			b.leave(false)
		})
	}
}
