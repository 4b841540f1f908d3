package natsentries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/test/proc"
)

// heals is how long anything may take: a mirror whose origin was away comes back 20 s after that.
const heals = 2 * time.Minute

// book is what is in force by a Follower; a tier "bad" is refused.
type book struct {
	*Follower
	t testing.TB

	mu    sync.Mutex
	tiers map[string]string
	told  []string
	stop  func()
}

func newBook(t testing.TB, file string, js jetstream.JetStream) *book {
	t.Helper()
	b := &book{t: t, tiers: map[string]string{}}
	f, err := NewFollower(FollowConfig{
		Open: func(ctx context.Context) (*Store, error) { return Open(ctx, js, rules) },
		Apply: func(entries []Entry) map[int]error {
			b.mu.Lock()
			defer b.mu.Unlock()
			refused := map[int]error{}
			seen := map[string]bool{}
			for i, e := range entries {
				if seen[e.Name] || e.Author != "" || e.Revision != 0 {
					t.Errorf("applied is %+v, want each once, and what the file has alone", e)
				}
				seen[e.Name] = true
				var body struct{ Tier string }
				if !e.Deleted {
					if err := json.Unmarshal(e.Body, &body); err != nil {
						t.Error(err)
					}
				}
				switch body.Tier {
				case "bad":
					refused[i] = errors.New("bad tier")
				case "":
					delete(b.tiers, e.Name)
				default:
					b.tiers[e.Name] = body.Tier
				}
			}
			return refused
		},
		Tell: func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told = append(b.told, err.Error())
		},
		File: file,
	})
	if f == nil {
		t.Fatal(err)
	}
	if err != nil {
		b.told = append(b.told, err.Error())
	}
	b.Follower = f
	return b
}

func (b *book) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	b.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	b.t.Cleanup(b.stop)
}

// has waits until these are in force, TENANT=TIER each.
func (b *book) has(want ...string) {
	b.t.Helper()
	proc.Until(b.t, heals, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		var got []string
		for _, name := range slices.Sorted(maps.Keys(b.tiers)) {
			got = append(got, name+"="+b.tiers[name])
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("in force are %q, want %q; told: %q", got, want, b.told)
		}
		return nil
	})
}

// until waits for a status.
func (b *book) until(what string, is func(Status) bool) {
	b.t.Helper()
	proc.Until(b.t, heals, func() error {
		if s := b.Status(); !is(s) {
			return fmt.Errorf("status %+v, want %s", s, what)
		}
		return nil
	})
}

// hears waits until something was told, so often.
func (b *book) hears(times int, text string) {
	b.t.Helper()
	proc.Until(b.t, heals, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		n := 0
		for _, told := range b.told {
			if strings.Contains(told, text) {
				n++
			}
		}
		if n != times {
			return fmt.Errorf("%q was told %d times, want %d: %q", text, n, times, b.told)
		}
		return nil
	})
}

func TestFollow(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	put(t, s, tier("a", "gold"))
	put(t, s, tier("b", "bad"))
	put(t, s, tier("c", ""))
	b := newBook(t, "", js)
	b.run()
	b.has("a=gold")
	b.until("b to be refused, and that all was heard", func(s Status) bool {
		return s.Entries == 1 && s.Refused == 1 && time.Since(s.Heard) < heals && !s.Newest.IsZero()
	})
	put(t, s, tier("c", "silver"))
	put(t, s, tier("a", "silver"))
	b.has("a=silver", "c=silver") // whatever b is
	put(t, s, tier("b", "gold"))
	b.has("a=silver", "b=gold", "c=silver")
	put(t, s, tier("b", "bad"))
	put(t, s, tier("c", ""))
	b.has("a=silver", "b=gold")
	b.until("b to be refused", func(s Status) bool { return s.Refused == 1 && s.Entries == 2 })
	b.hears(2, `entries: tenant "b" of namespace acme, by "ada": bad tier; the one before stays in force`)
}

