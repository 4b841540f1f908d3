package deferred

import (
	"testing"
	"time"
)

// So many a second may have it read what became of theirs, whoever they are; what is no id
// costs nothing.
func TestReadsAreBounded(t *testing.T) {
	j := newJet(t)
	q := j.queue(j.connect(), Config{})
	f := front(q, nil, 0)
	f.cfg.Reads = 3
	f.reads.Store(time.Now().Add(time.Hour).UnixNano()) // all places are given
	for range 100 {
		if w := get(f, call("GET", "http://api.example"+StatusPath+"x", "")); w.Code != 404 {
			t.Fatalf("what is no id: %d %s, want 404", w.Code, w.Body)
		}
	}
	if w := get(f, call("GET", "http://api.example"+StatusPath+NewID(), "")); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%d %v %s, want 503, and when to come again", w.Code, w.Header(), w.Body)
	}
	f.reads.Store(0)
	if w := get(f, call("GET", "http://api.example"+StatusPath+NewID(), "")); w.Code != 404 {
		t.Errorf("%d %s, want 404 of an id that is nobody's", w.Code, w.Body)
	}

	f.reads.Store(0)
	at := time.Unix(1000, 0)
	may := func(tries int) (n int) {
		for range tries {
			if f.mayRead(at) {
				n++
			}
		}
		return n
	}
	if n := may(10); n != 3 {
		t.Errorf("%d may at once, want 3", n)
	}
	if at = at.Add(400 * time.Millisecond); may(10) != 1 {
		t.Error("want one more after a third of a second")
	}
	if at = at.Add(time.Hour); may(10) != 3 {
		t.Error("want 3 after an hour")
	}
}
