package configs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// tree is a directory that a test turns upside down.
type tree struct {
	t    *testing.T
	root string
}

func (d tree) path(name string) string { return filepath.Join(d.root, filepath.FromSlash(name)) }

func (d tree) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

// write writes rules, and makes the directories that they stand in.
func (d tree) write(name, namespace string) {
	d.t.Helper()
	d.must(os.MkdirAll(filepath.Dir(d.path(name)), 0o700))
	writeFile(d.t, d.path(name), minimal(namespace))
}

// link is `ln -sfn`, with the rename that makes it atomic.
func (d tree) link(target, name string) {
	d.t.Helper()
	d.must(os.Symlink(target, d.path("new-link")))
	d.must(os.Rename(d.path("new-link"), d.path(name)))
}

func (d tree) remove(name string) {
	d.t.Helper()
	d.must(os.RemoveAll(d.path(name)))
}

// Each step is a change that must be noticed, and leave the watcher able to
// notice the next.
func TestWatchFollowsThePath(t *testing.T) {
	for name, tc := range map[string]struct {
		watch string
		begin func(d tree)
		steps []func(d tree, namespace string)
	}{
		"a directory made again": {"d/rules.yaml",
			func(d tree) { d.write("d/rules.yaml", "begin") },
			[]func(tree, string){
				func(d tree, ns string) { d.remove("d"); d.write("d/rules.yaml", ns) },
				func(d tree, ns string) { d.write("d/rules.yaml", ns) },
				func(d tree, ns string) { d.must(os.Rename(d.path("d"), d.path("aside"))); d.write("d/rules.yaml", ns) },
				func(d tree, ns string) { d.write("d/rules.yaml", ns) },
			}},
		"a directory of rules made again": {"d",
			func(d tree) { d.write("d/a.yaml", "begin") },
			[]func(tree, string){
				func(d tree, ns string) { d.remove("d"); d.write("d/b.yml", ns) },
				func(d tree, ns string) { d.write("d/b.yml", ns) },
				func(d tree, ns string) { d.write("d/c.yaml", ns) },
			}},
		"a link to the file's directory": {"current/rules.yaml",
			func(d tree) { d.write("v1/rules.yaml", "begin"); d.link("v1", "current") },
			[]func(tree, string){
				func(d tree, ns string) { d.write("v2/rules.yaml", ns); d.link("v2", "current") },
				func(d tree, ns string) { d.write("v2/rules.yaml", ns) },
				func(d tree, ns string) { d.write("v3/rules.yaml", ns); d.link(d.path("v3"), "current") },
			}},
		"a link that stands apart": {"links/current/rules.yaml",
			func(d tree) {
				d.write("versions/v1/rules.yaml", "begin")
				d.must(os.Mkdir(d.path("links"), 0o700))
				d.link("../versions/v1", "links/current")
			},
			[]func(tree, string){
				func(d tree, ns string) {
					d.write("versions/v2/rules.yaml", ns)
					d.link("../versions/v2", "links/current")
				},
				func(d tree, ns string) { d.write("versions/v2/rules.yaml", ns) },
			}},
		"a link to the directory of rules": {"current",
			func(d tree) { d.write("v1/rules.yaml", "begin"); d.link("v1", "current") },
			[]func(tree, string){
				func(d tree, ns string) { d.write("v2/rules.yaml", ns); d.link("v2", "current") },
				func(d tree, ns string) { d.write("v2/rules.yaml", ns) },
				func(d tree, ns string) { d.write("v3/rules.yaml", ns); d.link("v3", "current") },
			}},
		"a link to the file, which is elsewhere": {"d/rules.yaml",
			func(d tree) { d.write("real/r", "begin"); d.write("d/x", "x"); d.link("../real/r", "d/rules.yaml") },
			[]func(tree, string){
				func(d tree, ns string) { d.write("real/r", ns) },
				func(d tree, ns string) { d.remove("real"); d.write("real/r", ns) },
			}},
		"a link in a directory of rules, to elsewhere": {"d",
			func(d tree) { d.write("real/r", "begin"); d.write("d/x", "x"); d.link("../real/r", "d/rules.yaml") },
			[]func(tree, string){
				func(d tree, ns string) { d.write("real/r", ns) },
			}},
		"links through links": {"a/rules.yaml",
			func(d tree) { d.write("v1/rules.yaml", "begin"); d.link("v1", "b"); d.link("b", "a") },
			[]func(tree, string){
				func(d tree, ns string) { d.write("v2/rules.yaml", ns); d.link("v2", "b") },
				func(d tree, ns string) { d.write("v3/rules.yaml", ns); d.link("v3", "a") },
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := tree{t, t.TempDir()}
			tc.begin(d)
			w := watch(t, d.path(tc.watch))
			for i, step := range tc.steps {
				namespace := "step" + string(rune('1'+i))
				step(d, namespace)
				w.wantSet(t, namespace)
			}
		})
	}
}

// What the kernel gives no notice of is read in time, and SIGHUP makes the
// watcher look where the rules are now.
func TestWatchFindsWhatItGetsNoNoticeOf(t *testing.T) {
	replaced := func(d tree, namespace string) {
		d.must(os.Rename(d.path("a"), d.path("aside-"+namespace)))
		d.write("a/b/c/rules.yaml", namespace)
	}
	d := tree{t, t.TempDir()}
	d.write("a/b/c/rules.yaml", "begin")
	asked, sweeping := watch(t, d.path("a/b/c/rules.yaml")), watchEvery(t, 20*time.Millisecond, d.path("a/b/c/rules.yaml"))
	replaced(d, "two")
	sweeping.wantSet(t, "two")
	asked.Reload()
	asked.wantSet(t, "two")
	d.write("a/b/c/rules.yaml", "three")
	asked.wantSet(t, "three")
}

