package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// maxLinks is how many links a path may lead through, as in the kernel.
const maxLinks = 40

// places are the directories to watch, and the names in them that matter.
// Directories and never files: a file that is renamed over, as editors do, or
// that is a link to one, as in Kubernetes, would be lost. All paths are free
// of links, so that no directory is watched under two names.
type places struct {
	names map[string]bool // full paths: files, links and directories on the way
	rules map[string]bool // directories in which every rules file matters
	must  map[string]bool // directories to watch; true: it is an error if that fails
}

// placesOf walks the paths as they are now. Whatever is missing is waited for
// in the deepest directory that is there.
func placesOf(paths []string) *places {
	p := &places{names: map[string]bool{}, rules: map[string]bool{}, must: map[string]bool{}}
	for _, path := range paths {
		end, found := p.walk(path)
		if !found {
			continue
		}
		entries, err := os.ReadDir(end)
		if err != nil {
			continue // a file; or a directory of which reading the rules will tell
		}
		p.rules[end], p.must[end] = true, true
		for _, e := range entries {
			if rulesName(e.Name()) && e.Type()&fs.ModeSymlink != 0 {
				p.walk(filepath.Join(end, e.Name()))
			}
		}
	}
	return p
}

// walk notes the links that a path leads through, and its end with the
// directory that holds it; it returns the end, and whether it is there.
func (p *places) walk(path string) (end string, found bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", false // there is no working directory; reading the rules will tell
	}
	root := func(path string) string { return filepath.VolumeName(path) + string(filepath.Separator) }
	at, todo := root(path), split(path)
	type step struct {
		dir, name string
		link      bool
	}
	var steps []step
	found = true
	for links := 0; found && len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		full := filepath.Join(at, name)
		info, err := os.Lstat(full)
		link := err == nil && info.Mode()&fs.ModeSymlink != 0
		steps = append(steps, step{at, full, link})
		target := ""
		if link {
			target, err = os.Readlink(full)
			links++
		}
		switch {
		case err != nil, links > maxLinks:
			found = false
		case !link:
			at = full
		default:
			if filepath.IsAbs(target) {
				at = root(target)
			}
			todo = append(split(target), todo...)
		}
	}
	for i, s := range steps {
		if last := i == len(steps)-1; s.link || i >= len(steps)-2 {
			p.names[s.name] = true
			p.must[s.dir] = p.must[s.dir] || last
		}
	}
	return at, found
}

// split is the names that a path is made of.
func split(path string) []string {
	path = strings.TrimPrefix(path, filepath.VolumeName(path))
	return slices.DeleteFunc(strings.Split(filepath.ToSlash(path), "/"), func(s string) bool { return s == "" || s == "." })
}

// concern says whether a change of that name may change the rules. Logs, and
// whatever else is written beside them, would keep them from ever being read.
func (p *places) concern(name string) bool {
	return p.names[name] || p.rules[filepath.Dir(name)] && rulesName(filepath.Base(name))
}

func (p *places) equal(q *places) bool {
	return maps.Equal(p.names, q.names) && maps.Equal(p.rules, q.rules) && maps.Equal(p.must, q.must)
}

// notices are what the kernel says about places.
type notices struct {
	*places
	notify *fsnotify.Watcher
}

// watchPlaces watches the places as well as it can: the error says what it
// cannot, and the notices are of the rest; they may be nil.
func watchPlaces(p *places) (*notices, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	var failed []error
	// Parents first: what is made again after that gives notice to them.
	for _, dir := range slices.Sorted(maps.Keys(p.must)) {
		must := p.must[dir]
		switch err := notify.Add(dir); {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist): // just now, and its parent is watched too
		case errors.Is(err, fs.ErrPermission) && !must: // /home/x may be passed through, not listed
		default:
			failed = append(failed, fmt.Errorf("%s: %w", dir, err))
		}
	}
	return &notices{p, notify}, errors.Join(failed...)
}

// events is nil, and so never ready, where there are no notices.
func (n *notices) events() <-chan fsnotify.Event {
	if n == nil {
		return nil
	}
	return n.notify.Events
}

func (n *notices) errors() <-chan error {
	if n == nil {
		return nil
	}
	return n.notify.Errors
}

func (n *notices) close() {
	if n != nil {
		_ = n.notify.Close() // nothing of it is left that could fail
	}
}
