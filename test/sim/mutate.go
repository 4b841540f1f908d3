package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/test/sim/trial"
)

var mutants = []mutant{
	{"sum instead of max", "crdt/cell.go",
		"c.Charges = max(c.Charges, d.Charges)", "c.Charges = SatAdd(c.Charges, d.Charges)", "1"},
	{"the request's value is subtracted, not the stored one", "regional/aggregator.go",
		"t = l.totalsFor(up.Replica(sec.Life), c, from, now)",
		`t = l.totals(c, from, now)
					var left []crdt.Cell
					for _, cell := range t.Peers {
						for _, told := range sec.Deltas[di].Cells {
							if told.Slice == cell.Slice {
								cell = cell.Less(told)
							}
						}
						if !cell.Zero() {
							left = append(left, cell)
						}
					}
					t.Peers = left`, "1|6"},
	{"no new incarnation when an edge starts again", "edge/node.go",
		"Incarnation: cfg.Incarnation, Lanes:", "Incarnation: 1767225630001, Lanes:", "4|9"}, // that of its first life in a trial
	{"a slice leaks into the next", "edge/ledger.go",
		"b.own.Add(crdt.Cell{Slice: b.slice, Charges: r.fresh})", "b.own.Add(crdt.Cell{Slice: b.slice + 1, Charges: r.fresh})", "1|5|9|16"},
	{"what regions and homes told is added up", "regional/taken.go",
		"cell = a.At(i).Join(b.At(j))", "cell = a.At(i).Plus(b.At(j))", "1|6"},
	{"homes tell what homes told", "regional/homes.go",
		"cells, own := c.regions.Sums().From(oldest, nil), c.regions.Of(asker)", "cells, own := c.others(oldest), c.regions.Of(asker)", "1"},
	{"acknowledged before it is stored", "regional/aggregator.go",
		"if !stored || a.store.away.Load() > 0 {", "if stored = true; !stored {", "owners"},
	{"an aggregator names the same store for ever", "regional/aggregator.go",
		"Store: a.store.identity(), LiveEdges", "Store: a.self.Node, LiveEdges", "store"},
	{"a crossing of 50 % is not pushed", "regional/merge.go",
		"if !c.pushed && l.crossing(c, now) {", "if !c.pushed && l.crossing(c, now) && c.crossed != 1 {", "7"},
	{"what has drained of a bucket since anybody looked crosses nothing anew", "regional/merge.go",
		"if d.Tells() {\n\t\t\t\tl.arm(c, now)", "if false {\n\t\t\t\tl.arm(c, now)", "7"},
	{"a region takes what others count off its own", "regional/counter.go",
		"Key: key, Flags: flags, Cells: c.subtotal(from),",
		`Key: key, Flags: flags, Cells: func() (left []crdt.Cell) {
			for _, cell := range c.subtotal(from) {
				if cell = cell.Less(c.regions.Sums().Get(cell.Slice)); !cell.Zero() {
					left = append(left, cell)
				}
			}
			return left
		}(),`, "9"},
	{"what was lost goes out again as it was", "sync/outbox.go",
		"if left, shape, any := f.left(s, *d, newer); any {", "if left, shape, any := *d, s.Shape, len(newer) >= 0; any {", "9"},
	{"new keys need no room", "regional/guard.go",
		"if !a.makeRoom(l, pop, matters, now) {", "if false {", "10"},
	{"a view is younger than it is", "edge/report.go",
		"d.Basis.Age = time.Duration(max(0, now-r.heard))", "d.Basis.Age = time.Duration(max(0, now-r.heard)) / 2", "11"},
	{"new rules are not taken", "edge/node.go",
		"n.rules.Store(set)", "n.rules.CompareAndSwap(nil, set)", "12"},
	{"edges of the first build are not understood", "edge/flush.go",
		"if down.Region != n.cfg.Region || down.Node != n.region {", "if down.Region != n.cfg.Region || down.Node != n.region || down.Store == 0 && down.Status == deltasync.StatusOK {", "13"},
	{"all frames go to the first lane", "edge/flush.go",
		"Subject: deltasync.EdgeSubject(n.cfg.Region, lane,", "Subject: deltasync.EdgeSubject(n.cfg.Region, 0,", "14"},
	{"a denied request is charged", "edge/decide.go",
		"if !denied && !c.spared || !c.chargedDenied() {", "if !denied && !c.spared || i > 0 && !c.chargedDenied() {", "16"},
	{"the dead keep their lanes", "regional/members.go",
		"if now-o.heard > int64(deadAfter) {", "if o.leaving {", "take-over"},
	{"two owners are never told of each other by the store", "regional/counter.go",
		"return now-c.asked > int64(OwnersApart)", "return now-c.asked > 10*int64(OwnersApart)", "owners"},
	{"penalties are not told", "edge/news.go",
		"d.Until = b.sentence(now)", "d.Until = 0", "penalty"},
	{"nobody is muted", "sync/mute.go",
		"if f.refused++; f.refused <= muteAfter {", "if f.refused++; f.refused > 0 {", "hostile"},
	{"a PoP may keep a key out for as long as it likes", "regional/merge.go",
		"until = a.heed(l, d.Key, c, up, until, now)", "_ = a.heed(l, d.Key, c, up, until, now)", "hostile"},
	{"an edge tells no counts of rules that were replaced", "edge/flush.go",
		"if p.rate != b.rate {", "if (*n.rates.Load())[p.rate.Generation] == nil {\n\t\t\tcontinue\n\t\t}\n\t\tif p.rate != b.rate {", "4|7"},
	{"a count does not know its algorithm", "edge/limit/rule.go",
		"field(r.Algorithm.String())", "field(\"\")", "generation"},
	{"a PoP gives back nothing of what others charged", "regional/refunds.go",
		"room := min(c.smallestLimit(), max(l.chargedBeside(c, of, oldest), early))", "room := uint64(0)", "4"},
	{"an edge gives back first what others charged", "edge/giveback.go",
		"[]bool{true, false}", "[]bool{false, true}", "give-back"},
	{"rights are taken back at once from who falls silent", "regional/escrow/deposit.go",
		"silent > spare(lease+min(h.Lasts, longest)) ||", "silent > lease/8 ||", "15"},
	{"an edge holds what it has returned", "edge/rights.go",
		"return crdt.SatSub(rt.granted, rt.returned)", "return rt.granted", "15"},
	{"closed limits stay open", "edge/partition.go",
		"return rate.OnPartition == limit.PartitionClosed && c.cutOff(rate, now)", "return false", "cut-off"},
	{"what was allowed before a cut holds on", "edge/partition.go",
		"r.until = min(r.until, now+int64(s.cluster.interval))\n\tif s.cluster.closes(rate, now) {", "if false {", "cut-off"},
	{"half of the regions are enough to hear of", "edge/partition.go",
		"2*c.live.Load() <= regions", "2*c.live.Load() < regions", "cut-off"},
	{"who was cut off stays so", "edge/share.go",
		"c.waiting.Swap(0)", "c.waiting.Load()", "cut-off"},
	{"clocks are turned the wrong way", "sync/clock.go",
		"x.offset = (received-sent)/2 + (replied-arrived)/2", "x.offset = (sent-received)/2 + (arrived-replied)/2", "clocks"},
	{"an edge hears nothing of clocks", "edge/flush.go",
		"if down.EchoSentAt == up.SentAt {", "if down.EchoSentAt == -up.SentAt {", "clocks"},
	{"regions hear nothing of each other's clocks", "regional/exchange.go",
		"if down.EchoSentAt == up.SentAt {", "if down.EchoSentAt == -up.SentAt {", "clocks"},
	{"an edge may count what it likes", "regional/merge.go",
		"cells = a.clamp(l, c, sec.Shape, replica, cells, oldest, index, m)", "_ = a.clamp(l, c, sec.Shape, replica, cells, oldest, index, m)", "hostile"},
}

