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
	"github.com/spillgate/spillgate/edge/limit"
)

// What edge validate warns of, edge serve logs, and no more than a screen of it.
func TestWarningsOfRulesAreLogged(t *testing.T) {
	for rules, want := range map[int]int{1: 0, 2: 1, 40: 21} {
		doc := limit.Document{Namespace: "acme"}
		for i := range rules {
			doc.Rules = append(doc.Rules, limit.RuleSpec{Name: fmt.Sprint("r", i), Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}})
		}
		set, problems := limit.Compile(doc)
		if set == nil {
			t.Fatal(problems)
		}
		var text bytes.Buffer
		TellWarnings(set, slog.New(slog.NewTextHandler(&text, nil)))
		if got := strings.Count(text.String(), "level=WARN"); got != want {
			t.Errorf("%d rules of one priority: %d lines, want %d\n%s", rules, got, want, text.String())
		}
		if want > 0 && (!strings.Contains(text.String(), "code=W205 path=rules[1].priority") || !strings.Contains(text.String(), "never applies")) {
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
		_, err := OpenRules(ctx, configs.FormatSpillgate, pipe, time.Millisecond, slog.New(slog.NewTextHandler(log, nil)))
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