// What the bucket loses stays in force, and so does what it has an older entry of.
func TestNothingGoesBack(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	old := put(t, s, tier("a", "gold"))
	put(t, s, tier("a", "silver"))
	put(t, s, tier("b", "gold"))
	b := newBook(t, "", js)
	b.run()
	b.has("a=silver", "b=gold")
	if err := js.DeleteKeyValue(t.Context(), nameOf(rules)); err != nil {
		t.Fatal(err)
	}
	s, err := Make(t.Context(), js, rules, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	b.until("a and b to be lacking", func(s Status) bool { return s.Lacks == 2 })
	value, err := old.pack()
	if err != nil {
		t.Fatal(err)
	}
	publish := func(key string, value []byte) {
		t.Helper()
		if _, err := js.Publish(t.Context(), "$KV.rules_entries."+key, value); err != nil {
			t.Fatal(err)
		}
	}
	publish(old.key(), value) // a copy is put back
	b.until("a to be older", func(s Status) bool { return s.Older == 1 && s.Entries == 2 })
	b.has("a=silver", "b=gold")
	put(t, s, tier("a", "bronze"))
	put(t, s, tier("b", "bronze"))
	b.has("a=bronze", "b=bronze")
	b.until("nothing to be older, or refused", func(s Status) bool { return s.Older+s.Refused == 0 })

	// Nor does what is not ours do anything.
	kv, err := js.KeyValue(t.Context(), nameOf(rules))
	if err != nil {
		t.Fatal(err)
	}
	publish(old.key(), []byte("gold"))
	if err := kv.Purge(t.Context(), "tenant.acme.Yg"); err != nil {
		t.Fatal(err)
	}
	publish("other", value)
	put(t, s, tier("c", "gold"))
	b.has("a=bronze", "b=bronze", "c=gold")
	b.hears(1, "key tenant.acme.YQ, revision")
	b.hears(1, "key tenant.acme.Yg was deleted")
	b.hears(1, "key other, revision")
	put(t, s, tier("b", "gold")) // what was purged is written again
	b.has("a=bronze", "b=gold", "c=gold")
}

// The stream beneath is emptied: all that came was there.
func TestEmptied(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	put(t, s, tier("a", "gold"))
	if err := s.stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newBook(t, "", js)
	b.run()
	b.until("nothing to be there, and heard", func(s Status) bool { return !s.Heard.IsZero() && s.Entries == 0 })
	heard := b.Status().Heard
	b.until("it to be heard again", func(s Status) bool { return s.Heard.Sub(heard) > 10*time.Second })
	put(t, s, tier("a", "silver"))
	b.has("a=silver")
}

// Of many that are wrong a few are told.
func TestFewAreTold(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	var changes []Change
	for i := range 1000 {
		changes = append(changes, Change{Entry: tier(fmt.Sprint(i), "bad")})
	}
	if _, errs := s.PutAll(t.Context(), changes); errs != nil {
		t.Fatal(errs)
	}
	b := newBook(t, "", js)
	b.run()
	b.until("all to be refused", func(s Status) bool { return s.Refused == 1000 })
	b.hears(maxTold, "bad tier")
	b.hears(1, "nothing is told")
}

// Entries are there without any server, as they were in force last, and what is newer comes when there
// is one.
func TestFileHasTheLastGoodOnes(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "entries")
	js, shutdown := openJS(t, dir)
	s, err := Make(t.Context(), js, rules, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if newBook(t, file, js).Start() {
		t.Error("entries are in force without a file")
	}
	for _, e := range []Entry{tier("a", "gold"), tier("b", "gold"), tier("d", "gold")} {
		put(t, s, e)
	}
	b := newBook(t, file, js)
	b.run()
	b.has("a=gold", "b=gold", "d=gold")
	put(t, s, tier("a", "bad"))
	put(t, s, tier("b", ""))
	b.has("a=gold", "d=gold")
	b.stop()
	shutdown()

	b = newBook(t, file, js)
	if !b.Start() {
		t.Fatal("no entries are in force")
	}
	b.has("a=gold", "d=gold")
	b.run()
	b.hears(1, ErrUnavailable.Error())
	b.until("nothing to be heard", func(s Status) bool { return s.Heard.IsZero() && s.Entries == 2 })
	b.stop()

	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(good), "because") {
		t.Error("the file says why")
	}
	damaged := strings.Replace(string(good), `{"tier":"gold"}`, `{"tier":"golf"}`, 1)
	for name, text := range map[string]string{"a bit": damaged, "cut": string(good[:len(good)-9])} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		left, err := readFile(file)
		if !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), "1 lines are damaged") || len(left) != 2 {
			t.Errorf("%s: %d entries, %v, want 2 of 3, and ErrBad", name, len(left), err)
		}
	}
	js, _ = openJS(t, dir)
	if s, err = Open(t.Context(), js, rules); err != nil {
		t.Fatal(err)
	}
	b = newBook(t, file, js)
	b.Start()
	b.run()
	b.until("a's newest to be refused", func(s Status) bool { return s.Refused == 1 })
	put(t, s, tier("a", "silver"))
	b.has("a=silver", "d=gold") // d from the bucket, if not from the file
	b.stop()

	if err := os.WriteFile(file, []byte("rules: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readFile(file); !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("another file: %v, want ErrBad", err)
	}
	if left, err := filepath.Glob(file + ".*"); err != nil || len(left) > 0 {
		t.Errorf("%q are left beside it, %v", left, err)
	}
}

