package natsrules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsbus/embedded"
	"github.com/spillgate/spillgate/test/proc"
)

// heals is how long anything may take: a mirror whose origin was away comes back 20 s after that.
const heals = 2 * time.Minute

// openJS is the JetStream of a server with a directory.
func openJS(t testing.TB, dir string) (jetstream.JetStream, *embedded.Server) {
	t.Helper()
	s, err := embedded.Start(embedded.Options{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return connect(t, natsbus.Config{InProcess: s.InProcess()}), s
}

func connect(t testing.TB, cfg natsbus.Config) jetstream.JetStream {
	t.Helper()
	bus, err := natsbus.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	js, err := bus.JetStream("")
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func newStore(t testing.TB) (*Store, jetstream.JetStream) {
	t.Helper()
	js, _ := openJS(t, t.TempDir())
	s, err := Make(t.Context(), js, Bucket, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	return s, js
}

// put makes a version, over the one that is there.
func put(t testing.TB, s *Store, namespace, text string) Version {
	t.Helper()
	last, err := s.Get(t.Context(), namespace)
	if err != nil && !errors.Is(err, ErrNone) {
		t.Fatal(err)
	}
	v, err := s.Put(t.Context(), Version{Namespace: namespace, Author: "ada", Message: "because", Text: text, Deleted: text == ""}, last.Number)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVersions(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	now := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	s.now = func() time.Time { return now }
	if _, err := s.Get(t.Context(), "acme"); !errors.Is(err, ErrNone) {
		t.Errorf("Get of what is not there: %v, want ErrNone", err)
	}
	first := put(t, s, "acme", "rules: 1")
	want := Version{Namespace: "acme", Number: 1, At: now.Truncate(time.Microsecond), Author: "ada", Message: "because", Text: "rules: 1"}
	if got, err := s.Get(t.Context(), "acme"); err != nil || !reflect.DeepEqual(got, want) || first != want {
		t.Errorf("Get = %+v, %v, want %+v", got, err, want)
	}
	now = now.Add(-time.Hour) // the clock of who writes is set back
	second := put(t, s, "acme", "rules: 2")
	if second.Number != 2 || !second.newer(&first) || first.newer(&second) {
		t.Errorf("version %+v after %+v, want a newer one", second, first)
	}
	for _, was := range []uint64{0, 1, 3} {
		if _, err := s.Put(t.Context(), Version{Namespace: "acme", Text: "x"}, was); !errors.Is(err, ErrConflict) {
			t.Errorf("Put over version %d, where there are 2: %v, want ErrConflict", was, err)
		}
	}
	put(t, s, "a.b..c-.", "dots")
	put(t, s, "acme", "")
	if got, err := s.Get(t.Context(), "acme"); err != nil || !got.Deleted || got.Number != 3 {
		t.Errorf("Get of what was taken away = %+v, %v", got, err)
	}
	if v, err := s.Put(t.Context(), Version{Namespace: "acme", Text: "anew"}, 0); err != nil || v.Number != 4 {
		t.Errorf("Put of what was taken away = %+v, %v, want version 4", v, err)
	}
	again, err := Open(t.Context(), js, Bucket)
	if err != nil {
		t.Fatal(err)
	}
	history, err := again.History(t.Context(), "acme")
	if err != nil || len(history) != 4 {
		t.Fatalf("History = %+v, %v, want 4 versions", history, err)
	}
	for i, v := range history {
		if v.Number != uint64(i+1) || i > 0 && !v.newer(&history[i-1]) {
			t.Errorf("version %d is %+v", i+1, v)
		}
	}
	if got, err := s.Get(t.Context(), "a.b..c-."); err != nil || got.Text != "dots" {
		t.Errorf("Get = %+v, %v", got, err)
	}
	if _, err := Open(t.Context(), js, "other"); !errors.Is(err, ErrNone) {
		t.Errorf("Open of no bucket: %v, want ErrNone", err)
	}
}

// A version is in force where it is rolled out, and what was there before elsewhere.
func TestVersionsInRegions(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	v, err := s.Put(t.Context(), Version{Namespace: "acme", Text: "new", Regions: "ap,eu", Elsewhere: "old"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "acme"); err != nil || got != v {
		t.Errorf("Get = %+v, %v, want %+v", got, err, v)
	}
	for region, want := range map[string]string{"ap": "new", "eu": "new", "us": "old", "e": "old", "": "old"} {
		if text, ok := v.In(region); text != want || !ok {
			t.Errorf("in %q is %q, %t, want %q", region, text, ok, want)
		}
	}
	v.Elsewhere = ""
	if text, ok := v.In("us"); ok || text != "" {
		t.Errorf("in us, where it is new, is %q", text)
	}
	for name, bad := range map[string]Version{
		"not in order": {Regions: "eu,ap"}, "twice": {Regions: "eu,eu"}, "no region": {Regions: "eu,"}, "no name": {Regions: "EU"}, "everywhere, and elsewhere": {Elsewhere: "old"}, "taken away": {Regions: "eu", Deleted: true},
	} {
		if bad.Namespace = "bad"; !bad.Deleted {
			bad.Text = "new"
		}
		if _, err := s.Put(t.Context(), bad, 0); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v, want ErrBad", name, err)
		}
	}
}

// Of two who have seen the same version one is told.
func TestOneOfTwoWins(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	put(t, s, "acme", "0")
	var won, lost int
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			_, err := s.Put(context.Background(), Version{Namespace: "acme", Text: fmt.Sprint(i)}, 1)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case errors.Is(err, ErrConflict):
				lost++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won != 1 || lost != 7 {
		t.Errorf("%d of 8 have written over one version, %d are told, want 1 and 7", won, lost)
	}
}

func TestBadVersions(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for name, v := range map[string]Version{
		"no name":          {Text: "x"},
		"a name":           {Namespace: "a b", Text: "x"},
		"no text":          {Namespace: "a"},
		"text and deleted": {Namespace: "a", Text: "x", Deleted: true},
		"author":           {Namespace: "a", Text: "x", Author: strings.Repeat("a", 201)},
		"message":          {Namespace: "a", Text: "x", Message: "\xff"},
		"no UTF-8":         {Namespace: "a", Text: "\xff"},
	} {
		if _, err := s.Put(t.Context(), v, 0); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v, want ErrBad", name, err)
		}
	}
	var mixed strings.Builder // which nothing packs well
	for i := range 200_000 {
		fmt.Fprintf(&mixed, "%x", (uint64(i)*0x9e3779b97f4a7c15)^uint64(i)<<7)
	}
	for name, text := range map[string]string{"long": strings.Repeat("a", MaxText+1), "packed": mixed.String()} {
		if _, err := s.Put(t.Context(), Version{Namespace: "a", Text: text}, 0); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", name, err)
		}
	}
	if _, err := s.Put(t.Context(), Version{Namespace: "a", Text: strings.Repeat("a", MaxText)}, 0); err != nil {
		t.Errorf("a document of %d bytes: %v", MaxText, err)
	}
}

// book is what is in force by a Follower; a text that begins with "bad" is not good, nor two that are "same".
type book struct {
	*Follower
	t    testing.TB
	open func(context.Context) (*Store, error)

	mu    sync.Mutex
	rules map[string]string
	told  []string
	stop  func()
}

func newBook(t testing.TB, file string, js jetstream.JetStream) *book {
	t.Helper()
	b := &book{t: t, rules: map[string]string{}}
	f, err := NewFollower(FollowConfig{
		Open: func(ctx context.Context) (*Store, error) { return Open(ctx, js, Bucket) },
		Apply: func(versions []Version) error {
			rules, same := map[string]string{}, 0
			for _, v := range versions {
				if strings.HasPrefix(v.Text, "bad") {
					return fmt.Errorf("line 1: %s", v.Text)
				}
				if rules[v.Namespace] = v.Text; v.Text == "same" {
					same++
				}
			}
			if same > 1 {
				return errors.New("two are the same")
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.rules = rules
			return nil
		},
		Tell: func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.told = append(b.told, err.Error())
		},
		File: file,
	})
	if err != nil {
		t.Fatal(err)
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

// has waits until these are in force, NAMESPACE=TEXT each.
func (b *book) has(want ...string) {
	b.t.Helper()
	proc.Until(b.t, heals, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		var got []string
		for name, text := range b.rules {
			got = append(got, name+"="+text)
		}
		slices.Sort(got)
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

// hears checks how often something was told.
func (b *book) hears(times int, text string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, told := range b.told {
		if strings.Contains(told, text) {
			n++
		}
	}
	if n != times {
		b.t.Errorf("%q was told %d times, want %d: %q", text, n, times, b.told)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	put(t, s, "a", "1")
	put(t, s, "b", "bad")
	b := newBook(t, "", js)
	b.run()
	b.has("a=1")
	b.until("b to be refused, and that all was heard", func(s Status) bool {
		return s.Namespaces == 1 && slices.Equal(s.Refused, []string{"b"}) && time.Since(s.Heard) < heals && !s.Newest.IsZero()
	})
	put(t, s, "c", "1")
	put(t, s, "a", "2")
	b.has("a=2", "c=1") // whatever b is
	put(t, s, "b", "1")
	b.has("a=2", "b=1", "c=1")
	put(t, s, "b", "bad again")
	put(t, s, "c", "2")
	b.has("a=2", "b=1", "c=2")
	put(t, s, "a", "")
	b.has("b=1", "c=2")
	b.hears(1, `version 1 of namespace b, by "ada": line 1: bad; the one before stays in force`)
	b.hears(1, "version 3 of namespace b")
	put(t, s, "b", "same")
	put(t, s, "c", "same")
	b.has("b=same", "c=2") // each is good, both are not
	put(t, s, "b", "3")
	b.has("b=3", "c=same") // what was refused is good by now
	b.until("nothing to be refused", func(s Status) bool { return len(s.Refused) == 0 })
}

// What the bucket loses stays in force, and so does what it has an older version of.
func TestNothingGoesBack(t *testing.T) {
	t.Parallel()
	s, js := newStore(t)
	old := put(t, s, "a", "1")
	put(t, s, "a", "2")
	put(t, s, "b", "1")
	b := newBook(t, "", js)
	b.run()
	b.has("a=2", "b=1")
	if err := js.DeleteKeyValue(t.Context(), Bucket); err != nil {
		t.Fatal(err)
	}
	s, err := Make(t.Context(), js, Bucket, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	b.until("a and b to be lacking", func(s Status) bool { return slices.Equal(s.Lacks, []string{"a", "b"}) })
	value, err := old.pack()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.kv.Put(t.Context(), key("a"), value); err != nil { // a copy is put back
		t.Fatal(err)
	}
	b.until("a to be older, and b to be lacking", func(s Status) bool {
		return slices.Equal(s.Lacks, []string{"b"}) && slices.Equal(s.Older, []string{"a"}) && s.Namespaces == 2
	})
	b.has("a=2", "b=1")
	b.hears(1, `older versions of namespaces ["a"]`)
	put(t, s, "a", "3")
	put(t, s, "b", "2")
	b.has("a=3", "b=2")
	b.until("nothing to be wrong", func(s Status) bool { return len(s.Lacks)+len(s.Older)+len(s.Refused) == 0 })

	// Nor does what is not ours do anything.
	if _, err := s.kv.Put(t.Context(), key("a"), []byte("rules: 9")); err != nil {
		t.Fatal(err)
	}
	if err := s.kv.Delete(t.Context(), key("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.kv.Put(t.Context(), "other", value); err != nil {
		t.Fatal(err)
	}
	put(t, s, "c", "1")
	b.has("a=3", "b=2", "c=1")
	b.hears(1, "key ns.a, revision")
	b.hears(1, "key ns.b was deleted")
	b.hears(1, "key other, revision")
}

// Rules are there without any server, as they were in force last, and what is newer comes when
// there is one.
func TestFileHasTheLastGoodOnes(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "rules")
	js, server := openJS(t, dir)
	s, err := Make(t.Context(), js, Bucket, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if newBook(t, file, js).Start() {
		t.Error("rules are in force without a file")
	}
	put(t, s, "a", "1")
	put(t, s, "b", "1")
	b := newBook(t, file, js)
	b.run()
	b.has("a=1", "b=1")
	put(t, s, "a", "bad")
	put(t, s, "b", "")
	b.has("a=1")
	b.stop()
	server.Shutdown()

	b = newBook(t, file, js)
	if !b.Start() {
		t.Fatal("no rules are in force")
	}
	b.has("a=1")
	b.run()
	b.until("nothing to be heard", func(s Status) bool { return s.Heard.IsZero() && s.Namespaces == 1 })
	b.stop()

	js, _ = openJS(t, dir)
	if s, err = Open(t.Context(), js, Bucket); err != nil {
		t.Fatal(err)
	}
	b = newBook(t, file, js)
	if b.Start(); b.Status().Namespaces != 1 {
		t.Fatal("no rules are in force")
	}
	b.run()
	b.until("a's newest to be refused", func(s Status) bool { return slices.Equal(s.Refused, []string{"a"}) })
	put(t, s, "a", "2")
	b.has("a=2")
	b.stop()

	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"cut": good[:len(good)-9], "a bit": append(bytes.Clone(good[:len(good)-20]), append([]byte{good[len(good)-20] ^ 1}, good[len(good)-19:]...)...), "another file": []byte("rules: 1\n"),
	} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readFile(file); !errors.Is(err, ErrBad) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s: %v, want ErrBad", name, err)
		}
	}
	if left, err := filepath.Glob(file + ".*"); err != nil || len(left) > 0 {
		t.Errorf("%q are left beside it, %v", left, err)
	}
}
