package accuracy

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spillgate/spillgate/test/sim/measure"
)

// boundless are rows that are left out of the table of bounds unless they are asked
// for: they take longer than all others.
const boundless = "A21"

// RunBounds measures A20 in the rows' scenarios and writes the table.
func RunBounds(o Options, out io.Writer) error {
	all, err := load(text)
	if err != nil {
		return err
	}
	sections, a18, err := wanted(all, o.Only)
	if err != nil {
		return err
	}
	if a18 && len(o.Only) > 0 {
		return fmt.Errorf("-rows A18: nothing is bounded there; -bounds has %s", strings.Join(numbers(all), ", "))
	}
	var rows []row
	for _, s := range sections {
		for _, r := range s.Rows {
			if r.ID != boundless || len(o.Only) > 0 {
				rows = append(rows, r)
			}
		}
	}
	told, err := boundsOf(o, rows)
	if err != nil {
		return err
	}
	writeBounds(rows, told, out)
	return nil
}

// bounded are the strategies whose bounds are measured.
var bounded = [...]string{"loose", "adaptive"}

// boundsOf measures rows, all seeds of one together.
func boundsOf(o Options, rows []row) (out [][len(bounded)]measure.Bounds, err error) {
	out = make([][len(bounded)]measure.Bounds, len(rows))
	type job struct{ row, strategy, seed int }
	todo := make(chan job)
	var (
		workers sync.WaitGroup
		mu      sync.Mutex // guards out, err and done
		done    int
	)
	for range o.Workers {
		workers.Go(func() { // ends with todo
			for j := range todo {
				_, b, failed := measure.RunBounds(rows[j.row].options(o, bounded[j.strategy], uint64(j.seed)))
				mu.Lock()
				if to := &out[j.row][j.strategy]; failed == nil {
					to.Windows.Add(&b.Windows)
					to.Checks.Add(&b.Checks)
				} else if err == nil {
					err = fmt.Errorf("%s, %s, %s, seed %d: %w", rows[j.row].ID, rows[j.row].words(), bounded[j.strategy], j.seed, failed)
				}
				if done++; done%50 == 0 {
					fmt.Fprintf(o.Told, "%d of %d runs\n", done, len(rows)*len(bounded)*o.Seeds)
				}
				mu.Unlock()
			}
		})
	}
	for i := range rows {
		for k := range bounded {
			for seed := range o.Seeds {
				todo <- job{i, k, seed}
			}
		}
	}
	close(todo)
	workers.Wait()
	return out, err
}

const (
	mostUncovered = 0.001 // of the windows
	mostTimes     = 5.0   // the truth, by the median
)

func writeBounds(rows []row, told [][len(bounded)]measure.Bounds, out io.Writer) {
	p := func(format string, args ...any) { fmt.Fprintf(out, format, args...) }
	bold := func(s string, missed bool) string {
		if missed {
			return "**" + s + "**"
		}
		return s
	}
	p("A window is one of a key that ends with a slice in which the key was asked for. Its truth is the most that an exact log of all edges had above the limit at any request of that slice, and its bounds the largest that any edge told with those requests. **uncovered**: part of the windows whose truth was above `error_bound`, in percent (A20: 0.1 at the most). **surge**: windows whose truth was above `error_bound_surge` (A20: none). **tight**: the median of `error_bound` by the truth, where that is above zero (A20: 5 at the most; – where it never is). **own**: requests whose own edge told less than the truth at that instant, in percent: an edge knows nothing of a crowd elsewhere until the news has come. Bold misses A20.\n\n")
	p("| | scenario, limit |")
	for _, s := range bounded {
		p(" %s: windows, over | uncovered | surge | tight | own |", s)
	}
	p("\n|---|---|")
	for range bounded {
		p("---|---|---|---|---|")
	}
	var sums [len(bounded)]measure.Bounds
	var tight, wide [len(bounded)]int
	cells := func(b *measure.Bounds) {
		w := &b.Windows
		part := func(t *measure.Tally) float64 { return float64(t.Uncovered) / float64(max(1, t.All)) }
		median := "–"
		if w.Over > 0 {
			median = bold(fmt.Sprintf("%.1f", w.Median()), w.Median() > mostTimes)
		}
		p(" %d, %d | %s | %s | %s | %.2f |", w.All, w.Over, bold(fmt.Sprintf("%.2f", 100*part(w)), part(w) > mostUncovered), bold(fmt.Sprint(w.Surged), w.Surged > 0), median, 100*part(&b.Checks))
	}
	for i, r := range rows {
		p("\n| %s | %s |", r.number(), r.words())
		for k := range bounded {
			b := &told[i][k]
			cells(b)
			sums[k].Windows.Add(&b.Windows)
			sums[k].Checks.Add(&b.Checks)
			switch w := &b.Windows; {
			case w.Over == 0:
			case w.Median() > mostTimes:
				wide[k]++
			default:
				tight[k]++
			}
		}
	}
	p("\n| | all |")
	for k := range bounded {
		cells(&sums[k])
	}
	p("\n\n")
	for k, s := range bounded {
		p("%s: of %d rows in which a limit is exceeded, the bound is tight in %d.\n", s, tight[k]+wide[k], tight[k])
	}
}
