// Package proc starts real servers for tests: on free ports of 127.0.0.1,
// killed when the test ends however it ends, with their last output shown when
// it fails. A server can be killed, started again in the same place, frozen
// and thawed, because those are the faults that the rest is built to survive.
package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

const (
	// readyWithin is how long a server may take to start: long, because a
	// loaded machine under -race is slow and a healthy one never waits for it.
	readyWithin = 30 * time.Second
	// exitWithin is how long a server may take to obey SIGTERM, or a killed
	// one to be collected.
	exitWithin = 15 * time.Second
)

// Command says what to start.
type Command struct {
	// Name stands in messages, "redis-server".
	Name string
	// Path is the program and Args its arguments. Env is its whole environment;
	// nil: the test's own.
	Path string
	Args []string
	Env  []string
	// Dir is the working directory; empty: the test's.
	Dir string
	// Ready is asked again and again until it returns nil. It must fail until
	// the server answers, and end when ctx does.
	Ready func(ctx context.Context) error
}

// Process is a server that a test started. Its methods are for the test's own
// goroutine, because they end the test when they fail.
type Process struct {
	t    testing.TB
	cmd  Command
	tail tail
	run  *running // nil when it was killed and not started again
}

// running is one life of a process.
type running struct {
	process *os.Process
	done    chan struct{} // closed when it ended and was collected
	err     error         // how it ended; read after done
}

// Start starts c and returns when it is ready. The test fails if it does not
// become ready, or if it ends by itself before the test does.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	p := &Process{t: t, cmd: c}
	t.Cleanup(func() {
		t.Helper()
		p.Kill()
		if t.Failed() {
			t.Logf("last output of %s:\n%s", c.Name, p.Log())
		}
	})
	p.start()
	return p
}

// Kill ends the process by SIGKILL, as a crash would, and returns when it is
// gone. Killing it twice does nothing.
func (p *Process) Kill() {
	p.t.Helper()
	p.end(syscall.SIGKILL)
}

// Terminate asks the process to end by SIGTERM and returns when it is gone.
func (p *Process) Terminate() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
}

// Signal sends a signal and returns at once. After one that ends the process
// call ExitCode, else the end counts as an accident.
func (p *Process) Signal(sig syscall.Signal) {
	p.t.Helper()
	p.signal(sig)
}

// ExitCode waits for a process that was told to end, and returns its exit
// code: -1 if a signal ended it.
func (p *Process) ExitCode() int {
	p.t.Helper()
	r := p.run
	if r == nil {
		p.t.Fatalf("exit code of %s: it is not running", p.cmd.Name)
	}
	select {
	case <-r.done:
	case <-time.After(exitWithin):
		p.t.Fatalf("%s (pid %d) is still there after %v", p.cmd.Name, r.process.Pid, exitWithin)
	}
	p.run = nil
	var exit *exec.ExitError
	if errors.As(r.err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// Restart starts the process again with the same arguments, so on the same
// port, and returns when it is ready. One that still runs is killed first.
func (p *Process) Restart() {
	p.t.Helper()
	p.Kill()
	p.start()
}

// Pause freezes the process by SIGSTOP: its connections stay open and nothing
// answers. It returns when that is so, which is some time after the signal.
func (p *Process) Pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	Until(p.t, exitWithin, func() error { return stopped(p.run.process.Pid) })
}

// Continue thaws a paused process.
func (p *Process) Continue() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
}

// Peak is the most memory that the process had resident in its present life, in
// bytes.
func (p *Process) Peak() (int64, error) {
	if p.run == nil {
		return 0, fmt.Errorf("memory of %s: it is not running", p.cmd.Name)
	}
	return peak(p.run.process.Pid)
}

// Log is the last output of the process, over all its lives.
func (p *Process) Log() string { return p.tail.String() }

// start begins a new life and waits until it is ready.
func (p *Process) start() {
	p.t.Helper()
	r, err := spawn(p.cmd, &p.tail)
	if err != nil {
		p.t.Fatalf("start %s: %v", p.cmd.Name, err)
	}
	p.run = r
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	ask := func() error {
		select {
		case <-r.done:
			cancel() // it will never be ready
			return fmt.Errorf("ended before it was ready: %w", r.err)
		default:
			return p.cmd.Ready(ctx)
		}
	}
	if err := poll(ctx, ask); err != nil {
		p.t.Fatalf("%s is not ready: %v", p.cmd.Name, err)
	}
}

// end sends sig and waits for the process to be gone.
func (p *Process) end(sig syscall.Signal) {
	p.t.Helper()
	r := p.run
	if r == nil {
		return
	}
	p.run = nil
	select {
	case <-r.done:
		p.t.Errorf("%s ended by itself: %v", p.cmd.Name, r.err)
		return
	default:
	}
	if err := r.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("%v to %s (pid %d): %v", sig, p.cmd.Name, r.process.Pid, err)
	}
	select {
	case <-r.done:
	case <-time.After(exitWithin):
		p.t.Errorf("%s (pid %d) was still there %v after %v", p.cmd.Name, r.process.Pid, exitWithin, sig)
		_ = r.process.Kill() // the test has failed already; only do not leave it behind
	}
}

// signal sends sig to a process that must be running.
func (p *Process) signal(sig syscall.Signal) {
	p.t.Helper()
	if p.run == nil {
		p.t.Fatalf("%v to %s: it is not running", sig, p.cmd.Name)
	}
	if err := p.run.process.Signal(sig); err != nil {
		p.t.Fatalf("%v to %s (pid %d): %v", sig, p.cmd.Name, p.run.process.Pid, err)
	}
}

// spawn starts c and collects it when it ends.
func spawn(c Command, out *tail) (*running, error) {
	r := &running{done: make(chan struct{})}
	started := make(chan error)
	// Ends with the process, which end() sees to; waited for through r.done.
	// Linux sends Pdeathsig when the thread that forked ends, not the process,
	// so that thread stays with this goroutine for as long as the child lives.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command(c.Path, c.Args...)
		cmd.Env, cmd.Dir = c.Env, c.Dir
		cmd.Stdout, cmd.Stderr = out, out
		cmd.WaitDelay = 2 * time.Second // a grandchild may hold the pipes open
		dieWithParent(cmd)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		r.process = cmd.Process
		started <- nil
		r.err = cmd.Wait()
		if r.err == nil {
			r.err = errors.New("exit status 0")
		}
		close(r.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return r, nil
}
