package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const signalChild = "SPILLGATE_TEST_SIGNAL_CHILD"

// TestMain lets the test binary be the process that is sent signals.
func TestMain(m *testing.M) {
	if os.Getenv(signalChild) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := UntilSignal(context.Background())
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	// The default handling is restored in a goroutine of its own: the parent
	// sends until it takes effect.
	fmt.Println("draining")
	select {}
}

// TestUntilSignal: the first signal ends the context, another the process.
func TestUntilSignal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), signalChild+"=1")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			expect := func(want string) {
				t.Helper()
				if !lines.Scan() || lines.Text() != want {
					t.Fatalf("the child says %q (%v), want %q", lines.Text(), lines.Err(), want)
				}
			}
			expect("ready")
			signal := func() {
				if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
			}
			signal()
			expect("draining")
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }() // the child's death ends it; received below
			// One at a time: a child that is dying of one signal and gets hundreds
			// more may die of a segmentation fault in Go's runtime instead.
			again := time.NewTicker(50 * time.Millisecond)
			defer again.Stop()
			for ended := false; !ended; {
				signal()
				select {
				case err = <-done:
					ended = true
				case <-again.C:
				}
			}
			status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !ok || !status.Signaled() || status.Signal() != sig {
				t.Errorf("the child ended with %v, want it killed by %v", err, sig)
			}
		})
	}
}

func TestUntilSignalEndsWithItsParent(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	ctx, stop := UntilSignal(parent)
	defer stop()
	if ctx.Err() != nil {
		t.Fatal("ended before its parent")
	}
	cancel()
	<-ctx.Done()
}
