package configs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// watched runs a watcher, and hands on what it says.
type watched struct {
	*RulesWatcher
	sets   chan *limit.Set
	errors chan error
	end    func() // ends Run and waits for that
}

// watch runs a watcher of the paths that does not read them again by itself,
// so that it is the notices which are tested.
func watch(t *testing.T, paths ...string) *watched {
	t.Helper()
	return watchEvery(t, time.Hour, paths...)
}

func watchEvery(t *testing.T, reread time.Duration, paths ...string) *watched {
	t.Helper()
	return watchWith(t, func(w *RulesWatcher) { w.reread = reread }, paths...)
}

func watchWith(t *testing.T, set func(*RulesWatcher), paths ...string) *watched {
	t.Helper()
	w, err := WatchRules(paths...)
	if err != nil {
		t.Fatal(err)
	}
	set(w)
	o := &watched{RulesWatcher: w, sets: make(chan *limit.Set, 100), errors: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	o.end = func() { cancel(); <-done }
	// Ended and waited for by the cleanup.
	go func() {
		defer close(done)
		w.Run(ctx, func(s *limit.Set, _ []Mistake) error { o.sets <- s; return nil }, func(err error) { o.errors <- err })
	}()
	t.Cleanup(o.end)
	o.Reload() // when it has read again it has been watching already
	select {
	case <-o.sets:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is read within 10 s")
	}
	return o
}

func (o *watched) wantSet(t *testing.T, namespace string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case s := <-o.sets:
			if s.Namespace(namespace) != nil {
				return
			}
			t.Logf("passed by: %v", s.Names())
		case <-o.errors: // a half-written file may be seen, and is refused
		case <-deadline:
			t.Fatalf("no set with namespace %q within 10 s", namespace)
		}
	}
}

func (o *watched) wantError(t *testing.T) error {
	t.Helper()
	select {
	case s := <-o.sets:
		t.Fatalf("a set with %v, want an error", s.Names())
	case err := <-o.errors:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("no error within 10 s")
	}
	return nil
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatchKeepsTheLastGoodSet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, file, minimal("one"))
	w := watch(t, file)
	if w.Set().Namespace("one") == nil {
		t.Fatal("the first set is not what the file says")
	}
	writeFile(t, file, minimal("two"))
	w.wantSet(t, "two")

	writeFile(t, file+"~", "schema: spillgate/v1\n") // an editor writes aside and renames over
	if err := os.Rename(file+"~", file); err != nil {
		t.Fatal(err)
	}
	mistakesOf(t, w.wantError(t))
	w.Reload() // asked for, it is told again
	mistakesOf(t, w.wantError(t))

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := w.wantError(t); !errors.Is(err, ErrNoRules) {
		t.Errorf("the file is gone: %v, want ErrNoRules", err)
	}
	writeFile(t, file, minimal("three"))
	w.wantSet(t, "three")

	w.Reload()
	w.wantSet(t, "three")
}

// Kubernetes swaps a link, ..data, to a new directory; the file that is named
// is a link through it and is never touched itself.
func TestWatchFollowsConfigMaps(t *testing.T) {
	dir := t.TempDir()
	version := func(name, namespace string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name, "rules.yaml"), minimal(namespace))
		if err := os.Symlink(name, filepath.Join(dir, "..tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..v1", "one")
	if err := os.Symlink(filepath.Join("..data", "rules.yaml"), filepath.Join(dir, "rules.yaml")); err != nil {
		t.Fatal(err)
	}
	asFile, asDirectory := watch(t, filepath.Join(dir, "rules.yaml")), watch(t, dir)
	for i, namespace := range []string{"two", "three", "four"} {
		version("..w"+string(rune('a'+i)), namespace)
		asFile.wantSet(t, namespace)
		asDirectory.wantSet(t, namespace)
	}
}

func TestWatchNeedsAGoodStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, file, "schema: 7\n")
	_, err := WatchRules(file)
	mistakesOf(t, err)
}

// TestWatchOutlivesAReadThatHangs: a pipe that nobody writes to stands for a file
// system that does not answer.
func TestWatchOutlivesAReadThatHangs(t *testing.T) {
	name := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, name, minimal("one"))
	o := watchWith(t, func(w *RulesWatcher) { w.reread, w.hang = time.Hour, 50*time.Millisecond }, name)
	pipe := name + ".pipe"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(pipe, name); err != nil {
		t.Fatal(err)
	}
	hangs := func() {
		t.Helper()
		if err := o.wantError(t); !strings.Contains(err.Error(), name+" has been read for 50ms") {
			t.Errorf("a read that hangs: %v, want it told, and of what", err)
		}
	}
	answer := func(namespace string) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_WRONLY, 0) // as soon as it is read
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(minimal(namespace)); err != nil {
			t.Error(err)
		}
	}
	hangs()
	answer("two")
	o.wantSet(t, "two")
	o.Reload()
	hangs()
	began := time.Now()
	o.end()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Run ended after %v, want it to leave the read behind", took)
	}
	answer("three") // and that ends, too
	select {
	case s := <-o.sets:
		t.Errorf("told of %v after the end", s.Names())
	default:
	}
}
