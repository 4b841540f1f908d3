package regional

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// askDecided is what is asked of another region; "" is all.
type askDecided struct {
	Namespace string `json:"namespace,omitempty"`
	Rule      string `json:"rule,omitempty"`
}

// decidedTimeout is how long another region may take to say what it was told.
const decidedTimeout = time.Second

// hearTells has the bus bring what edges tell, and what other regions ask of that.
func (a *Aggregator) hearTells(bus deltasync.Bus) (subs served, err error) {
	complained := time.Time{}
	tells, err := bus.Subscribe(deltasync.TellSubjects(a.cfg.Region), func(subject string, payload []byte) { // one at a time
		now := time.Now()
		if err := a.HearTell(now, subject, payload); err != nil && now.Sub(complained) >= time.Minute {
			complained = now
			a.cfg.Logger.Warn("what an edge says that it decided is not taken; told once a minute", "subject", subject, "err", err)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to what edges of %s tell: %w", a.cfg.Region, err)
	}
	asked, err := bus.Serve(deltasync.ToldSubject(a.cfg.Region), deltasync.Queue(a.cfg.Region), func(_ context.Context, _ string, payload []byte) []byte {
		return a.AnswerDecided(time.Now(), payload)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve what edges of %s told: %w", a.cfg.Region, err), tells.Stop())
	}
	d := a.decided
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bus, d.since = bus, time.Now()
	return served{tells, asked}, nil
}

// AnswerDecided answers another region; nil: it asked for nothing that can be told.
func (a *Aggregator) AnswerDecided(now time.Time, payload []byte) []byte {
	var ask askDecided
	if len(payload) > deltasync.MaxTell || json.Unmarshal(payload, &ask) != nil {
		return nil
	}
	told := a.Decided(now, ask.Namespace, ask.Rule)
	for {
		reply, err := json.Marshal(&told)
		if err == nil && len(reply) <= deltasync.MaxPayload {
			return reply
		}
		if err != nil || len(told.Rules) == 0 { // our own bug
			a.cfg.Logger.Error("what edges decided is not told", "err", err, "bytes", len(reply))
			return nil
		}
		half := len(told.Rules) / 2
		told.LeftOut += len(told.Rules) - half
		told.Rules = told.Rules[:half]
	}
}

// DecidedElsewhere is what Decided is in these of the other regions; of all where there are none. It takes
// a second at most; who has not answered by then is not heard.
func (a *Aggregator) DecidedElsewhere(ctx context.Context, namespace, rule string, regions ...string) []RegionDecisions {
	if len(regions) == 0 {
		regions = a.cfg.Peers
	}
	a.decided.mu.Lock()
	bus := a.decided.bus
	a.decided.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, decidedTimeout)
	defer cancel()
	out := make([]RegionDecisions, len(regions))
	var asked sync.WaitGroup
	for i, region := range regions {
		out[i] = RegionDecisions{Region: region, Rules: []RuleDecisions{}}
		if bus == nil {
			continue
		}
		asked.Go(func() { // ends with the answer, or ctx
			told, err := askRegion(ctx, bus, region, askDecided{namespace, rule})
			if err != nil {
				a.cfg.Logger.Debug("a region does not say what its edges decided", "region", region, "err", err)
				return
			}
			out[i] = *told
		})
	}
	asked.Wait()
	return out
}

func askRegion(ctx context.Context, bus deltasync.Bus, region string, ask askDecided) (*RegionDecisions, error) {
	payload, err := json.Marshal(ask)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", region, err)
	}
	reply, err := bus.Request(ctx, deltasync.ToldSubject(region), payload)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", region, err)
	}
	told := new(RegionDecisions)
	if err := json.Unmarshal(reply, told); err != nil {
		return nil, fmt.Errorf("answer of %s: %w", region, err)
	}
	if told.Region != region || len(told.Rules) > mostRulesTold {
		return nil, fmt.Errorf("answer of %s: it is of region %.40q, with %d rules", region, told.Region, len(told.Rules))
	}
	if told.Heard = true; told.Rules == nil {
		told.Rules = []RuleDecisions{}
	}
	return told, nil
}
