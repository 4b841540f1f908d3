package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/bench/latency"
)

// The servers that do nothing are this program.
func TestMain(m *testing.M) {
	if os.Getenv(emptyGRPC) != "" || os.Getenv(emptyHTTP) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// All servers but the reference start, answer, and take time; the report has a line for
// each, and for each target that is of these.
func TestEachIsMeasured(t *testing.T) {
	var out, told bytes.Buffer
	err := run(t.Context(), []string{"-rounds", "1", "-lasts", "300ms", "-rivals=false", "-sustained", "0"}, &out, &told)
	if err != nil && !strings.Contains(err.Error(), "targets are missed") { // by how much is not for a test
		t.Fatalf("%v\n%s", err, told.String())
	}
	for _, want := range []string{
		"| P5 | spillgate, against empty handler | ≤ 1.2 ×", "| P5 | spillgate, 10 descriptors, against spillgate |",
		"| P6 | spillgate /v1/check, against empty page |", "| P6 | spillgate /v1/auth, against empty page, without a body |",
		"| empty handler |", "| spillgate and all behind it |", "| spillgate /v1/auth |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "envoyproxy") || strings.Contains(out.String(), "| 0.0 | 0 |") {
		t.Errorf("measured what is left out, or nothing:\n%s", out.String())
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"-rounds 0":         "-rounds 0: want 1 to 1000",
		"-lasts 1ms":        "-lasts 1ms: want 100ms to 1m",
		"-sustained 1500ms": "-sustained 1.5s: want 0s to 1h, in whole seconds",
		"all":               `["all"]: no arguments are expected`,
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// Where one of the servers does not start, that is said, and the others are ended.
func TestServersThatDoNotStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := newField(ctx, options{}); err == nil || f != nil {
		t.Errorf("%v, %v, want an error alone", f, err)
	}
}

// The first call that fails ends a load, and is told.
func TestLoadEndsWithTheFirstFailure(t *testing.T) {
	gone := errors.New("gone")
	_, _, err := load(t.Context(), time.Minute, func(context.Context) error { return gone }, new(latency.Histogram))
	if !errors.Is(err, gone) {
		t.Errorf("%v, want %v", err, gone)
	}
}

// A process's time is read from the kernel, and one that is not there is an error.
func TestProcessorTime(t *testing.T) {
	before, err := processorTime([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; { // until a tick is over
		now, err := processorTime([]int{os.Getpid()})
		if err != nil {
			t.Fatal(err)
		}
		if now > before {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after 10 s of work: %v, as before", now)
		}
	}
	if _, err := processorTime([]int{-1}); err == nil {
		t.Error("no error for a process that is not there")
	}
}
