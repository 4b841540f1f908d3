package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spillgate/spillgate/configs"
)

// Exit codes, the same for every command.
const (
	exitOK            = 0
	exitFailure       = 1
	exitUsage         = 2
	exitInvalidConfig = 3
	exitUnreachable   = 4
)

// errUnreachable is wrapped where a server that the command needs cannot be
// reached.
var errUnreachable = errors.New("unreachable")

// usageError is a command line that was not understood.
type usageError struct {
	command string
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// reportedError is a failure that the command has told about already.
type reportedError struct{ code int }

func (e *reportedError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func exitCode(err error) int {
	var usage *usageError
	var rules *configs.RulesError
	var settings *configs.SettingsError
	var reported *reportedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &reported):
		return reported.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &rules), errors.As(err, &settings), errors.Is(err, configs.ErrNoRules):
		return exitInvalidConfig
	case errors.Is(err, errUnreachable):
		return exitUnreachable
	}
	return exitFailure
}

// report says on stderr what went wrong.
func report(stderr io.Writer, err error) {
	var usage *usageError
	var rules *configs.RulesError
	var settings *configs.SettingsError
	var reported *reportedError
	switch {
	case errors.As(err, &reported):
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v\nTry: %s --help\n", usage.command, err, usage.command)
	case errors.As(err, &rules), errors.As(err, &settings):
		fmt.Fprintln(stderr, err) // as a compiler prints it: tools read FILE:LINE:COLUMN from the start of a line
	default:
		fmt.Fprintf(stderr, "edge: %v\n", err)
	}
}
