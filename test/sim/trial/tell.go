package trial

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Tale says what befalls one counter, as it happens: who told whom what of it, and
// with what answer.
type Tale struct {
	Of string // user/policy, as failures name them: u4/api.r1
	To io.Writer
}

// tell adds a line about a counter to the tale, if it is of that one.
func (t *trial) tell(key deltasync.Key, format string, args ...any) {
	if t.Tale == nil {
		return
	}
	if c := t.keys[key]; c == nil || c.name() != t.Tale.Of {
		return
	}
	t.line(format, args...)
}

// name is the counter's in tales.
func (c *counter) name() string { return culprit(c.user+"/"+c.rate.Policy, !c.now) }

// line adds a line that is of no counter.
func (t *trial) line(format string, args ...any) {
	if t.Tale != nil {
		fmt.Fprintf(t.Tale.To, "%10v  %s\n", t.w.Now().Sub(start).Round(time.Microsecond), fmt.Sprintf(format, args...))
	}
}

// known says whether the tale is of a counter that there is.
func (t *trial) known() error {
	if t.Tale == nil {
		return nil
	}
	var all []string
	for _, c := range t.counters {
		name := c.name()
		if all = append(all, name); name == t.Tale.Of {
			return nil
		}
	}
	return fmt.Errorf("nobody is called %q here: %s", t.Tale.Of, strings.Join(all[:min(len(all), 12)], ", "))
}

// tellAnswer tells what became of each delta of a frame.
func (t *trial) tellAnswer(by string, up *deltasync.Up, down *deltasync.Down) {
	if t.Tale == nil {
		return
	}
	i := 0
	for _, sec := range up.Sections {
		for _, d := range sec.Deltas {
			totals := "no totals"
			if i < len(down.Totals) {
				totals = fmt.Sprintf("others %v, peers %v", down.Totals[i].Others, down.Totals[i].Peers)
			}
			took := "took it"
			if !down.Took(i) {
				took = "turned it away"
			}
			t.tell(d.Key, "  %s answers frame %d of %s/%s: %s, %s; %s", by, up.Seq, up.Region, up.Name, down.Status, took, totals)
			i++
		}
	}
}
