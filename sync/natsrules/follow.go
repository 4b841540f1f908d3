package natsrules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pollEvery is how often a bucket is asked for what is newer than is known; what has come by
	// then is applied at once. A watch would be told instead, and takes a consumer for each edge,
	// which nobody who is not trusted with all of a region's streams may make: it tells whomever it likes.
	pollEvery = 250 * time.Millisecond
	// again is how long a bucket is left alone that could not be opened, or read.
	again = time.Second
	// lookEvery is how often a bucket is asked whether it is there, and what it has.
	lookEvery = 2 * time.Second
	// callTime bounds a call, and openTime reading all that a bucket has.
	callTime = 2 * time.Second
	openTime = 30 * time.Second
)

// FollowConfig is what a Follower follows.
type FollowConfig struct {
	// Open opens the bucket; it is called again whenever that is lost.
	Open func(context.Context) (*Store, error)
	// Apply is given all namespaces' documents, each of a good version or of a new one, in order of
	// their names, and has them in force when it returns nil; otherwise nothing changed. It is called
	// by one goroutine at a time.
	Apply func([]Version) error
	// Tell hears of what went wrong, each once; nil: nobody does.
	Tell func(error)
	// File has the last good versions; empty: there is none.
	File string
	// Now tells the time; nil: time.Now.
	Now func() time.Time
}

// Status is what a Follower knows.
type Status struct {
	Namespaces int       // of good versions, but those that were taken away
	Newest     time.Time // when the newest good version was made; zero: there is none
	Heard      time.Time // when the bucket was last seen to have nothing more than is known; zero: never
	Refused    []string  // namespaces whose newest version is not good, in order
	Older      []string  // those of which the bucket has one that is older than is known
	Lacks      []string  // those that it lacks
}

// Follower keeps up with the rules of a bucket, and has always the last good ones.
type Follower struct {
	cfg FollowConfig

	mu     sync.Mutex         // guards what follows
	newest map[string]Version // that are known, good or not, by namespace
	good   map[string]Version // that are in force
	older  map[string]bool
	lacks  map[string]bool
	heard  time.Time

	told map[string]bool // of what was told; Run's
}

// NewFollower makes a Follower, and reads its file. What is there is not yet in force: see Start.
func NewFollower(cfg FollowConfig) (*Follower, error) {
	if cfg.Open == nil || cfg.Apply == nil {
		return nil, errors.New("rules: Open and Apply: both must be given")
	}
	if cfg.Tell == nil {
		cfg.Tell = func(error) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	f := &Follower{cfg: cfg, newest: map[string]Version{}, good: map[string]Version{}, older: map[string]bool{}, lacks: map[string]bool{}, told: map[string]bool{}}
	if cfg.File == "" {
		return f, nil
	}
	versions, err := readFile(cfg.File)
	for _, v := range versions {
		f.newest[v.Namespace] = v
	}
	return f, err
}

// Start puts in force what the file has; it is false where there is nothing, or it is not good.
func (f *Follower) Start() bool {
	if len(f.newest) == 0 {
		return false
	}
	f.apply(slices.Sorted(maps.Keys(f.newest)))
	return len(f.good) > 0
}

// Status tells.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Heard: f.heard, Older: slices.Sorted(maps.Keys(f.older)), Lacks: slices.Sorted(maps.Keys(f.lacks))}
	for _, v := range f.good {
		if !v.Deleted {
			s.Namespaces++
		}
		if v.At.After(s.Newest) {
			s.Newest = v.At
		}
	}
	for name, v := range f.newest {
		if f.good[name] != v {
			s.Refused = append(s.Refused, name)
		}
	}
	slices.Sort(s.Refused)
	return s
}

// Newest are the newest versions that are known, good or not, one a namespace, in order of their names.
func (f *Follower) Newest() []Version {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Version, 0, len(f.newest))
	for _, name := range slices.Sorted(maps.Keys(f.newest)) {
		out = append(out, f.newest[name])
	}
	return out
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		f.tell("", err)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// tell tells of something wrong, unless it was the last that was told of the same thing.
func (f *Follower) tell(of string, err error) {
	if text := of + "\n" + err.Error(); !f.told[text] {
		maps.DeleteFunc(f.told, func(old string, _ bool) bool { return len(old) > len(of) && old[:len(of)+1] == of+"\n" })
		f.told[text] = true
		f.cfg.Tell(err)
	}
}

// follow is Run until the bucket is lost.
func (f *Follower) follow(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	store, err := f.cfg.Open(opening)
	if err != nil {
		return err
	}
	revision, made, keys, err := store.contents(opening)
	if err != nil {
		return err
	}
	came := map[string]bool{} // what the bucket has
	var changed []string
	readAll := func() error {
		for _, subject := range keys {
			m, err := store.last(ctx, subject)
			if err != nil {
				return err
			}
			if m != nil { // else it went meanwhile
				changed = f.take(m, came, changed)
			}
		}
		f.missing(came)
		f.apply(changed)
		changed = changed[:0]
		return nil
	}
	if err := readAll(); err != nil {
		return err
	}
	f.isHeard()
	poll, look := time.NewTicker(pollEvery), time.NewTicker(lookEvery)
	defer poll.Stop()
	defer look.Stop()
	for behind := 0; ; { // looks in a row at which the bucket had more than came
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
			before := revision
			for {
				m, err := store.next(ctx, ">", revision+1)
				if err != nil {
					return err
				}
				if m == nil {
					break
				}
				revision = m.Sequence
				changed = f.take(m, came, changed)
			}
			if revision > before {
				f.missing(came)
				f.apply(changed)
				changed = changed[:0]
			}
		case <-look.C:
			if keys != nil { // of several servers the one that was asked first may have lagged behind
				if err := readAll(); err != nil {
					return err
				}
				keys = nil
			}
			is, err := f.look(ctx, store, revision, made)
			switch {
			case errors.Is(err, errAnew):
				return err
			case err != nil:
				f.tell("look", err)
			case is:
				behind = 0
			default:
				if behind++; behind == 3 {
					return fmt.Errorf("rules: what is read lags behind its bucket: %w", ErrUnavailable)
				}
			}
		}
	}
}

