package deferred

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// apiLevel is in what JetStream tells of its streams from 2.11 on.
const apiLevel = "_nats.level"

// Plan is what the queue of a region has, beside what it is to have by a Config.
type Plan struct {
	Parts   []Part
	js      jetstream.JetStream
	timeout time.Duration // of a call
}

// Part is a stream of a queue, or its consumer.
type Part struct {
	Name    string
	Missing bool
	Differs []Difference

	consumer bool
	want     jetstream.StreamConfig // as it is to be; of a consumer, which stream it is of
	wants    jetstream.ConsumerConfig
	is       *jetstream.StreamInfo // nil: it is missing, or a consumer
}

// Inspect asks JetStream what the region's queue has. It changes nothing.
func Inspect(ctx context.Context, js jetstream.JetStream, cfg Config) (*Plan, error) {
	q, err := newQueue(js, cfg)
	if err != nil {
		return nil, err
	}
	return q.inspect(ctx)
}

func (q *Queue) inspect(ctx context.Context) (*Plan, error) {
	p := &Plan{js: q.js, timeout: q.cfg.Timeout}
	for _, want := range []jetstream.StreamConfig{q.waitingConfig(), q.deadConfig(), q.statusConfig()} {
		part := Part{Name: want.Name, want: want}
		stream, err := bounded(ctx, q.cfg.Timeout, func(ctx context.Context) (jetstream.Stream, error) { return q.js.Stream(ctx, want.Name) })
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			part.Missing = true
		case err != nil:
			return nil, q.unavailable("ask for stream "+want.Name, err)
		default:
			part.is = stream.CachedInfo()
			if part.is.Config.Metadata[apiLevel] == "" { // it lets no single message expire
				part.want.AllowMsgTTL = false
			}
			part.Differs = differences(&part.want, &part.is.Config)
		}
		p.Parts = append(p.Parts, part)
	}
	part := Part{Name: q.stream + " > " + replay, Missing: true, consumer: true, want: p.Parts[0].want, wants: q.replayConfig()}
	if !p.Parts[0].Missing {
		consumer, err := bounded(ctx, q.cfg.Timeout, func(ctx context.Context) (jetstream.Consumer, error) { return q.js.Consumer(ctx, q.stream, replay) })
		switch {
		case err == nil:
			part.Missing, part.Differs = false, differences(&part.wants, &consumer.CachedInfo().Config)
		case !errors.Is(err, jetstream.ErrConsumerNotFound):
			return nil, q.unavailable("ask for consumer "+part.Name, err)
		}
	}
	p.Parts = append(p.Parts, part)
	return p, nil
}

// bounded asks JetStream once.
func bounded[T any](ctx context.Context, d time.Duration, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return ask(ctx)
}

// make makes what is missing, and leaves the rest alone. Where it fails some may be made.
func (p *Plan) make(ctx context.Context) error {
	for _, part := range p.Parts {
		if part.Missing {
			if err := p.apply(ctx, &part); err != nil {
				return err
			}
		}
	}
	return nil
}

// Apply makes what is missing, and changes what differs: what waits stays. It changes nothing
// where JetStream cannot change all of it. Where it fails later on its error says what is done
// by then and what is left, and Apply of another Plan goes on with that.
func (p *Plan) Apply(ctx context.Context) error {
	var never []error
	for _, part := range p.Parts {
		for _, d := range part.Differs {
			if d.fixed {
				never = append(never, fmt.Errorf("%s: %v: JetStream cannot change that of what is there: %s", part.Name, d, part.remove()))
			}
		}
	}
	if err := errors.Join(never...); err != nil {
		return fmt.Errorf("nothing is changed:\n%w", err)
	}
	var done, left []string
	var failed error
	for _, part := range p.Parts {
		switch {
		case !part.Missing && len(part.Differs) == 0:
			continue
		case failed != nil:
			left = append(left, part.Name)
			continue
		}
		if failed = p.apply(ctx, &part); failed == nil {
			done = append(done, part.Name)
			continue
		}
		left = append(left, part.Name)
		if _, refused := errors.AsType[*jetstream.APIError](failed); !refused { // it may be done all the same
			left[0] += " (maybe)"
		}
	}
	if failed != nil {
		return fmt.Errorf("%w; done is %s, left is %s: the same again goes on with that", failed, cmp.Or(strings.Join(done, ", "), "nothing"), strings.Join(left, ", "))
	}
	return nil
}

func (p *Plan) apply(ctx context.Context, part *Part) error {
	_, err := bounded(ctx, p.timeout, func(ctx context.Context) (any, error) { return nil, part.apply(ctx, p.js) })
	switch {
	case err == nil:
		return nil
	case part.Missing:
		return fmt.Errorf("make %s: %w", part.Name, err)
	}
	return fmt.Errorf("change %s: %w", part.Name, err)
}

func (p *Part) apply(ctx context.Context, js jetstream.JetStream) (err error) {
	switch {
	case p.consumer && p.Missing:
		_, err = js.CreateConsumer(ctx, p.want.Name, p.wants)
	case p.consumer:
		_, err = js.UpdateConsumer(ctx, p.want.Name, p.wants)
	case p.Missing:
		_, err = js.CreateStream(ctx, p.want)
	default:
		c, is := p.want, &p.is.Config // where it lies, and how, is the operator's
		c.Placement, c.Compression, c.Metadata, c.FirstSeq = is.Placement, is.Compression, is.Metadata, is.FirstSeq
		_, err = js.UpdateStream(ctx, c)
	}
	return err
}

// remove is how to be rid of a part, so that another can be made.
func (p *Part) remove() string {
	if p.consumer {
		return fmt.Sprintf("nats consumer rm %s %s, and again; what waits stays", p.want.Name, replay)
	}
	return fmt.Sprintf("once what it holds may be lost, nats stream rm %s, and again", p.Name)
}

// The reasons for which a queue is not what it is to be, as the metrics name them.
const (
	reasonAway     = "away"     // JetStream does not answer
	reasonMissing  = "missing"  // some of it is not there
	reasonUnfit    = "unfit"    // some of it loses requests, or keeps them without bounds
	reasonSettings = "settings" // it has other sizes
)

var reasons = [...]string{reasonAway, reasonMissing, reasonUnfit, reasonSettings}

// reason is why a queue is not as it is to be; "": it is.
func (p *Plan) reason() (why string) {
	for _, part := range p.Parts {
		switch {
		case part.Missing:
			return reasonMissing
		case len(part.Differs) > 0:
			why = cmp.Or(why, reasonSettings)
		}
		for _, d := range part.Differs {
			if !d.stands {
				why = reasonUnfit
			}
		}
	}
	return why
}

// broken says that no request may wait in it.
func (p *Plan) broken() bool {
	why := p.reason()
	return why == reasonMissing || why == reasonUnfit
}

// Fits says that the queue has all that it is to have.
func (p *Plan) Fits() bool { return p.reason() == "" }

// String says what is missing, or differs.
func (p *Plan) String() string {
	var says []string
	for _, part := range p.Parts {
		if part.Missing {
			says = append(says, part.Name+" is missing")
		}
		for _, d := range part.Differs {
			says = append(says, part.Name+": "+d.String())
		}
	}
	return strings.Join(says, "; ")
}
