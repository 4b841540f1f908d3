package natsentries

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// pollEvery is how often a bucket is asked for what is newer than is known.
	pollEvery = 250 * time.Millisecond
	// lookEvery is how often it is asked whether it is the same, and what it has.
	lookEvery = 2 * time.Second
	// again is how long a bucket is left alone that could not be opened, or read.
	again = time.Second
	// openTime bounds opening one.
	openTime = 30 * time.Second
	// saveEvery is how often the file is written at the most, and forgetEvery how often what has long
	// gone is looked for.
	saveEvery   = 5 * time.Second
	forgetEvery = time.Hour
	// maxAway is how long what is known stands for all that a bucket has; it is read whole thereafter.
	maxAway = time.Minute
	// maxTold is how many entries that are wrong are told of one by one, until the next reading of all.
	maxTold = 20
)

// FollowConfig is what a Follower follows.
type FollowConfig struct {
	// Open opens the bucket; it is called again whenever that is lost.
	Open func(context.Context) (*Store, error)
	// Apply is given entries that are newer than what it was given of the same things, each thing once,
	// and has them in force when it returns; what has gone may be among them. It returns which of them it
	// refuses, and why, by their places: of these what was there before stays. It is called by one
	// goroutine at a time.
	Apply func([]Entry) map[int]error
	// Tell hears of what went wrong; nil: nobody does.
	Tell func(error)
	// File has the last good entries; empty: there is none.
	File string
	// Now tells the time; nil: time.Now.
	Now func() time.Time
}

// Status is what a Follower knows.
type Status struct {
	Entries int       // that are good, and not taken away
	Newest  time.Time // when the newest good one was made; zero: there is none
	Heard   time.Time // when the bucket was last seen to have nothing more than is known; zero: never
	Refused int       // whose newest is not good
	Older   int       // of which the bucket has one that is older than is known
	Lacks   int       // that are known, and that it lacked as it was read whole
}

// kept is what a Follower keeps of an entry: little, as there are many.
type kept struct {
	at, until int64 // microseconds since 1970; 0: none
	body      string
}

func keep(e *Entry) kept {
	k := kept{at: e.At.UnixMicro(), body: string(e.Body)}
	if !e.Until.IsZero() {
		k.until = e.Until.UnixMicro()
	}
	return k
}

func (k kept) deleted() bool { return k.body == "" }

// newer says that k was made after o; of two at one instant, neither of which knew of the other, the one
// that is taken away is, or ends later, or has the greater body.
func (k kept) newer(o kept) bool {
	switch {
	case k.at != o.at:
		return k.at > o.at
	case k.deleted() != o.deleted():
		return k.deleted()
	case k.until != o.until:
		return k.until > o.until
	}
	return k.body > o.body
}

// forgotten says that what has gone need not be known any more.
func (k kept) forgotten(now time.Time) bool {
	end := k.until
	if k.deleted() {
		end = k.at
	}
	return end > 0 && now.Sub(time.UnixMicro(end)) > Keep
}

// entry is what is kept of a key, as an entry.
func (k kept) entry(key string) Entry {
	e, _ := parseKey(key) // it was read once
	e.At, e.Deleted = time.UnixMicro(k.at).UTC(), k.deleted()
	if k.until != 0 {
		e.Until = time.UnixMicro(k.until).UTC()
	}
	if !e.Deleted {
		e.Body = []byte(k.body)
	}
	return e
}

// Follower keeps up with the entries of a bucket, and has always the last good ones.
type Follower struct {
	cfg FollowConfig

	mu      sync.Mutex      // guards what follows
	good    map[string]kept // that are in force, by key
	refused map[string]kept // that are newer than these, and not good
	older   map[string]bool // of which the bucket's is
	came    map[string]bool // while the bucket is read whole: what it has
	lacks   int
	live    int // of good, not taken away
	newest  int64
	heard   time.Time

	// Run's alone.
	made     time.Time // the bucket that was read
	revision uint64    // of it, up to which all came; 0: it is to be read whole
	lagging  uint64    // the last revision of a bucket that has not come, though it was read whole again
	told     int       // since the bucket was last read whole
	last     string    // that was told of not reaching it
	dirty    bool      // there is what the file has not
	saved    time.Time
	forgot   time.Time
}

