package membus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
)

// steady is a Link that is the same for all subjects.
func steady(l Link) func(string) Link { return func(string) Link { return l } }

// pair is an impaired bus, and a plain connection to what it wraps.
func pair(t *testing.T, f Faults) (bad *Impaired, plain *Bus) {
	t.Helper()
	plain = New()
	bad = Impair(plain.Connect(), f)
	t.Cleanup(func() {
		for _, b := range []deltasync.Bus{bad, plain} {
			if err := b.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	return bad, plain
}

// record subscribes to pattern; the function it returns takes what has come.
func record(t *testing.T, b deltasync.Bus, pattern string) (taken func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	if _, err := b.Subscribe(pattern, func(_ string, payload []byte) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(payload))
	}); err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		defer func() { got = nil }()
		return got
	}
}

// echo serves subject and counts.
func echo(t *testing.T, b deltasync.Bus, subject string) *atomic.Int64 {
	t.Helper()
	var calls atomic.Int64
	if _, err := b.Serve(subject, "agg", func(_ context.Context, _ string, payload []byte) []byte {
		calls.Add(1)
		return payload
	}); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	return &calls
}

func publish(t *testing.T, b deltasync.Bus, subject string, payload any) {
	t.Helper()
	if err := b.Publish(subject, fmt.Append(nil, payload)); err != nil {
		t.Fatalf("Publish(%q): %v", subject, err)
	}
}

// request waits up to d and says how long it took.
func request(t *testing.T, b deltasync.Bus, d time.Duration, subject, payload string) (string, time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	start := time.Now()
	reply, err := b.Request(ctx, subject, []byte(payload))
	return string(reply), time.Since(start), err
}

func TestDelayIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, plain := pair(t, Faults{Link: func(subject string) Link {
			if subject == "near" {
				return Link{Delay: 10 * time.Millisecond}
			}
			return Link{Delay: 40 * time.Millisecond}
		}})
		taken := record(t, plain, ">")
		publish(t, bad, "far", 1)
		publish(t, bad, "near", 2)
		publish(t, bad, "far", 3)
		for _, step := range []struct {
			after time.Duration
			want  []string
		}{
			{10*time.Millisecond - 1, nil},
			{1, []string{"2"}},
			{30*time.Millisecond - 1, nil},
			{1, []string{"1", "3"}},
		} {
			time.Sleep(step.after) // of virtual time
			if got := taken(); !slices.Equal(got, step.want) {
				t.Errorf("after a further %v received %q, want %q", step.after, got, step.want)
			}
		}

		echo(t, plain, "up")
		if got, took, err := request(t, bad, time.Minute, "up", "x"); got != "x" || took != 80*time.Millisecond || err != nil {
			t.Errorf("Request = %q after %v, %v, want x after 80ms", got, took, err)
		}
		if _, took, err := request(t, bad, time.Minute, "nobody", "x"); took != 80*time.Millisecond || !errors.Is(err, deltasync.ErrNoResponders) {
			t.Errorf("Request to nobody: %v after %v, want ErrNoResponders after 80ms", err, took)
		}
	})
}

func TestJitterStaysInBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, plain := pair(t, Faults{Seed: 1, Link: steady(Link{Delay: 10 * time.Millisecond, Jitter: 10 * time.Millisecond})})
		echo(t, plain, "up")
		const n = 1000
		var sum time.Duration
		for range n {
			_, took, err := request(t, bad, time.Minute, "up", "")
			if err != nil || took < 20*time.Millisecond || took >= 40*time.Millisecond {
				t.Fatalf("Request took %v, %v, want 20 to 40 ms", took, err)
			}
			sum += took
		}
		if mean := sum / n; mean < 29*time.Millisecond || mean > 31*time.Millisecond {
			t.Errorf("mean round trip %v, want about 30 ms", mean)
		}
	})
}

// journey publishes n messages through l, one a millisecond, with others on
// other subjects between them, and returns what arrived.
func journey(t *testing.T, seed uint64, n int, l Link, others int) (arrived []string, c Counts) {
	synctest.Test(t, func(t *testing.T) {
		bad, plain := pair(t, Faults{Seed: seed, Link: steady(l)})
		taken := record(t, plain, "hot")
		for i := range n {
			publish(t, bad, "hot", i)
			for o := range others {
				publish(t, bad, fmt.Sprint("other.", o), i)
			}
			time.Sleep(time.Millisecond)
			arrived = append(arrived, taken()...)
		}
		time.Sleep(time.Minute)
		arrived, c = append(arrived, taken()...), bad.Counts()
	})
	return arrived, c
}

