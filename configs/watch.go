package configs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/spillgate/spillgate/edge/limit"
)

const (
	// quietTime is how long the files must rest before they are read: an editor
	// or a ConfigMap's update touches several names for one change.
	quietTime = 100 * time.Millisecond
	// quietMost bounds the wait where they never rest.
	quietMost = time.Second
	// rereadTime is how often they are read whatever the kernel says: it says
	// nothing about what others change over NFS, and may lose events.
	rereadTime = 15 * time.Second
	// followTries bounds the race with somebody who never stops moving links.
	followTries = 3
	// hangTime is after how long a read that goes on is told of, and leaveTime how long
	// Run waits for one when it is to end: a file system over the network may never
	// answer.
	hangTime  = 10 * time.Second
	leaveTime = time.Second
)

// RulesWatcher follows rules files. It has always a good set: a change is
// taken whole or not at all.
type RulesWatcher struct {
	format   Format
	paths    []string
	set      *limit.Set
	warnings []Mistake
	reread   time.Duration
	hang     time.Duration
	reload   chan struct{}
	since    atomic.Int64 // when the read under way began, in Unix ns; 0: there is none

	// What follows belongs to watch.
	seen    [sha256.Size]byte // of what was last read, good or bad
	absent  string            // why nothing could be read, as it was last told
	blind   string            // why something cannot be watched, as it was last told
	notices *notices          // nil where nothing can be watched
}

// WatchRules loads the rules that the paths hold, as LoadRules does, and
// returns a watcher of them. Nothing is watched until Run.
func WatchRules(paths ...string) (*RulesWatcher, error) { return FormatSpillgate.Watch(paths...) }

// Watch is WatchRules for rules of this format.
func (f Format) Watch(paths ...string) (*RulesWatcher, error) {
	w := &RulesWatcher{format: f, paths: paths, reread: rereadTime, hang: hangTime, reload: make(chan struct{}, 1)}
	files, err := readRules(paths)
	if err != nil {
		return nil, err
	}
	w.seen = digest(files)
	if w.set, w.warnings, err = f.checkFiles(files); err != nil {
		return nil, err
	}
	return w, nil
}

// Set is the rules as they were first loaded.
func (w *RulesWatcher) Set() *limit.Set { return w.set }

// Warnings are what of them works, but hardly as it was meant, as Check tells it.
func (w *RulesWatcher) Warnings() []Mistake { return w.warnings }

// Reload has Run read the files again, changed or not: what SIGHUP means. It
// does not wait, and may be called by any goroutine.
func (w *RulesWatcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is under way already, and will read what is there now
	}
}

// Run watches until ctx ends. Each new good set is given to onChange, with its
// warnings, and each bad state of the files, once, to onError, as is what onChange returns; the
// last good set stays in force then.
// Where the kernel gives no notice of changes, onError is told once, and the files
// are read every 15 seconds. Both may be called by several goroutines, one at a time.
// A read that hangs is told of, too; Run leaves it behind when ctx ends.
func (w *RulesWatcher) Run(ctx context.Context, onChange func(*limit.Set, []Mistake) error, onError func(error)) {
	var telling sync.Mutex
	tell := func(what func()) {
		telling.Lock()
		defer telling.Unlock()
		if ctx.Err() == nil { // or it is late: nobody wants to know
			what()
		}
	}
	fail := func(err error) { tell(func() { onError(err) }) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.watch(ctx, func(set *limit.Set, warnings []Mistake) (err error) {
			tell(func() { err = onChange(set, warnings) })
			return err
		}, fail)
	}()
	ticker := time.NewTicker(w.hang)
	defer ticker.Stop()
	for told := int64(0); ; {
		select {
		case <-done:
			return
		case <-ctx.Done():
			select {
			case <-done:
			case <-time.After(leaveTime):
			}
			return
		case now := <-ticker.C:
			if since := w.since.Load(); since != 0 && since != told && now.UnixNano()-since >= int64(w.hang) {
				told = since
				fail(fmt.Errorf("rules: %s has been read for %v: see whether its file system answers; no change of rules is seen until it does", strings.Join(w.paths, ", "), w.hang))
			}
		}
	}
}

// watch is Run but for what hangs.
func (w *RulesWatcher) watch(ctx context.Context, onChange func(*limit.Set, []Mistake) error, onError func(error)) {
	look := func(forced bool) {
		// Always anew, and before reading: a link may lead elsewhere now, and a
		// directory that was made again is another one.
		w.since.Store(time.Now().UnixNano())
		defer w.since.Store(0)
		w.follow(onError)
		w.read(forced, onChange, onError)
	}
	defer func() { w.notices.close() }()
	// What changed since WatchRules read the files would otherwise be missed.
	look(false)
	again := time.NewTicker(w.reread)
	defer again.Stop()
	var quiet, latest <-chan time.Time // nil while nothing has happened
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.reload:
			look(true)
		case e := <-w.notices.events():
			if !w.notices.concern(e.Name) {
				continue
			}
			quiet = time.After(quietTime)
			if latest == nil {
				latest = time.After(quietMost)
			}
		case err := <-w.notices.errors():
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				w.tellBlind(err, onError)
			}
			// Events were lost: what the files say is all that counts.
			quiet = time.After(quietTime)
		case <-again.C:
			look(false)
		case <-quiet:
			quiet, latest = nil, nil
			look(false)
		case <-latest:
			quiet, latest = nil, nil
			look(false)
		}
	}
}

// follow watches what the paths lead through now.
func (w *RulesWatcher) follow(onError func(error)) {
	var err error
	p := placesOf(w.paths)
	for range followTries {
		before := w.notices
		w.notices, err = watchPlaces(p)
		before.close()
		// What changed before it was watched gave no notice.
		now := placesOf(w.paths)
		if now.equal(p) {
			break
		}
		p = now
	}
	w.tellBlind(err, onError)
}

// tellBlind tells of what cannot be watched, once.
func (w *RulesWatcher) tellBlind(err error, onError func(error)) {
	if err == nil {
		w.blind = ""
	} else if w.blind != err.Error() {
		w.blind = err.Error()
		onError(fmt.Errorf("watch rules: %w; they are read every %v instead", err, w.reread))
	}
}

// read reads the files if they changed, or if it is forced to.
func (w *RulesWatcher) read(forced bool, onChange func(*limit.Set, []Mistake) error, onError func(error)) {
	files, err := readRules(w.paths)
	if err != nil {
		w.seen = [sha256.Size]byte{} // when the files come back they count as new
		if forced || w.absent != err.Error() {
			w.absent = err.Error()
			onError(err)
		}
		return
	}
	w.absent = ""
	now := digest(files)
	if now == w.seen && !forced {
		return
	}
	w.seen = now
	set, warnings, err := w.format.checkFiles(files)
	if err == nil {
		err = onChange(set, warnings)
	}
	if err != nil {
		onError(err)
	}
}

func digest(files []rulesFile) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%d:%s%d:", len(f.name), f.name, len(f.text))
		h.Write(f.text)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