// A neighbour that writes without end must not put a change off for ever.
func TestWatchReadsWhatNeverRests(t *testing.T) {
	d := tree{t, t.TempDir()}
	d.write("a.yaml", "begin")
	d.write("b.yaml", "busy")
	w := watch(t, d.root)
	stop, stopped := make(chan struct{}), make(chan struct{})
	// Ended and waited for below.
	go func() {
		defer close(stopped)
		pace := time.NewTicker(quietTime / 10)
		defer pace.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-pace.C:
				_ = os.Chtimes(d.path("b.yaml"), now, now)
			}
		}
	}()
	d.write("a.yaml", "two")
	w.wantSet(t, "two")
	close(stop)
	<-stopped
}

func TestOnlySomeNamesConcernTheRules(t *testing.T) {
	d := tree{t, t.TempDir()}
	root, err := filepath.EvalSymlinks(d.root)
	d.must(err)
	d.root = root
	d.write("v1/rules.yaml", "one")
	d.link("v1", "..data")
	d.link("..data/rules.yaml", "rules.yaml")
	d.link("..data/rules.yaml", "loop1")
	d.link("loop2", "loop1")
	d.link("loop1", "loop2")
	for _, tc := range []struct {
		path      string
		concern   []string
		unrelated []string
	}{
		{"rules.yaml", []string{"rules.yaml", "..data", "v1", "v1/rules.yaml"}, []string{"edge.log", "other.yaml", "..tmp", "v1/other.yaml"}},
		{"", []string{"rules.yaml", "..data", "v1", "v1/rules.yaml", "new.yml", "."}, []string{"edge.log", "rules.test.yaml", ".rules.yaml.swp", "rules.yaml~", "v1/edge.log"}},
		{"none/of/it.yaml", []string{"none"}, []string{"none/of", "it.yaml"}},
		{"loop1", []string{"loop1", "loop2"}, []string{"rules.yaml"}},
	} {
		p := placesOf([]string{d.path(tc.path)})
		for _, name := range tc.concern {
			if !p.concern(d.path(name)) {
				t.Errorf("%q: a change of %q is ignored", tc.path, name)
			}
		}
		for _, name := range tc.unrelated {
			if p.concern(d.path(name)) {
				t.Errorf("%q: a change of %q has the rules read", tc.path, name)
			}
		}
	}
}

// A daemon may log beside its rules: telling of their absence again and again
// would be a change to tell of.
func TestAbsenceIsToldOnce(t *testing.T) {
	d := tree{t, t.TempDir()}
	d.write("rules.yaml", "one")
	w, err := WatchRules(d.path("rules.yaml"))
	d.must(err)
	var told []error
	sets := 0
	read := func(forced bool, wantTold, wantSets int) {
		t.Helper()
		w.read(forced, func(*limit.Set, []Mistake) error { sets++; return nil }, func(err error) { told = append(told, err) })
		if len(told) != wantTold || sets != wantSets {
			t.Fatalf("told %v and gave %d sets, want %d and %d", told, sets, wantTold, wantSets)
		}
	}
	read(false, 0, 0)
	d.remove("rules.yaml")
	read(false, 1, 0)
	read(false, 1, 0)
	read(true, 2, 0) // asked for, it is told again
	if !errors.Is(told[0], ErrNoRules) {
		t.Errorf("told %v, want ErrNoRules", told[0])
	}
	d.write("rules.yaml", "one")
	read(false, 2, 1) // they are back, and that is news
	read(false, 2, 1)
	d.remove("rules.yaml")
	read(false, 3, 1)
}

func TestWhatCannotBeWatchedIsToldOnce(t *testing.T) {
	d := tree{t, t.TempDir()}
	d.write("file", "one")
	n, err := watchPlaces(&places{must: map[string]bool{d.path("file/x"): true, d.path("none"): true, d.root: true}})
	defer n.close()
	if err == nil || !strings.Contains(err.Error(), d.path("file/x")) || strings.Contains(err.Error(), "none") {
		t.Errorf("error %v, want one about file/x alone", err)
	}
	d.write("another", "two")
	select {
	case <-n.events():
	case <-time.After(10 * time.Second):
		t.Error("what can be watched is not")
	}
	w := &RulesWatcher{reread: rereadTime}
	var told []error
	tell := func(err error) { w.tellBlind(err, func(err error) { told = append(told, err) }) }
	for range 3 {
		tell(err)
	}
	if len(told) != 1 || !strings.Contains(told[0].Error(), "read every 15s instead") {
		t.Errorf("told %v, want it once", told)
	}
	tell(nil)
	tell(err)
	if len(told) != 2 {
		t.Errorf("after it went well in between, told %v, want twice", told)
	}
}

// Without notices there are no events; that is no reason to stop.
func TestWatchWithoutNotices(t *testing.T) {
	var n *notices
	if n.events() != nil || n.errors() != nil {
		t.Error("there are notices where there are none")
	}
	n.close()
}
