package escrow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

// asked is a log that counts what is asked of it, and can be out of reach. When it lost
// everything it knows no more than that it is new when somebody takes a lane, as Redis.
type asked struct {
	*memstore.Rights
	now                   func() time.Time
	takes, loads, commits int
	down                  error
	lost                  bool      // and not taken since
	born                  time.Time // after the last loss
}

func (l *asked) Wipe() {
	l.Rights.Wipe()
	l.lost = true
}

func (l *asked) Take(ctx context.Context, lane int, token uint64, regions []string) (escrow.Origin, error) {
	if l.takes++; l.down != nil {
		return escrow.Origin{}, l.down
	}
	origin, err := l.Rights.Take(ctx, lane, token, regions)
	if l.lost {
		l.lost, l.born = false, l.now()
	}
	origin.Age = l.now().Sub(l.born)
	return origin, err
}

func (l *asked) Load(ctx context.Context, lane int, token uint64, keys []deltasync.Key) ([]escrow.Deposit, error) {
	if l.loads++; l.down != nil {
		return nil, l.down
	}
	return l.Rights.Load(ctx, lane, token, keys)
}

func (l *asked) Commit(ctx context.Context, lane int, token uint64, d []escrow.Deposit) error {
	l.commits++
	return l.Rights.Commit(ctx, lane, token, d)
}

// keeper is an authority of so many lanes over such a log, and what Config.Interval brings.
func (o *office) keeper(lanes int) (l *asked, a *escrow.Authority, keep func(time.Duration) error) {
	o.Helper()
	l = &asked{Rights: o.log, now: o.now}
	a, err := escrow.New(escrow.Config{Region: "eu", Lanes: lanes, Log: l, Boot: func() time.Duration { return o.boot }})
	if err != nil {
		o.Fatal(err)
	}
	return l, a, func(d time.Duration) (err error) {
		for end := o.boot + d; o.boot < end && err == nil; o.boot += 100 * time.Millisecond {
			err = a.Keep(o.Context(), func(lane int) bool { return lane != 1 })
		}
		return err
	}
}

// quarantine is how long nothing is granted by a log that began anew: a lease, the
// window of office.claim, and what two clocks may differ by.
const quarantine = 15*time.Second + time.Minute + 2*time.Second

// A log that is lost while nobody claims anything is mistrusted from then on, and not
// from when somebody does.
func TestLossIsNoticedUnasked(t *testing.T) {
	o := newOffice(t)
	l, a, keep := o.keeper(1)
	if err := keep(time.Minute); err != nil {
		t.Fatal(err)
	}
	if g := o.claim(a, deltasync.Claim{Holder: 7, Want: 50}); g.Granted == 0 {
		t.Fatalf("answer = %+v, want rights", g)
	}
	l.Wipe()
	if err := keep(1100 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := keep(quarantine); err != nil {
		t.Fatal(err)
	}
	if g := o.claimOf(a, 2, deltasync.Claim{Holder: 8, Want: 50}); g.Granted == 0 {
		t.Errorf("answer = %+v, %v after all was lost, want rights", g, quarantine)
	}
	l.Wipe()
	if err := keep(1100 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if g := o.claimOf(a, 3, deltasync.Claim{Holder: 9, Want: 50}); g.Granted != 0 || g.Flags != 0 {
		t.Errorf("answer = %+v just after all was lost, want no rights, and none to wait for", g)
	}
}

// Who claims before the loss is noticed is answered, by the log that begins then: that
// there is nothing, and nothing to wait for.
func TestLossIsNoticedByAClaim(t *testing.T) {
	o := newOffice(t)
	a := o.authority()
	o.claim(a, deltasync.Claim{Holder: 7, Want: 50})
	for _, key := range []deltasync.Key{1, 2} { // known here, and not
		o.log.Wipe()
		if g := o.claimOf(a, key, deltasync.Claim{Holder: 8, Want: 50}); g.Granted != 0 || g.Flags != 0 {
			t.Errorf("key %d: answer = %+v, want no rights, and none to wait for", key, g)
		}
	}
	if st := a.Stats(); st.Fenced != 0 || st.Failed != 0 {
		t.Errorf("stats = %+v, want none unanswered", st)
	}
}

// Looking costs a read a lane and second, of lanes that are owned; a log out of reach is
// asked no more often, and what was granted by it stands.
func TestLookingIsCheap(t *testing.T) {
	o := newOffice(t)
	l, a, keep := o.keeper(3)
	if err := keep(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if l.takes != 2 || l.loads != 2*10 || l.commits != 0 {
		t.Errorf("%d takes, %d loads, %d commits in 10 s, want 2, a load a lane and second, and 0", l.takes, l.loads, l.commits)
	}
	g := o.claim(a, deltasync.Claim{Holder: 7, Want: 50})
	l.loads, l.down = 0, escrow.ErrLog
	failed := 0
	for range 50 {
		if err := keep(100 * time.Millisecond); errors.Is(err, escrow.ErrLog) {
			failed++
		}
	}
	if failed != 5 || l.loads != 5 {
		t.Errorf("in 5 s without its log Keep failed %d times, after %d loads, want 5 each", failed, l.loads)
	}
	l.down = nil
	if err := keep(time.Second); err != nil {
		t.Fatal(err)
	}
	if again := o.claim(a, deltasync.Claim{Holder: 7, Granted: g.Granted, Want: 50}); l.takes != 2 || again.Granted != g.Granted {
		t.Errorf("%d takes, answer = %+v when the log is back, want 2, and %+v", l.takes, again, g)
	}
}

// Who has taken a lane is left alone until somebody claims rights here.
func TestLookingTakesNothing(t *testing.T) {
	o := newOffice(t)
	l, a, keep := o.keeper(1)
	if err := keep(time.Second); err != nil {
		t.Fatal(err)
	}
	const other = 1 << 40
	if _, err := o.log.Take(t.Context(), 0, other, nil); err != nil {
		t.Fatal(err)
	}
	if err := keep(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := o.log.Commit(t.Context(), 0, other, nil); err != nil || l.takes != 1 {
		t.Errorf("Commit of who took the lane: %v, after %d takes, want 1", err, l.takes)
	}
	l.Wipe()
	if err := keep(1100 * time.Millisecond); err != nil || l.takes != 2 {
		t.Errorf("Keep: %v, after %d takes when the log is gone, want 2", err, l.takes)
	}
	if g := o.claim(a, deltasync.Claim{Holder: 7, Want: 5}); g.Granted != 0 {
		t.Errorf("answer = %+v by a log that is new, want no rights", g)
	}
}
