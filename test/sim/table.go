package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spillgate/spillgate/test/sim/accuracy"
)

// table measures the targets for accuracy and writes them with where, when and how it
// was done.
func table(o options, args []string, stdout, stderr io.Writer) error {
	var b bytes.Buffer
	begun, of := time.Now(), accuracy.Commit()
	seeds := 5
	if o.seeds > 0 {
		seeds = int(min(o.seeds, 1000))
	}
	if err := accuracy.Run(accuracy.Options{Seeds: seeds, Workers: o.workers, Only: o.rows, Algorithm: o.measured.algorithm, Told: stderr}, &b); err != nil {
		return err
	}
	head := fmt.Sprintf(`# How accurate limits are

Written by

    go run ./test/sim %s

on %s, of %s, in %v.

%sWorst of %d seeds, in percent: **over** is the most that was admitted in any window above the limit, **util** what was admitted of what an exact log admits, **wd** the free places that were refused. Five regions of two edges, 80 ms between regions with a tenth of jitter, edges and aggregators tell every 100 ms, urgently every 20 ms, in eight lanes, unless a row says otherwise: production code on virtual time, up for five seconds before anybody asks (30 where clocks are off). Of many keys over is that of the worst; what is per million is the cost that was admitted above a limit, or wrongly denied, of all that was asked for. Targets are those of adaptive limits; **bold** misses its target. Naive edges go by their own counts and the others' as told each interval, with nothing urgent. What takes long has a file of its own: A21, and byte budgets with its hundred thousand keys, [MANY.md](MANY.md).

`, strings.Join(args, " "), accuracy.Machine(), of, time.Since(begun).Round(time.Second), judged(o.measured.algorithm), seeds)
	return write(o.out, head+b.String(), stdout)
}

// boundsTable measures A20 likewise.
func boundsTable(o options, args []string, stdout, stderr io.Writer) error {
	var b bytes.Buffer
	begun := time.Now()
	seeds := 5
	if o.seeds > 0 {
		seeds = int(min(o.seeds, 1000))
	}
	if err := accuracy.RunBounds(accuracy.Options{Seeds: seeds, Workers: o.workers, Only: o.rows, Algorithm: o.measured.algorithm, Told: stderr}, &b); err != nil {
		return err
	}
	head := fmt.Sprintf(`# How well edges know how far limits are exceeded

Written by

    go run ./test/sim %s

on %s, of %s, in %v.

%s`, strings.Join(args, " "), accuracy.Machine(), accuracy.Commit(), time.Since(begun).Round(time.Second), judged(o.measured.algorithm))
	return write(o.out, head+b.String(), stdout)
}

// judged says of what algorithm the limits are, if it was asked for, and what they are
// held to.
func judged(algorithm string) string {
	switch algorithm {
	case "":
		return ""
	case "fixed_window":
		return "All limits are a fixed_window: a window is one of the true time, from its beginning.\n\n"
	case "token_bucket", "leaky_bucket":
		return fmt.Sprintf("All limits are a %s, which holds the limit and drains so much in a window: it is over by what the level of an exact bucket, into which all goes that any edge admits, is above its capacity.\n\n", algorithm)
	}
	return fmt.Sprintf("All limits are a %s, held to the exact log of the last window.\n\n", algorithm)
}

// write writes a text to a file, or prints it where none is named.
func write(file, text string, stdout io.Writer) error {
	if file == "" {
		_, err := io.WriteString(stdout, text)
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
