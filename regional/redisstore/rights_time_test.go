package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

func testRights(t *testing.T) *Rights {
	t.Helper()
	r, err := NewRights(Config{Addrs: []string{proc.Redis(t).Addr}, Prefix: "sg", Timeout: 10 * time.Second}, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *Rights) mustTake(t *testing.T, token uint64) time.Duration {
	t.Helper()
	origin, err := r.Take(t.Context(), 0, token, nil)
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	return origin.Age
}

// A clock that is set forward makes the log no older, one that is set back no younger
// than new.
func TestAgeIsByTwoClocks(t *testing.T) {
	r := testRights(t)
	r.mustTake(t, 1)
	for i, off := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		r.now = func() time.Time { return time.Now().Add(off) }
		if age := r.mustTake(t, uint64(i)+2); age < 0 || age > time.Minute {
			t.Errorf("with a clock that is %v off age = %v, want next to none", off, age)
		}
	}
	// As if the server's had been set forward.
	born := time.Now().Add(-24 * time.Hour).UnixMilli()
	if err := r.client.HSet(t.Context(), r.name(0), "b", born).Err(); err != nil {
		t.Fatal(err)
	}
	r.now = time.Now
	if age := r.mustTake(t, 9); age > time.Minute {
		t.Errorf("with a server's clock that was set forward age = %v, want next to none", age)
	}
}

// What nobody removed is forgotten in the end: when its time is up by both clocks, and
// as others are written. What may be held stays, whatever one of the clocks says.
func TestOldRightsAreForgotten(t *testing.T) {
	r := testRights(t)
	r.mustTake(t, 1)
	deposit := func(key, version int) escrow.Deposit {
		return escrow.Deposit{Key: deltasync.Key(key), Version: uint64(version), Holdings: []escrow.Holding{{Holder: 1, Granted: 1, Lasts: time.Minute, Region: "eu"}}}
	}
	const old = 500
	write := func(first, n, version int) {
		t.Helper()
		for i := range n {
			if err := r.Commit(t.Context(), 0, 1, []escrow.Deposit{deposit(first+i, version)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() int {
		t.Helper()
		n, err := r.client.HLen(t.Context(), r.name(0)).Result()
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	keeps := escrow.Keeps(deposit(1, 1).Holdings)
	write(1, old, 1)
	head := left() - old

	r.now = func() time.Time { return time.Now().Add(2 * keeps) } // of this process alone
	write(10_000, old, 1)
	if got := left() - head; got != 2*old {
		t.Errorf("%d deposits, want all %d: by the server's clock their time is not up", got, 2*old)
	}
	r.now = time.Now
	// As if both clocks had gone on by nearly, and by just, as long as deposits are kept.
	for _, tt := range []struct {
		on   time.Duration
		want int
	}{{keeps - time.Minute, 2 * old}, {keeps + time.Minute, old}} {
		ages(t, r, tt.on, old)
		write(20_000, old, 1+int(tt.on/time.Minute))
		write(20_000, old, 2+int(tt.on/time.Minute)) // once around
		if got := left() - head - old; got != tt.want {
			t.Errorf("%v on %d of the deposits are left, want %d", tt.on, got, tt.want)
		}
		ages(t, r, -tt.on, old)
	}
	if got, err := r.Load(context.Background(), 0, 1, []deltasync.Key{1, 10_001}); err != nil || len(got[0].Holdings) != 0 || len(got[1].Holdings) != 1 {
		t.Errorf("Load = %+v, %v, want the second alone", got, err)
	}
}

// ages sets when the first n deposits are due so much back.
func ages(t *testing.T, r *Rights, by time.Duration, n int) {
	t.Helper()
	for key := 1; key <= n; key++ {
		stored, err := r.client.HGet(t.Context(), r.name(0), string(rightsField(deltasync.Key(key)))).Result()
		if err != nil {
			continue // forgotten
		}
		due := uint64(0)
		for i := range dueBytes {
			due = due<<8 | uint64(stored[i])
		}
		moved := string(appendUint(nil, due-uint64(by.Milliseconds()), dueBytes)) + stored[dueBytes:]
		if err := r.client.HSet(t.Context(), r.name(0), string(rightsField(deltasync.Key(key))), moved).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// What proves that nothing is lost does so for a while, and for who was not fenced off.
func TestWhatProvesThatNothingIsLost(t *testing.T) {
	r := testRights(t)
	r.mustTake(t, 1)
	r.lanes[0].safe = true
	if token, acked := r.had(0, true); token != "1" || acked != "1" {
		t.Errorf("had = %q, %q, want 1 and 1", token, acked)
	}
	if err := r.Commit(t.Context(), 0, 1, nil); err != nil {
		t.Fatal(err)
	}
	if token, acked := r.had(0, true); token != "1" || acked != "2" {
		t.Errorf("had = %q, %q, want 1 and 2", token, acked)
	}
	if token, _ := r.had(0, false); token != "" {
		t.Errorf("had = %q of a server that does not write first, want none", token)
	}
	r.now = func() time.Time { return time.Now().Add(provesFor + time.Minute) }
	if token, _ := r.had(0, true); token != "" {
		t.Errorf("had = %q a long time later, want none", token)
	}
	r.now = time.Now
	if err := r.Commit(t.Context(), 0, 7, nil); err == nil {
		t.Error("Commit by another's token: no error")
	}
	if token, _ := r.had(0, true); token != "" {
		t.Errorf("had = %q of who was fenced off, want none", token)
	}
}