// What has long gone is forgotten.
func TestForget(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := newBook(t, "", nil)
	b.cfg.Now = func() time.Time { return now }
	ends := tier("b", "gold")
	ends.Until = now.Add(time.Hour)
	var messages []message
	for i, e := range []Entry{tier("a", ""), ends, tier("c", "gold")} {
		e.At = now
		value, err := e.pack()
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, message{key: e.key(), revision: uint64(i + 1), value: value})
	}
	b.take(messages)
	for _, tc := range []struct {
		after time.Duration
		known int
		tiers []string
	}{{time.Hour, 3, []string{"b=gold", "c=gold"}}, {Keep + time.Minute, 2, []string{"b=gold", "c=gold"}}, {Keep + 2*time.Hour, 1, []string{"c=gold"}}} {
		now = now.Add(tc.after)
		b.forgot = time.Time{}
		b.forget()
		b.has(tc.tiers...)
		if len(b.good) != tc.known || b.Status().Entries != len(tc.tiers) {
			t.Errorf("%v later %d are known, and %d in force, want %d and %d", tc.after, len(b.good), b.Status().Entries, tc.known, len(tc.tiers))
		}
		now = now.Add(-tc.after)
	}
	now = now.Add(2 * Keep)
	b.take(messages[:2])
	if len(b.good) != 1 {
		t.Error("what was forgotten is taken in again")
	}
}

// 100,000 entries are heard, and then one that is changed.
func TestManyEntries(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	const n = 100_000
	for i := 0; i < n; {
		var changes []Change
		for range 10_000 {
			changes = append(changes, Change{Entry: tier(fmt.Sprintf("tenant-%06d", i), "gold")})
			i++
		}
		if _, errs := s.PutAll(t.Context(), changes); errs != nil {
			t.Fatal(errors.Join(errs...))
		}
	}
	b := newBook(t, filepath.Join(t.TempDir(), "entries"), js)
	began := time.Now()
	b.run()
	b.until("all to be there", func(s Status) bool { return s.Entries == n && !s.Heard.IsZero() })
	t.Logf("%d entries were in force after %v", n, time.Since(began))
	for range 3 {
		was := time.Now()
		put(t, s, tier("tenant-050000", fmt.Sprint(was.UnixNano())))
		proc.Until(t, heals, func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.tiers["tenant-050000"] != fmt.Sprint(was.UnixNano()) {
				return errors.New("it is not yet in force")
			}
			return nil
		})
		t.Logf("one that was changed was in force after %v", time.Since(was))
	}
	b.stop()
	began = time.Now()
	late := newBook(t, b.cfg.File, js)
	if late.Start(); late.Status().Entries != n {
		t.Errorf("the file has %d, want %d", late.Status().Entries, n)
	}
	t.Logf("and from the file after %v", time.Since(began))
}