// NewFollower makes a Follower, and reads its file. What is there is not yet in force: see Start. Its
// error, beside a Follower, is what is wrong with the file.
func NewFollower(cfg FollowConfig) (*Follower, error) {
	if cfg.Open == nil || cfg.Apply == nil {
		return nil, errors.New("entries: Open and Apply: both must be given")
	}
	if cfg.Tell == nil {
		cfg.Tell = func(error) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	f := &Follower{cfg: cfg, good: map[string]kept{}, refused: map[string]kept{}, older: map[string]bool{}}
	if cfg.File == "" {
		return f, nil
	}
	found, err := readFile(cfg.File)
	for i := range found {
		f.put(found[i].key(), keep(&found[i]))
	}
	return f, err
}

// put has an entry be in force, and counts it.
func (f *Follower) put(key string, k kept) {
	if was, there := f.good[key]; there && !was.deleted() {
		f.live--
	}
	if !k.deleted() {
		f.live++
	}
	f.good[key] = k
	f.newest = max(f.newest, k.at)
}

// Start puts in force what the file has; it is false where there is nothing.
func (f *Follower) Start() bool {
	batch := make([]Entry, 0, len(f.good))
	for key, k := range f.good {
		batch = append(batch, k.entry(key))
	}
	for i, err := range f.applied(batch) {
		f.tell(fmt.Errorf("entries: %s: %s %.80q: %w", f.cfg.File, batch[i].Kind, batch[i].Name, err))
		delete(f.good, batch[i].key()) // NATS may have a better one
		if !batch[i].Deleted {
			f.live--
		}
	}
	return len(f.good) > 0
}

// Status tells.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Entries: f.live, Heard: f.heard, Refused: len(f.refused), Older: len(f.older), Lacks: f.lacks}
	if f.newest > 0 {
		s.Newest = time.UnixMicro(f.newest).UTC()
	}
	return s
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	defer f.save(true)
	for ctx.Err() == nil {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != f.last { // once, until it is another
			f.last = text
			f.cfg.Tell(err)
		}
		f.save(false)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

// tell tells of an entry that is wrong; of many of the first ones.
func (f *Follower) tell(err error) {
	switch f.told++; {
	case f.told < maxTold:
		f.cfg.Tell(err)
	case f.told == maxTold:
		f.cfg.Tell(fmt.Errorf("%w; of more like this nothing is told until the bucket is read whole again", err))
	}
}

// errAnew is that a bucket is another by the same name, or was put back.
var errAnew = errors.New("entries: the bucket was made anew, or put back from a copy")

// follow is Run until the bucket is lost. It begins with all that is there.
func (f *Follower) follow(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	store, err := f.cfg.Open(opening)
	if err != nil {
		return err
	}
	in, err := store.reader(">")
	if err != nil {
		return err
	}
	defer in.close()
	last, made, err := store.state(opening)
	if err != nil {
		return err
	}
	if !made.Equal(f.made) || last < f.revision || f.cfg.Now().Sub(f.Status().Heard) > maxAway {
		f.made, f.revision = made, 0
	}
	if f.revision == 0 {
		if err := f.readAll(ctx, in); err != nil {
			f.revision = 0
			return err
		}
	}
	f.last = ""
	poll, look := time.NewTicker(pollEvery), time.NewTicker(lookEvery)
	defer poll.Stop()
	defer look.Stop()
	for behind := 0; ; { // looks in a row at which the bucket had more than came
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
			if err := f.read(ctx, in); err != nil {
				return err
			}
			f.save(false)
		case <-look.C:
			f.forget()
			switch last, made, err := store.state(ctx); {
			case err != nil:
				return err
			case !made.Equal(f.made) || last < f.revision:
				f.revision = 0
				return errAnew
			case last == f.revision || last == f.lagging: // what was last may have gone
				f.isHeard()
				behind = 0
			default:
				if behind++; behind == 5 {
					f.revision, f.lagging = 0, last
					return fmt.Errorf("entries: what is read lags behind its bucket: %w", ErrUnavailable)
				}
			}
		}
	}
}

// readAll takes in all that the bucket has, and notes what it lacks.
func (f *Follower) readAll(ctx context.Context, in *reader) error {
	f.mu.Lock()
	f.came = make(map[string]bool, len(f.good))
	f.mu.Unlock()
	f.told = 0
	if err := f.read(ctx, in); err != nil {
		return err
	}
	f.missing()
	f.isHeard()
	f.save(true)
	return nil
}

// read takes in all that is newer than what came.
func (f *Follower) read(ctx context.Context, in *reader) error {
	for {
		messages, more, err := in.next(ctx, f.revision+1, maxPerBatch)
		if err != nil {
			return err
		}
		if len(messages) > 0 {
			f.revision = messages[len(messages)-1].revision
			f.take(messages)
		}
		if !more {
			return nil
		}
	}
}

// take puts in force what is news.
func (f *Follower) take(messages []message) {
	var batch []Entry
	at := make(map[string]int, len(messages)) // of batch: one may have been changed while it was read
	for i := range messages {
		e, err := messages[i].entry()
		if err != nil {
			f.tell(err)
			continue
		}
		news, err := f.hear(messages[i].key, &e)
		if err != nil {
			f.tell(err)
		}
		if !news {
			continue
		}
		if k, again := at[messages[i].key]; again {
			if keep(&e).newer(keep(&batch[k])) {
				batch[k] = e
			}
			continue
		}
		at[messages[i].key] = len(batch)
		batch = append(batch, e)
	}
	if len(batch) == 0 {
		return
	}
	refused := f.applied(batch)
	f.mu.Lock()
	for i := range batch {
		key := batch[i].key()
		if refused[i] == nil {
			f.put(key, keep(&batch[i]))
			delete(f.refused, key)
			f.dirty = true
			continue
		}
		f.refused[key] = keep(&batch[i])
	}
	f.mu.Unlock()
	for i, err := range refused {
		e := &batch[i]
		f.tell(fmt.Errorf("entries: %s %.80q of namespace %s, by %q: %w; the one before stays in force", e.Kind, e.Name, e.Namespace, e.Author, err))
	}
}

// applied has entries be in force, without who wrote them and why: it is the same from the file.
func (f *Follower) applied(batch []Entry) map[int]error {
	if len(batch) == 0 {
		return nil
	}
	told := make([]Entry, len(batch))
	for i, e := range batch {
		e.Author, e.Message, e.Revision = "", "", 0
		told[i] = e
	}
	return f.cfg.Apply(told)
}

// hear says whether an entry is news.
func (f *Follower) hear(key string, e *Entry) (news bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.came != nil {
		f.came[key] = true
	}
	now := keep(e)
	was, known := f.good[key]
	switch {
	case known && was.newer(now):
		f.older[key] = true
		return false, nil
	case known && was == now:
		delete(f.older, key)
		return false, nil
	case !known && now.forgotten(f.cfg.Now()):
		return false, nil
	case !known && len(f.good)+len(f.refused) >= MaxEntries:
		return false, fmt.Errorf("entries: %s %.80q: %w: there are %d; what is new is left out", e.Kind, e.Name, ErrFull, MaxEntries)
	}
	delete(f.older, key)
	return true, nil
}

// missing takes note of what is known and did not come, and tells of it, and of what is older.
func (f *Follower) missing() {
	f.mu.Lock()
	f.lacks = 0
	now := f.cfg.Now()
	for key, k := range f.good {
		if !f.came[key] && !k.deleted() && (k.until == 0 || now.UnixMicro() < k.until) {
			f.lacks++
		}
		if !f.came[key] {
			delete(f.older, key)
		}
	}
	f.came = nil
	lacks, older := f.lacks, len(f.older)
	f.mu.Unlock()
	if lacks > 0 {
		f.cfg.Tell(fmt.Errorf("entries: the bucket lacks %d that are known here, and stay in force: it is new, or was put back from an old copy; write them again, or remove them", lacks))
	}
	if older > 0 {
		f.cfg.Tell(fmt.Errorf("entries: the bucket has %d that are older than those known here, which stay in force: it lags behind, or was put back from an old copy; write them again", older))
	}
}

// isHeard notes that the bucket has nothing more than is known.
func (f *Follower) isHeard() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard = f.cfg.Now()
}

