package regional

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// finalSync bounds the last write of what the store lacks: supervisors commonly
// kill ten seconds after they asked. A store that does not answer at all is
// given up after Config.StoreTimeout.
const finalSync = 5 * time.Second

// finalExports bounds the last exports, however long Config.Timeout lets one take: the
// last write comes after them.
const finalExports = time.Second

// Run shares the region's lanes with its other aggregators and serves its own
// until ctx ends. Then it gives them away, finishes what is in hand, for a second at
// most, writes what the store still lacks, for five, and returns when all its
// goroutines are gone.
//
//	bus's goroutines ──► Handle ──► store;  HandleClaims ──► log of rights;  HearBeat;  HearTell
//	ticker ── Assign ──► Serve, or Stop, a lane;  Beat ──► publish
//	ticker ── Exports ──► a goroutine a frame (two a lane and peer at most) ──► Receive or Lost
//	       ├─ Pushes, Grants ──► publish
//	       └─ Audits ──► a goroutine a peer ──► ReceiveAudit
//	ticker ── Sync ──► store;  Inherit ──► store;  AuditStore ──► store
func (a *Aggregator) Run(ctx context.Context, bus deltasync.Bus) error {
	if err := a.Sync(ctx, time.Now()); err != nil {
		a.cfg.Logger.Error("starting without the store", "err", err)
	}
	lanes, err := a.takeSeat(ctx, bus)
	if err != nil {
		return err
	}
	tells, err := a.hearTells(bus)
	if err != nil {
		return errors.Join(err, lanes.end())
	}
	var frames, loops sync.WaitGroup
	serving, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	loops.Go(func() { a.keepStore(ctx) }) // waited for below, as the next; ctx stops both
	loops.Go(func() {
		defer hangUp()
		lanes.keep(ctx)
	})
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.loop(serving, sending, bus, &frames)

	loops.Wait()
	err = errors.Join(tells.stop(), lanes.end())
	deadline := time.AfterFunc(min(a.cfg.Timeout, finalExports), stop)
	a.exportRest(sending, bus, &frames)
	deadline.Stop()
	stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalSync)
	defer cancel()
	if serr := a.Sync(last, time.Now()); serr != nil {
		a.cfg.Logger.Error("stopping with counts that the store lacks; edges will send them again",
			"keys", a.Stats(time.Now()).Unstored, "err", serr)
	}
	if err != nil && !errors.Is(err, deltasync.ErrClosed) {
		return fmt.Errorf("stop serving %s: %w", a.cfg.Region, err)
	}
	return nil
}

// loop sends exports and pushes until ctx ends.
func (a *Aggregator) loop(ctx, sending context.Context, bus deltasync.Bus, frames *sync.WaitGroup) {
	ticker := time.NewTicker(a.cfg.Urgent)
	defer ticker.Stop()
	var sent, ticked, audited time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			var out []Outgoing
			switch {
			case now.Sub(sent) >= a.cfg.Interval:
				sent = now
				out = a.Exports(now)
			case a.Urgent():
				out = a.ExportsUrgent(now)
			}
			a.send(sending, bus, frames, out)
			a.tellEdges(bus, now)
			if now.Sub(ticked) >= time.Second {
				ticked = now
				a.Tick(now)
			}
			if now.Sub(audited) >= AuditEvery {
				audited = now
				a.audit(sending, bus, frames, a.Audits(now))
			}
		}
	}
}

// tellEdges publishes what all edges of the region are to hear at once.
func (a *Aggregator) tellEdges(bus deltasync.Bus, now time.Time) {
	for _, p := range a.Pushes(now) {
		if err := bus.Publish(p.Subject, p.Payload); err != nil {
			a.cfg.Logger.Debug("push lost", "subject", p.Subject, "err", err)
		}
	}
	for _, p := range a.Grants() {
		if err := bus.Publish(p.Subject, p.Payload); err != nil {
			a.cfg.Logger.Debug("grants lost", "subject", p.Subject, "err", err)
		}
	}
}

// audit makes each question a request. The goroutines end as those of send.
func (a *Aggregator) audit(ctx context.Context, bus deltasync.Bus, frames *sync.WaitGroup, out []Audit) {
	for _, x := range out {
		frames.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, min(a.cfg.Timeout, AuditEvery))
			defer cancel()
			reply, err := bus.Request(ctx, x.Subject, x.Payload)
			if err == nil {
				err = a.ReceiveAudit(time.Now(), x, reply)
			}
			if err != nil { // builds of before do not answer
				a.LostAudit(time.Now(), x)
				a.cfg.Logger.Debug("audit lost", "peer", x.Peer, "lane", x.Lane, "err", err)
			}
		})
	}
}

// exportRest sends what other regions were not told yet, until they have it or
// ctx ends: nobody else may know of it before the key is touched again. Edges are
// pushed what is left for them.
func (a *Aggregator) exportRest(ctx context.Context, bus deltasync.Bus, frames *sync.WaitGroup) {
	a.links.free()
	for {
		now := time.Now()
		a.tellEdges(bus, now)
		a.send(ctx, bus, frames, a.Exports(now))
		frames.Wait()
		if a.Untold() == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(a.cfg.Urgent):
		}
	}
}

// Untold is the number of keys that wait to be told to other regions, each once
// for each of them.
func (a *Aggregator) Untold() (keys int) {
	for _, l := range a.lanes {
		l.mu.Lock()
		for j := range l.peers {
			keys += l.peers[j].outbox.HeldCounts()
		}
		l.mu.Unlock()
	}
	return keys
}

// keepStore calls Sync, KeepRights and Inherit every Interval, and AuditStore every AuditEvery,
// until ctx ends.
func (a *Aggregator) keepStore(ctx context.Context) {
	ticker := time.NewTicker(a.cfg.Interval)
	defer ticker.Stop()
	var audited time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if err := a.Sync(ctx, now); err != nil && ctx.Err() == nil {
				a.cfg.Logger.Debug("store not in step", "err", err)
			}
			if err := a.KeepRights(ctx); err != nil && ctx.Err() == nil {
				a.cfg.Logger.Debug("lanes without an authority over strict limits", "err", err)
			}
			if err := a.Inherit(ctx, now); err != nil && ctx.Err() == nil {
				a.cfg.Logger.Debug("lanes not wholly inherited", "err", err)
			}
			if now.Sub(audited) < AuditEvery {
				continue
			}
			audited = now
			if err := a.AuditStore(ctx, now); err != nil && ctx.Err() == nil {
				a.cfg.Logger.Debug("store not audited", "err", err)
			}
		}
	}
}

// send makes each export a request. The goroutines end with the reply, the
// timeout, or ctx; frames waits for them.
func (a *Aggregator) send(ctx context.Context, bus deltasync.Bus, frames *sync.WaitGroup, out []Outgoing) {
	for _, o := range out {
		frames.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
			defer cancel()
			reply, err := bus.Request(ctx, o.Subject, o.Payload)
			if err == nil {
				err = a.Receive(time.Now(), o, reply)
			}
			if err != nil {
				a.Lost(time.Now(), o)
				a.watch.failed(o.Peer, err)
				a.cfg.Logger.Debug("export lost", "peer", o.Peer, "lane", o.Lane, "seq", o.Seq, "err", err)
			}
		})
	}
}
