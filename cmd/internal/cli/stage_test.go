package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

var (
	errDisk = errors.New("disk full")
	errLate = errors.New("last flush failed")
)

// untilDone is a part that runs until it is told to stop.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestFailingPartStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStage(t.Context())
		s.Go("patient", untilDone)
		s.Go("store", func(context.Context) error { return errDisk })
		<-s.Done()
		err := s.Stop()
		if !errors.Is(err, errDisk) || err.Error() != "store: disk full" {
			t.Errorf("Stop = %v, want the store's failure alone, by its name", err)
		}
	})
}

func TestStopWaitsForAllParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStage(t.Context())
		release := make(chan struct{})
		s.Go("slow", func(ctx context.Context) error {
			<-ctx.Done()
			<-release
			return nil
		})
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop() }() // release ends it; received below
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("Stop returned while a part was running")
		default:
		}
		close(release)
		if err := <-stopped; err != nil {
			t.Errorf("Stop = %v, want nil", err)
		}
	})
}

func TestErrorsOfAllPartsAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStage(t.Context())
		s.Go("flush", func(ctx context.Context) error {
			<-ctx.Done()
			return errLate
		})
		s.Go("store", func(context.Context) error { return errDisk })
		<-s.Done()
		err := s.Stop()
		if !errors.Is(err, errDisk) || !errors.Is(err, errLate) {
			t.Errorf("Stop = %v, want both failures", err)
		}
		if lines := strings.Split(err.Error(), "\n"); !slices.Equal(lines, []string{"store: disk full", "flush: last flush failed"}) {
			t.Errorf("Stop = %q, want the first failure first", lines)
		}
	})
}

func TestStageEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := NewStage(ctx)
		s.Go("patient", untilDone)
		cancel()
		<-s.Done()
		if err := s.Stop(); err != nil {
			t.Errorf("Stop = %v, want nil: parts were told to stop, and did", err)
		}
		if err := s.Stop(); err != nil {
			t.Errorf("a second Stop = %v, want nil", err)
		}
	})
}

// A part that gives up by itself, even with context.Canceled, is a failure.
func TestCanceledForAnotherReasonIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStage(t.Context())
		s.Go("bus", func(context.Context) error { return context.Canceled })
		<-s.Done()
		if err := s.Stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Stop = %v, want the bus's failure", err)
		}
	})
}
