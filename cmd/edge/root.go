package main

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// subcommands make the commands below edge, each in a file of its own.
var subcommands = []func() *cobra.Command{
	newValidateCommand,
	newConfigCommand,
	newVersionCommand,
}

// run runs one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err != nil {
		report(stderr, err)
	}
	return exitCode(err)
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "edge",
		Short: "Spillgate's edge: one rate limit over many regions, decided in memory",
		Long: `Spillgate's edge: one rate limit over many regions, decided in memory.

Exit codes: 0 ok, 1 failure, 2 usage, 3 invalid config, 4 unreachable.`,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, // run reports them, once
		SilenceUsage:  true,
	}
	for _, newCommand := range subcommands {
		root.AddCommand(newCommand())
	}
	wrapUsage(root)
	return root
}

// wrapUsage has every command below cmd call a wrong flag or argument what it
// is, so that it exits with 2 and not with 1.
func wrapUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{cmd.CommandPath(), err} })
	check := cmd.Args
	if check == nil {
		check = cobra.NoArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &usageError{cmd.CommandPath(), err}
		}
		return nil
	}
	for _, sub := range cmd.Commands() {
		wrapUsage(sub)
	}
}

// noSuchCommand refuses arguments of a command that only holds others.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("there is no command %q; did you mean %q?", args[0], near[0])
	}
	return fmt.Errorf("there is no command %q", args[0])
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "edge", version())
			return err
		},
	}
}

// version is what the Go tool stamped into the binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	text := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value
		}
	}
	return text + " " + info.GoVersion
}
