package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strings"
)

func main() {
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// run measures, prints the report, and writes it to the file that the options
// name.
func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	about := look(command(args))
	stop, err := profile(o.profile)
	if err != nil {
		return err
	}
	f, err := measure(o, stderr)
	if err := stop(); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	about.loadAfter = load()
	var report bytes.Buffer
	f.write(&report, about, o)
	if err := f.trust(); err != nil {
		fmt.Fprintf(stderr, "%s\n", &report) // to see what is wrong, not to publish
		return fmt.Errorf("no report: %w", err)
	}
	if o.out != "" {
		if err := os.WriteFile(o.out, report.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if _, err := stdout.Write(report.Bytes()); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

// profile writes one of the processor to file until the function that it returns is
// called; without a name it does nothing.
func profile(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("write the profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("write the profile: %w", err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		if err := f.Close(); err != nil {
			return fmt.Errorf("write the profile: %w", err)
		}
		return nil
	}, nil
}

// command is what a reader types to have the same measured.
func command(args []string) string {
	words := []string{"go run ./test/bench"}
	for i := 0; i < len(args); i++ {
		if name := strings.TrimLeft(args[i], "-"); name == "out" {
			i++
			continue
		} else if strings.HasPrefix(name, "out=") {
			continue
		}
		words = append(words, args[i])
	}
	return strings.Join(words, " ")
}
