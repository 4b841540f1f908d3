package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spillgate/spillgate/configs"
)

// Exit codes, the same for every command.
const (
	ExitOK            = 0
	ExitFailure       = 1
	ExitUsage         = 2
	ExitInvalidConfig = 3
	ExitUnreachable   = 4
	ExitDenied        = 5 // a request would be
)

// ErrUnreachable is wrapped where a server that the command needs cannot be
// reached.
var ErrUnreachable = errors.New("unreachable")

// ErrInvalidConfig is wrapped where settings can be read, and nothing can be
// made from them.
var ErrInvalidConfig = errors.New("invalid config")

// usageError is a command line that was not understood.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Reported is a failure that the command has told about already.
type Reported struct{ Code int }

func (e *Reported) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

func exitCode(err error) int {
	var usage *usageError
	var rules *configs.RulesError
	var settings *configs.SettingsError
	var reported *Reported
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &reported):
		return reported.Code
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &rules), errors.As(err, &settings), errors.Is(err, configs.ErrNoRules), errors.Is(err, ErrInvalidConfig):
		return ExitInvalidConfig
	case errors.Is(err, ErrUnreachable):
		return ExitUnreachable
	}
	return ExitFailure
}

// report says on stderr what went wrong.
func report(stderr io.Writer, process string, err error) {
	var usage *usageError
	var rules *configs.RulesError
	var settings *configs.SettingsError
	var reported *Reported
	switch {
	case errors.As(err, &reported):
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v\nTry: %s --help\n", usage.command, err, usage.command)
	case errors.As(err, &rules), errors.As(err, &settings):
		fmt.Fprintln(stderr, err) // as a compiler prints it: tools read FILE:LINE:COLUMN from the start of a line
	default:
		fmt.Fprintf(stderr, "%s: %v\n", process, err)
	}
}