// quietMutants show where nothing ails anybody.
var quietMutants = []mutant{
	{"every change from 50 % on is pushed", "regional/counter.go",
		"return news || c.crossed&(1<<contended) != 0 ||", "return news || c.crossed&(1<<0) != 0 ||", "7"},
}

// loneMutants show where nothing ails anybody but one fault: that it alone finds them.
var loneMutants = []struct {
	fault trial.Fault
	mutant
}{
	{trial.CrashEdge, mutant{"who dies keeps his rights for good", "regional/escrow/deposit.go",
		"silent > spare(lease+min(h.Lasts, longest)) || h.Out()", "h.Out()", "15"}},
	{trial.Depart, mutant{"what an ended life spent is free at once", "regional/escrow/ends.go",
		"part := &holding{Holding: h.Holding, heard: now - lease - max(0, lasts-e.In),", "part := &holding{Holding: h.Holding, heard: now - lease - lasts,", "15"}},
	{trial.NewRegion, mutant{"a region that was never heard is given up", "regional/exchange.go",
		"p := &l.peers[j]; (now >= p.until", "p := &l.peers[j]; (p.fails <= 8 || p.heard != 0) && (now >= p.until", "4|cut-off"}},
	{trial.Slow, mutant{"what came in late is not told to who asked before", "regional/since.go",
		"if !c.late.before(asked) {", "if false {", "4"}},
}

// mutantSeeds is within how many trials each must be caught.
const mutantSeeds = 1000

