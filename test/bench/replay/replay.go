package replay

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/cmd/edge/demo/accesslog"
	"github.com/spillgate/spillgate/test/sim/accuracy"
	"github.com/spillgate/spillgate/test/sim/measure"
	"github.com/spillgate/spillgate/test/sim/scenarios"
)

const (
	regions = 5
	edges   = 2 // of each
)

// load is a log at some speed, under a limit that binds there.
type load struct {
	limit scenarios.Limit
	speed float64
	of    string // client, or all: one limit for everybody
}

var loads = []load{
	{scenarios.Limit{Limit: 10, Window: 10 * time.Second}, 1, "client"},
	{scenarios.Limit{Limit: 20, Window: time.Minute}, 1, "client"},
	{scenarios.Limit{Limit: 10, Window: time.Second}, 30, "client"},
	{scenarios.Limit{Limit: 30, Window: time.Second}, 30, "all"},
}

// roams says how often a request comes where its client is not at home.
type roams struct {
	name string
	part float64
}

var ways = []roams{{"at home", 0}, {"roam, one in ten", 0.1}, {"roam, all", 1}}

// Options are what is replayed, and how.
type Options struct {
	Log     string
	Out     string // file for the table; "": it is printed
	Seeds   int
	Workers int
}

// Parse reads the flags that follow -accuracy.
func Parse(args []string, out string, stderr io.Writer) (o Options, err error) {
	flags := flag.NewFlagSet("bench -accuracy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.Log, "log", "", "the access log to replay, gzip or plain")
	flags.StringVar(&o.Out, "out", out, "the file to write the table to; - prints it")
	flags.IntVar(&o.Seeds, "seeds", 3, "how often each is replayed")
	flags.IntVar(&o.Workers, "workers", 2, "how many are at once")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: no arguments are expected", flags.Args())
	case o.Log == "":
		return o, errors.New("-log FILE: which access log is to be replayed? In the combined log format, gzip or plain")
	case o.Seeds < 1 || o.Workers < 1:
		return o, fmt.Errorf("-seeds %d -workers %d: want 1 or more of both", o.Seeds, o.Workers)
	}
	return o, nil
}

// Run replays the log and writes the table.
func Run(o Options, stdout, stderr io.Writer) error {
	log, err := accesslog.Open(o.Log)
	if err != nil {
		return err
	}
	begun, of := time.Now(), accuracy.Commit()
	rows, err := replayAll(o, log.Requests, loads, stderr)
	if err != nil {
		return err
	}
	text := table(o, log, rows, of, time.Since(begun))
	if o.Out == "-" {
		_, err = io.WriteString(stdout, text)
		return err
	}
	return os.WriteFile(o.Out, []byte(text), 0o644)
}

// result is the worst of the seeds.
type result struct {
	load
	roams
	level        string
	exact        float64 // part that the exact log denies, in the mean
	over         float64
	above, wrong float64 // of all requests
	util         float64
}

// levels are what rules know; those that they do not know yet are left out.
func levels() []string {
	return slices.DeleteFunc([]string{"loose", "adaptive", "strict"}, func(l string) bool { return measure.Knows(l) != nil })
}

func replayAll(o Options, log []accesslog.Request, loads []load, told io.Writer) ([]result, error) {
	var rows []result
	for _, l := range loads {
		for _, r := range ways {
			for _, level := range levels() {
				rows = append(rows, result{load: l, roams: r, level: level, util: 2})
			}
		}
	}
	var (
		mu     sync.Mutex // guards rows, failed and done
		failed error
		done   int
		busy   sync.WaitGroup
	)
	slots := make(chan struct{}, o.Workers)
	for i := range rows {
		for seed := range o.Seeds {
			slots <- struct{}{}
			busy.Go(func() {
				defer func() { <-slots }()
				f, err := one(&rows[i], log, uint64(seed))
				mu.Lock()
				defer mu.Unlock()
				done++
				fmt.Fprintf(told, "%d of %d runs\n", done, len(rows)*o.Seeds)
				if err != nil {
					failed = err
					return
				}
				rows[i].take(f, o.Seeds)
			})
		}
	}
	busy.Wait()
	return rows, failed
}

// one replays the log once. It reads only what never changes of the row.
func one(r *result, log []accesslog.Request, seed uint64) (measure.Figures, error) {

	return measure.Run(measure.Options{
		Given: requests(log, r.load, r.roams, seed), Limit: r.limit.Limit, Window: r.limit.Window,
		Regions: regions, Edges: edges, Consistency: r.level, Seed: seed,
	})
}

func (r *result) take(f measure.Figures, seeds int) {
	r.exact += f.Exact / float64(seeds)
	r.over, r.above, r.wrong, r.util = max(r.over, f.Over), max(r.above, f.Excess), max(r.wrong, f.Refused), min(r.util, f.Util)
}

// requests are those of the log, in order, at a speed: each somewhere within its
// second, at home or elsewhere. Silences in which a window passes, and the edges have
// long heard of all, are cut short: nothing is limited after them.
func requests(log []accesslog.Request, l load, r roams, seed uint64) []measure.Request {
	rnd := rand.New(rand.NewPCG(seed, 19))
	out := make([]measure.Request, len(log))
	clients := map[string]int{}
	for i, q := range log {
		key, ok := clients[q.Client]
		if !ok {
			key = len(clients)
			clients[q.Client] = key
		}
		home := hash(q.Client) % regions
		if rnd.Float64() < r.part {
			home = rnd.IntN(regions)
		}
		if l.of == "all" {
			key = 0
		}
		at := float64(q.At.Unix()-log[0].At.Unix()) + rnd.Float64()
		out[i] = measure.Request{After: time.Duration(at / l.speed * float64(time.Second)), Edge: home*edges + rnd.IntN(edges), Key: key}
	}
	slices.SortStableFunc(out, func(a, b measure.Request) int { return cmp.Compare(a.After, b.After) })
	longest := l.limit.Window + 10*time.Second
	gone := out[0].After
	for i := range out {
		out[i].After -= gone
		if i > 0 {
			if gap := out[i].After - out[i-1].After; gap > longest {
				gone += gap - longest
				out[i].After -= gap - longest
			}
		}
	}
	return out
}

func hash(s string) int {
	h := fnv.New32a()
	h.Write([]byte(s))
	return int(h.Sum32() >> 1)
}
