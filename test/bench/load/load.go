package load

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Run makes a load and writes the report. Where ctx ends, it is of the load so far.
func Run(ctx context.Context, o Options, stdout, stderr io.Writer) error {
	c := newClient(o)
	defer c.close()
	if err := c.reach(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%v of %s load at %s; ctrl-C ends it, with the report so far\n", o.Duration, o.Shape, o.targets())
	r := newReport(o, run(ctx, o, means{c.send, pause}), ctx.Err() != nil)
	write := r.text
	if o.JSON {
		write = r.json
	}
	if err := write(stdout); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	if r.Asked > 0 && r.Answered == 0 {
		return errors.New("nothing was answered: see the errors in the report")
	}
	return nil
}