// searchedFrom is the trial with which the search begins for those that the first ones
// missed when last looked.
var searchedFrom = map[string]uint64{
	"penalties are not told":                                                 70,
	"half of the regions are enough to hear of":                              67,
	"what was allowed before a cut holds on":                                 66,
	"closed limits stay open":                                                66,
	"a count does not know its algorithm":                                    65,
	"what came in late is not told to who asked before":                      26,
	"who was cut off stays so":                                               21,
	"homes tell what homes told":                                             21,
	"a region that was never heard is given up":                              21,
	"an edge holds what it has returned":                                     20,
	"acknowledged before it is stored":                                       19,
	"what has drained of a bucket since anybody looked crosses nothing anew": 18,
	"rights are taken back at once from who falls silent":                    16,
	"new rules are not taken":                                                16,
}

var (
	broken = regexp.MustCompile(`invariant ([\w-]+),`)
	reason = regexp.MustCompile(`[^,]*after the start.*`)
	replay = regexp.MustCompile(`replay: .* -seed (\d+)`)
)

// planting is a mutant, and the faults to plant it among.
type planting struct {
	mutant
	faults []string
}

// plantings are all that must be caught.
func plantings() (all []planting) {
	for _, m := range mutants {
		all = append(all, planting{m, nil})
	}
	for _, m := range quietMutants {
		all = append(all, planting{m, []string{"-without", "all"}})
	}
	for _, m := range loneMutants {
		all = append(all, planting{m.mutant, []string{"-only", string(m.fault)}})
	}
	return all
}

// mutate builds this command once, with all of the bugs, and has it search with each of
// them. An error says which was not caught, or broke what it cannot break.
func mutate(stdout io.Writer) error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	dir, err := os.MkdirTemp("", "spillgate-mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	all, command := plantings(), filepath.Join(dir, "sim")
	var bugs []mutant
	for _, p := range all {
		bugs = append(bugs, p.mutant)
	}
	if err := build(strings.TrimSpace(string(out)), dir, command, "./test/sim", bugs); err != nil {
		return err
	}
	if err := harmless(command, 20); err != nil {
		return fmt.Errorf("with the bugs in it, and none chosen: %w", err)
	}
	return catch(stdout, command, all)
}

// catch runs the command as each bug, two at a time: one looks for fewer faults while
// another runs trials. It tells of them in their order, and returns what is wrong with the
// first that is not caught.
func catch(stdout io.Writer, command string, all []planting) error {
	type result struct {
		found string
		err   error
	}
	results := make([]chan result, len(all))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	var next atomic.Int32
	var planters sync.WaitGroup
	defer planters.Wait()
	defer next.Store(int32(len(all))) // one that is not caught ends it
	for range 2 {
		planters.Go(func() { // until all are planted, or next is set beyond them
			for i := int(next.Add(1) - 1); i < len(all); i = int(next.Add(1) - 1) {
				search := append([]string{"-once", "-seed", fmt.Sprint(searchedFrom[all[i].name]), "-seeds", fmt.Sprint(mutantSeeds)}, all[i].faults...)
				found, err := all[i].caught(planted(command, fmt.Sprint(i), search...))
				results[i] <- result{found, err}
			}
		})
	}
	for i := range all {
		r := <-results[i]
		if r.err != nil {
			return fmt.Errorf("%s: %w", all[i].name, r.err)
		}
		fmt.Fprintf(stdout, "caught: %s: %s\n", all[i].name, r.found)
	}
	return nil
}

// planted is a run of the command that has the mutants, as the one of this index, or as
// none of them.
func planted(command, index string, args ...string) *exec.Cmd {
	run := exec.Command(command, args...)
	run.Env = append(os.Environ(), plantedEnv+"="+index)
	return run
}

// harmless says what is wrong with the command when it is none of its mutants: all that
// planting broke would be taken for a bug that is caught. It must find in so many trials
// what this one finds.
func harmless(command string, seeds int) error {
	args := []string{"-once", "-seeds", fmt.Sprint(seeds)}
	got, err := planted(command, "", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, got)
	}
	var want strings.Builder
	if err := run(args, &want, io.Discard); err != nil {
		return err
	}
	had, _, _ := strings.Cut(string(got), " in ") // so many seconds
	if has, _, _ := strings.Cut(want.String(), " in "); had != has {
		return fmt.Errorf("%s, want %s", had, has)
	}
	return nil
}

// caught runs the command that has the mutant, which must fail, and says how it
// does.
func (m *mutant) caught(command *exec.Cmd) (how string, err error) {
	out, err := command.CombinedOutput()
	found := broken.FindSubmatch(out)
	switch {
	case err == nil:
		return "", fmt.Errorf("%d trials pass, it must be caught", mutantSeeds)
	case found == nil:
		return "", fmt.Errorf("it fails, and breaks no invariant: %s", out)
	case !regexp.MustCompile("^(" + m.breaks + ")$").Match(found[1]):
		return "", fmt.Errorf("it breaks invariant %s, want %s: %s", found[1], m.breaks, out)
	}
	seed := "?"
	if at := replay.FindSubmatch(out); at != nil {
		seed = string(at[1])
	}
	return fmt.Sprintf("trial %s, invariant %s, %s", seed, found[1], reason.Find(out)), nil
}