// forget drops, now and then, what has long gone; who applies is told that it was taken away.
func (f *Follower) forget() {
	now := f.cfg.Now()
	if now.Sub(f.forgot) < forgetEvery {
		return
	}
	f.forgot = now
	var ended []Entry
	f.mu.Lock()
	for key, k := range f.good {
		if !k.forgotten(now) {
			continue
		}
		if !k.deleted() {
			f.live--
			e := k.entry(key)
			e.Body, e.Until, e.Deleted = nil, time.Time{}, true
			ended = append(ended, e)
		}
		delete(f.good, key)
		delete(f.older, key)
		f.dirty = true
	}
	for key, k := range f.refused {
		if k.forgotten(now) {
			delete(f.refused, key)
		}
	}
	f.mu.Unlock()
	f.applied(ended)
}

// save writes the file, if it lacks something and was not written of late, or is to be written at once.
func (f *Follower) save(atOnce bool) {
	now := f.cfg.Now()
	if f.cfg.File == "" || !f.dirty || !atOnce && now.Sub(f.saved) < saveEvery {
		return
	}
	f.saved, f.dirty = now, false
	if err := writeFile(f.cfg.File, f.lines); err != nil {
		f.dirty = true
		f.cfg.Tell(err)
	}
}

// lines are those of the file. Nobody but Run, who writes it, changes what is good.
func (f *Follower) lines(yield func(string) bool) {
	for key, k := range f.good {
		e := k.entry(key)
		value, err := e.pack()
		if err == nil && !yield(key+" "+string(value)) {
			return
		}
	}
}
