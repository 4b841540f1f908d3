package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
)

// What edge validate warns of, edge serve logs, and no more than a screen of it.
func TestWarningsOfRulesAreLogged(t *testing.T) {
	for rules, want := range map[int]int{1: 0, 2: 1, 40: 21} {
		var file strings.Builder
		file.WriteString("schema: spillgate/v1\nnamespace: acme\nrules:\n")
		for i := range rules {
			fmt.Fprintf(&file, "- {name: r%d, rates: [{limit: 1, per: 1m}]}\n", i)
		}
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := configs.CheckRules(path)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		TellWarnings(warnings, slog.New(slog.NewTextHandler(&text, nil)))
		if got := strings.Count(text.String(), "level=WARN"); got != want {
			t.Errorf("%d rules of one priority: %d lines, want %d\n%s", rules, got, want, text.String())
		}
		if want > 0 && (!strings.Contains(text.String(), "rules.yaml line=5 path=rules[1].priority") || !strings.Contains(text.String(), "never applies")) {
			t.Errorf("the warning is not told: %s", text.String())
		}
		if rules == 40 && !strings.Contains(text.String(), "warnings=39") {
			t.Errorf("the rest is not counted: %s", text.String())
		}
	}
}

// said hands on each line of a log.
type said chan string

func (s said) Write(p []byte) (int, error) {
	s <- string(p)
	return len(p), nil
}

// A pipe that nobody writes to stands for a file system that does not answer.
func TestRulesThatHangAtTheStart(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "rules.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	log, done := make(said, 1), make(chan error, 1)
	go func() {
		_, err := openFiles(ctx, configs.FormatSpillgate, pipe, time.Millisecond, slog.New(slog.NewTextHandler(log, nil)))
		done <- err
	}()
	if line := <-log; !strings.Contains(line, "still being read") || !strings.Contains(line, pipe) {
		t.Errorf("it is told: %s", line)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), pipe) {
		t.Errorf("stopped meanwhile: %v, want it said what was waited for", err)
	}
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // and the read ends
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