func TestLossDuplicationAndReordering(t *testing.T) {
	const n = 5000
	near := func(t *testing.T, what string, got, want int) {
		t.Helper()
		if got < want*9/10 || got > want*11/10 {
			t.Errorf("%s: %d of %d, want about %d", what, got, n, want)
		}
	}
	count := func(arrived []string) (distinct, late int) {
		seen, last := map[string]bool{}, -1
		for _, a := range arrived {
			seen[a] = true
			var i int
			if _, err := fmt.Sscan(a, &i); err != nil {
				t.Fatal(err)
			}
			if i < last {
				late++
			}
			last = max(last, i)
		}
		return len(seen), late
	}
	for _, c := range []struct {
		name                     string
		link                     Link
		lost, twice, late        int
		perfect, inOrder, single bool
	}{
		{name: "a delay alone", link: Link{Delay: 5 * time.Millisecond}, perfect: true, inOrder: true, single: true},
		{name: "loss", link: Link{Loss: 0.2}, lost: n / 5, inOrder: true, single: true},
		{name: "duplication", link: Link{Duplicate: 0.3}, twice: n * 3 / 10, inOrder: true, perfect: true},
		{name: "reordering", link: Link{Reorder: 0.1, Delay: 2 * time.Millisecond}, late: n / 10, perfect: true, single: true},
		{name: "loss of everything", link: Link{Loss: 1}, lost: n, inOrder: true, single: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			arrived, counts := journey(t, 7, n, c.link, 0)
			distinct, late := count(arrived)
			near(t, "lost", n-distinct, c.lost)
			near(t, "came twice", len(arrived)-distinct, c.twice)
			near(t, "came late", late, c.late)
			if c.perfect && distinct != n || c.inOrder && late != 0 || c.single && len(arrived) != distinct {
				t.Errorf("%d distinct of %d arrivals, %d late", distinct, len(arrived), late)
			}
			want := Counts{Messages: n, Lost: uint64(n - distinct), Duplicated: uint64(len(arrived) - distinct), Reordered: counts.Reordered}
			if counts != want {
				t.Errorf("Counts = %+v, want %+v", counts, want)
			}
		})
	}
}

func TestSeedDecidesEverything(t *testing.T) {
	const n = 500
	all := Link{Delay: 3 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.2, Duplicate: 0.2, Reorder: 0.2}
	first, counts := journey(t, 42, n, all, 0)
	again, countsAgain := journey(t, 42, n, all, 0)
	if !slices.Equal(first, again) || counts != countsAgain {
		t.Error("the same seed led to different outcomes")
	}
	if busy, _ := journey(t, 42, n, all, 3); !slices.Equal(first, busy) {
		t.Error("messages on other subjects changed the outcome")
	}
	if other, _ := journey(t, 43, n, all, 0); slices.Equal(first, other) {
		t.Error("another seed led to the same outcome")
	}
	// The choice of what is lost does not depend on the other probabilities.
	lossy, _ := journey(t, 42, n, Link{Loss: 0.2}, 0)
	slices.Sort(first)
	slices.Sort(lossy)
	if !reflect.DeepEqual(slices.Compact(first), slices.Compact(lossy)) {
		t.Error("other faults changed which messages are lost")
	}
}

func TestRequestsSufferBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, plain := pair(t, Faults{Seed: 3, Link: steady(Link{Loss: 0.2, Duplicate: 0.3, Delay: time.Millisecond})})
		calls := echo(t, plain, "up")
		const n = 2000
		answered := 0
		for range n {
			reply, took, err := request(t, bad, time.Second, "up", "x")
			switch {
			case err == nil && reply == "x":
				answered++
			case !errors.Is(err, context.DeadlineExceeded) || took != time.Second:
				t.Fatalf("Request = %q, %v after %v, want x, or DeadlineExceeded after 1s", reply, err, took)
			}
		}
		synctest.Wait()
		// 80 % get there, and 130 % of those are handled; 64 % get back.
		if c := calls.Load(); c < n*98/100 || c > n*110/100 {
			t.Errorf("%d requests were handled %d times, want about %d", n, c, n*104/100)
		}
		if answered < n*61/100 || answered > n*67/100 {
			t.Errorf("%d of %d requests were answered, want about %d", answered, n, n*64/100)
		}
	})
}

func TestCutComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		bad, plain := pair(t, Faults{Link: func(string) Link { return Link{Delay: 10 * time.Millisecond, Cut: cut.Load()} }})
		taken := record(t, plain, "hot")
		calls := echo(t, plain, "up")

		publish(t, bad, "hot", "under way when the cut comes")
		cut.Store(true)
		publish(t, bad, "hot", "sent during the cut")
		if got, took, err := request(t, bad, time.Second, "up", "x"); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("Request during a cut = %q, %v after %v, want DeadlineExceeded after 1s", got, err, took)
		}
		if _, took, err := request(t, bad, time.Second, "nobody", "x"); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("Request to nobody during a cut: %v after %v, want a frozen link, not a refusal", err, took)
		}
		cut.Store(false)
		publish(t, bad, "hot", "sent after it")
		if got, _, err := request(t, bad, time.Second, "up", "x"); got != "x" || err != nil {
			t.Errorf("Request after a cut = %q, %v, want x", got, err)
		}
		if got := taken(); !slices.Equal(got, []string{"sent after it"}) {
			t.Errorf("received %q, want only what was sent after the cut", got)
		}
		if calls.Load() != 1 {
			t.Errorf("%d requests were handled, want the last alone", calls.Load())
		}

		// A cut between request and reply: handled, and not answered.
		time.AfterFunc(15*time.Millisecond, func() { cut.Store(true) })
		if got, _, err := request(t, bad, time.Second, "up", "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Request whose reply is cut off = %q, %v, want DeadlineExceeded", got, err)
		}
		if calls.Load() != 2 {
			t.Errorf("%d requests were handled, want 2", calls.Load())
		}
	})
}

func TestRequestArrivesAfterItsRequesterLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, plain := pair(t, Faults{Link: steady(Link{Delay: 300 * time.Millisecond})})
		calls := echo(t, plain, "up")
		if _, took, err := request(t, bad, 100*time.Millisecond, "up", "x"); !errors.Is(err, context.DeadlineExceeded) || took != 100*time.Millisecond {
			t.Errorf("Request: %v after %v, want DeadlineExceeded after 100ms", err, took)
		}
		time.Sleep(200*time.Millisecond - 1)
		synctest.Wait()
		if calls.Load() != 0 {
			t.Error("the request arrived before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if calls.Load() != 1 {
			t.Errorf("the request was handled %d times, want once", calls.Load())
		}
	})
}

func TestFlightIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		room int
	}{
		{"messages", 10, maxFlying},
		{"bytes", deltasync.MaxPayload, maxFlyingBytes / deltasync.MaxPayload},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, _ := pair(t, Faults{Link: steady(Link{Delay: time.Hour})})
				payload := make([]byte, c.size)
				for range c.room + 100 {
					if err := bad.Publish("hot", payload); err != nil {
						t.Fatalf("Publish: %v", err)
					}
				}
				if got := bad.Counts(); got.Overflowed != 100 || got.Lost != 0 {
					t.Errorf("Counts = %+v, want 100 overflowed", got)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if err := bad.Publish("hot", payload); err != nil {
					t.Fatalf("Publish: %v", err)
				}
				if got := bad.Counts().Overflowed; got != 100 {
					t.Errorf("%d overflowed after the line had emptied, want still 100", got)
				}
			})
		})
	}
}

func TestCloseForgetsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, plain := pair(t, Faults{Link: steady(Link{Delay: 50 * time.Millisecond})})
		taken := record(t, plain, "hot")
		calls := echo(t, plain, "up")
		done := make(chan error)
		go func() { // waited for below
			_, err := bad.Request(context.Background(), "up", nil)
			done <- err
		}()
		publish(t, bad, "hot", "x")
		synctest.Wait()
		if err := bad.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-done; !errors.Is(err, deltasync.ErrClosed) {
			t.Errorf("Request under way at Close: %v, want ErrClosed", err)
		}
		time.Sleep(time.Second)
		if got := taken(); len(got) != 0 || calls.Load() != 0 {
			t.Errorf("after Close %q and %d requests arrived", got, calls.Load())
		}
	})
}
