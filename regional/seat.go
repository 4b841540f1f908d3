package regional

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillgate/spillgate/sync"
)

const (
	// askTimeout bounds the question of a newcomer whether anybody else lives.
	askTimeout = deadAfter
	// farewell is how long one that stops still serves its lanes when it has told
	// the others: they take them over meanwhile.
	farewell = 250 * time.Millisecond
)

// seat is what an aggregator that runs has on the bus: the lanes that it serves,
// and the talk with the others of its region.
type seat struct {
	a      *Aggregator
	bus    deltasync.Bus
	beats  deltasync.Subscription
	asked  deltasync.Subscription
	served map[int]served
	beaten time.Time

	mu        sync.Mutex // guards what follows
	complains time.Time  // when a beat may next be complained of
}

// served is a lane's frames, the questions of edges that start, and audits.
type served []deltasync.Subscription

func (s served) stop() (err error) {
	for _, sub := range s {
		err = errors.Join(err, sub.Stop())
	}
	return err
}

// takeSeat begins to listen to the others. Where nobody else lives all lanes are
// served when it returns.
func (a *Aggregator) takeSeat(ctx context.Context, bus deltasync.Bus) (*seat, error) {
	s := &seat{a: a, bus: bus, served: map[int]served{}}
	a.Join(time.Now())
	var err error
	if s.beats, err = bus.Subscribe(deltasync.LiveSubject(a.cfg.Region), func(_ string, payload []byte) { s.hear(payload) }); err != nil {
		return nil, fmt.Errorf("subscribe to beats of %s: %w", a.cfg.Region, err)
	}
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	reply, err := bus.Request(ask, deltasync.AskSubject(a.cfg.Region), nil)
	cancel()
	switch {
	case err == nil:
		s.hear(reply)
	case errors.Is(err, deltasync.ErrNoResponders):
		a.Found(time.Now())
	}
	// Only now: its own answer would be the first.
	s.asked, err = bus.Serve(deltasync.AskSubject(a.cfg.Region), deltasync.Queue(a.cfg.Region), func(context.Context, string, []byte) []byte {
		return a.Beat(time.Now())
	})
	if err == nil {
		err = s.serve(time.Now())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve %s: %w", a.cfg.Region, err), s.end())
	}
	return s, nil
}

func (s *seat) hear(payload []byte) {
	now := time.Now()
	if err := s.a.HearBeat(now, payload); err != nil && s.mayComplain(now) {
		s.a.cfg.Logger.Warn("beats are dropped; told once a minute", "err", err)
	}
}

// mayComplain says whether to log a beat: they come several times a second, and who
// sends a bad one sends more.
func (s *seat) mayComplain(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.complains) {
		return false
	}
	s.complains = now.Add(time.Minute)
	return true
}

// keep follows the lanes until ctx ends, then gives them away.
func (s *seat) keep(ctx context.Context) {
	ticker := time.NewTicker(s.a.cfg.Urgent)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.leave()
			return
		case now := <-ticker.C:
			s.a.Assign(now)
			if err := s.serve(now); err != nil {
				s.a.cfg.Logger.Error("lanes are not served", "err", err)
			}
		}
	}
}

// serve has the bus bring frames of the lanes that are served, and no others,
// and says that it does: whoever had a lane gives it away when he hears so.
func (s *seat) serve(now time.Time) (err error) {
	changed := false
	for lane := range s.a.lanes {
		sub, serves := s.served[lane]
		switch {
		case s.a.Serves(lane) && !serves:
			sub, serr := s.take(lane)
			if serr != nil {
				err = errors.Join(err, serr)
				continue
			}
			s.served[lane], changed = sub, true
		case !s.a.Serves(lane) && serves:
			delete(s.served, lane)
			err = errors.Join(err, sub.stop())
		}
	}
	if changed || now.Sub(s.beaten) >= BeatEvery || now.Before(s.beaten) {
		s.beaten = now
		s.say(s.a.Beat(now))
	}
	return err
}

// take has the bus bring what is sent to the owner of a lane.
func (s *seat) take(lane int) (all served, err error) {
	region := s.a.cfg.Region
	for _, by := range []struct {
		subject string
		handle  func(ctx context.Context, subject string, payload []byte) []byte
	}{
		{deltasync.LaneSubjects(region, lane), s.handle},
		{deltasync.SnapSubject(region, lane), func(_ context.Context, _ string, payload []byte) []byte {
			return s.a.Snapshot(time.Now(), payload)
		}},
		{deltasync.AuditSubject(region, lane), func(ctx context.Context, _ string, payload []byte) []byte {
			return s.a.AnswerAudit(ctx, time.Now(), payload)
		}},
		{deltasync.ClaimSubjects(region, lane), func(ctx context.Context, subject string, payload []byte) []byte {
			return s.a.HandleClaims(ctx, subject, payload)
		}},
	} {
		sub, err := s.bus.Serve(by.subject, deltasync.Queue(region), by.handle)
		if err != nil {
			return nil, errors.Join(err, all.stop())
		}
		all = append(all, sub)
	}
	return all, nil
}

func (s *seat) handle(ctx context.Context, subject string, payload []byte) []byte {
	return s.a.Handle(ctx, time.Now(), subject, payload)
}

// say tells the others; nil says nothing.
func (s *seat) say(beat []byte) {
	if beat == nil {
		return
	}
	if err := s.bus.Publish(deltasync.LiveSubject(s.a.cfg.Region), beat); err != nil {
		s.a.cfg.Logger.Debug("beat lost", "err", err)
	}
}

// leave gives the lanes away. Where somebody takes them, they are served a little
// longer: until all have heard of it.
func (s *seat) leave() {
	s.say(s.a.Leave(time.Now()))
	if !s.a.Alone() {
		<-time.After(farewell)
	}
}

// end stops all that the bus brings.
func (s *seat) end() (err error) {
	for _, sub := range s.served {
		err = errors.Join(err, sub.stop())
	}
	for _, sub := range []deltasync.Subscription{s.asked, s.beats} {
		if sub != nil {
			err = errors.Join(err, sub.Stop())
		}
	}
	return err
}