// take hears a message, and adds to changed whose it is, if it is news.
func (f *Follower) take(m *jetstream.RawStreamMsg, came map[string]bool, changed []string) []string {
	name, news := f.hear(m)
	if name != "" {
		came[name] = true
	}
	if news {
		changed = append(changed, name)
	}
	return changed
}

// errAnew is that a bucket is another by the same name.
var errAnew = errors.New("rules: the bucket was made anew")

// look asks what the bucket has, and says whether all of it came.
func (f *Follower) look(ctx context.Context, store *Store, revision uint64, made time.Time) (is bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	last, now, err := store.state(ctx)
	switch {
	case err != nil:
		return false, err
	case !now.Equal(made):
		return false, errAnew
	case last > revision:
		return false, nil
	}
	f.isHeard()
	return true, nil
}

// isHeard notes that the bucket has nothing more than is known.
func (f *Follower) isHeard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = f.cfg.Now()
}

// hear takes in what a key has, and says whose it is, and whether it is news.
func (f *Follower) hear(m *jetstream.RawStreamMsg) (namespace string, news bool) {
	key := keyOf(m.Subject)
	if m.Header.Get(operation) != "" {
		f.tell(key, fmt.Errorf("rules: key %s was deleted, by somebody who does not keep to versions: %w; what is known stays: take the namespace away as a version", key, ErrBad))
		return "", false
	}
	v, err := read(key, m.Sequence, m.Data)
	if err != nil {
		f.tell(key, err)
		return "", false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last, known := f.newest[v.Namespace]
	switch {
	case !known || v.newer(&last):
		f.newest[v.Namespace] = v
		delete(f.older, v.Namespace)
		return v.Namespace, true
	case last.newer(&v):
		f.older[v.Namespace] = true
		return v.Namespace, false
	default: // it is that
		delete(f.older, v.Namespace)
		return v.Namespace, f.good[v.Namespace] != v
	}
}

// missing takes note of what is known and did not come, and tells of it, and of what is older.
func (f *Follower) missing(came map[string]bool) {
	f.mu.Lock()
	clear(f.lacks)
	for name, v := range f.newest {
		if !came[name] && !v.Deleted {
			f.lacks[name] = true
		}
	}
	lacks, older := slices.Sorted(maps.Keys(f.lacks)), slices.Sorted(maps.Keys(f.older))
	f.mu.Unlock()
	if len(lacks) > 0 {
		f.tell("lacks", fmt.Errorf("rules: the bucket lacks namespaces %q, which stay in force as they are known here: it is new, or was put back from an old copy; write them again, or take them away, as a version", lacks))
	}
	if len(older) > 0 {
		f.tell("older", fmt.Errorf("rules: the bucket has older versions of namespaces %q than are known here, which stay in force: it lags behind, or was put back from an old copy; write them again", older))
	}
}

// apply puts the newest versions of what changed in force, and of what was refused before, as it may be
// good by now: all at once, or, where that is not good, each that is by itself.
func (f *Follower) apply(changed []string) {
	if len(changed) == 0 {
		return
	}
	changed = append(slices.Clone(changed), f.Status().Refused...)
	slices.Sort(changed)
	changed = slices.Compact(changed)
	refusals := map[string]error{}
	with := func(names ...string) (map[string]Version, error) {
		f.mu.Lock()
		next := maps.Clone(f.good)
		for _, name := range names {
			next[name] = f.newest[name]
		}
		f.mu.Unlock()
		var docs []Version
		for _, name := range slices.Sorted(maps.Keys(next)) {
			if v := next[name]; !v.Deleted {
				docs = append(docs, v)
			}
		}
		return next, f.cfg.Apply(docs)
	}
	take := func(next map[string]Version) {
		f.mu.Lock()
		f.good = next
		f.mu.Unlock()
	}
	if next, err := with(changed...); err == nil {
		take(next)
	} else {
		slices.SortFunc(changed, func(x, y string) int {
			return cmp.Or(f.newest[x].At.Compare(f.newest[y].At), cmp.Compare(x, y))
		})
		for before := -1; before != len(changed); { // one may be good once another is in force
			before = len(changed)
			changed = slices.DeleteFunc(changed, func(name string) bool {
				next, err := with(name)
				if err != nil {
					refusals[name] = err
					return false
				}
				take(next)
				return true
			})
		}
		for _, name := range changed {
			f.tell(name, fmt.Errorf("rules: version %d of namespace %s, by %q: %w; the one before stays in force", f.newest[name].Number, name, f.newest[name].Author, refusals[name]))
		}
	}
	if f.cfg.File == "" {
		return
	}
	var keep []Version
	for _, name := range slices.Sorted(maps.Keys(f.good)) {
		keep = append(keep, f.good[name])
	}
	if len(keep) == 0 {
		return
	}
	if err := writeFile(f.cfg.File, keep); err != nil {
		f.tell("file", err)
	}
}
