// Command bench measures edge.Check beside other Go limiters and holds the
// figures against the project's targets:
//
//	go run ./test/bench          # four minutes at most
//	go run ./test/bench -long    # ten million keys too
//	go run ./test/bench/flood    # target P8, a flood of keys
//	go run ./test/bench -accuracy -log FILE # target A19, an access log over five regions: ACCURACY.md
//	go run ./test/bench -wire    # targets P5 and P6, over gRPC and HTTP, beside others' servers: WIRE.md; see wire
//	go run ./test/bench -load steady|burst|flash -target URL # your own load test of an edge; see load
//
// It runs the program in rivals, a module of its own so that what it compares
// with is no dependency of this one, and has it write RESULTS.md beside this
// file: a run that is not to be published says -out /dev/null. Flags are passed on; -help
// lists them. All that is compared is compiled with
// the profile that the edge is compiled with, which was made so, and is to be made
// anew where the path of a decision changes much:
//
//	go run ./test/bench -out /dev/null -profile "$PWD/cmd/edge/default.pgo"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/test/bench/load"
	"github.com/spillgate/spillgate/test/bench/replay"
)

// others are what there is beside the comparison, whose flags alone -help lists.
const others = `Beside what this compares, each with a -help of its own:
  go run ./test/bench -load steady|burst|flash -target URL   a load test of an edge
  go run ./test/bench -wire                                  gRPC and HTTP beside others' servers
  go run ./test/bench -accuracy -log FILE                    an access log over five regions
  go run ./test/bench/flood                                  a flood of keys

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if load.Wanted(args) { // from anywhere: it needs no checkout
		o, err := load.Parse(args, os.Stderr)
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		if err != nil {
			return err
		}
		return load.Run(ctx, o, os.Stdout, os.Stderr)
	}
	dir, err := here(ctx)
	if err != nil {
		return err
	}
	if len(args) > 0 && (args[0] == "-accuracy" || args[0] == "--accuracy") {
		o, err := replay.Parse(args[1:], filepath.Join(dir, "ACCURACY.md"), os.Stderr)
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		if err != nil {
			return err
		}
		return replay.Run(o, os.Stdout, os.Stderr)
	}
	guide := filepath.Join(dir, "..", "..", "cmd", "edge", "default.pgo") // as the daemon is built
	if len(args) > 0 && (args[0] == "-wire" || args[0] == "--wire") {
		return goRun(ctx, filepath.Join(dir, "wire"), append([]string{"run", "-pgo", guide, ".", "-out", filepath.Join(dir, "WIRE.md")}, args[1:]...))
	}
	if len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help"}, args[0]) {
		fmt.Fprint(os.Stderr, others)
	}
	return goRun(ctx, filepath.Join(dir, "rivals"), append([]string{"run", "-pgo", guide, ".", "-out", filepath.Join(dir, "RESULTS.md")}, args...))
}

// goRun has the go command run a program in a directory, in sight.
func goRun(ctx context.Context, dir string, args []string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go run in %s: %w", cmd.Dir, err)
	}
	return nil
}

// here is the directory of this package, wherever in the module we are called.
func here(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/spillgate/spillgate").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: run this from inside a checkout of github.com/spillgate/spillgate: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "test", "bench"), nil
}
