package configs

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/spillgate/spillgate/edge/limit"
)

// quietTime is how long the files must rest before they are read: an editor
// or a ConfigMap's update touches several names for one change.
const quietTime = 100 * time.Millisecond

// RulesWatcher follows rules files. It has always a good set: a change is
// taken whole or not at all.
type RulesWatcher struct {
	paths  []string
	set    *limit.Set
	seen   [sha256.Size]byte // of what was last read, good or bad
	reload chan struct{}
}

// WatchRules loads the rules that the paths hold, as LoadRules does, and
// returns a watcher of them. Nothing is watched until Run.
func WatchRules(paths ...string) (*RulesWatcher, error) {
	w := &RulesWatcher{paths: paths, reload: make(chan struct{}, 1)}
	files, err := readRules(paths)
	if err != nil {
		return nil, err
	}
	w.seen = digest(files)
	if w.set, err = compileFiles(files); err != nil {
		return nil, err
	}
	return w, nil
}

// Set is the rules as they were first loaded.
func (w *RulesWatcher) Set() *limit.Set { return w.set }

// Reload has Run read the files again, changed or not: what SIGHUP means. It
// does not wait, and may be called by any goroutine.
func (w *RulesWatcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is under way already, and will read what is there now
	}
}

// Run watches until ctx ends, in the caller's goroutine. Each new good set is
// given to onChange, and each bad state of the files, once, to onError; the
// last good set stays in force then. The error says why watching is not
// possible, or that the watch was lost; it is nil when ctx ended.
func (w *RulesWatcher) Run(ctx context.Context, onChange func(*limit.Set), onError func(error)) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch rules: %w", err)
	}
	defer func() { _ = notify.Close() }() // nothing of it is left that could fail
	if err := w.follow(notify); err != nil {
		return err
	}
	// What changed since WatchRules read the files would otherwise be missed.
	w.read(false, onChange, onError)
	quiet := time.NewTimer(0)
	quiet.Stop()
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.reload:
			w.read(true, onChange, onError)
		case _, ok := <-notify.Events:
			if !ok {
				return fmt.Errorf("watch rules: %w", fsnotify.ErrClosed)
			}
			quiet.Reset(quietTime)
		case err, ok := <-notify.Errors:
			if !ok {
				return fmt.Errorf("watch rules: %w", fsnotify.ErrClosed)
			}
			// Events were lost: what the files say is all that counts.
			onError(fmt.Errorf("watch rules: %w; reading them again", err))
			quiet.Reset(quietTime)
		case <-quiet.C:
			// A link may lead elsewhere now.
			if err := w.follow(notify); err != nil {
				onError(err)
			}
			w.read(false, onChange, onError)
		}
	}
}

// follow watches directories and never files: a file that is renamed over, as
// editors do, or that is a link to one, as in Kubernetes, would be lost.
func (w *RulesWatcher) follow(notify *fsnotify.Watcher) error {
	for _, path := range w.paths {
		dirs := []string{path}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			dirs[0] = filepath.Dir(path)
			if real, err := filepath.EvalSymlinks(path); err == nil {
				dirs = append(dirs, filepath.Dir(real))
			}
		}
		for _, dir := range dirs {
			if err := notify.Add(dir); err != nil {
				return fmt.Errorf("watch rules in %s: %w", dir, err)
			}
		}
	}
	return nil
}

// read reads the files if they changed, or if it is forced to.
func (w *RulesWatcher) read(forced bool, onChange func(*limit.Set), onError func(error)) {
	files, err := readRules(w.paths)
	if err != nil {
		w.seen = [sha256.Size]byte{} // when the files come back they count as new
		onError(err)
		return
	}
	now := digest(files)
	if now == w.seen && !forced {
		return
	}
	w.seen = now
	set, err := compileFiles(files)
	if err != nil {
		onError(err)
		return
	}
	onChange(set)
}

func digest(files []rulesFile) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d:%s%d:", len(f.name), f.name, len(f.text))
		h.Write(f.text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
