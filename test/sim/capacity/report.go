package capacity

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// row is a line of the table.
type row struct {
	what string
	of   func(*Envelope) string
}

var rows = []row{
	{"edges a region; active keys; requests/s of the fleet", func(e *Envelope) string {
		p := &e.Plan
		return fmt.Sprintf("%d; %s; %s", p.Edges, count(float64(p.Keys)), count(p.RPS*float64(p.Edges*p.Regions)))
	}},
	{"targets", func(e *Envelope) string { return e.Plan.Targets }},
	{"requests to keys above half of their limit; over it", func(e *Envelope) string {
		return fmt.Sprintf("%.0f %%; %.0f %%", 100*e.Pressing, 100*e.Denied)
	}},
	{"**each edge**: requests/s", func(e *Envelope) string { return count(e.Plan.RPS) }},
	{"entries/s", func(e *Envelope) string { return count(e.Edge.Entries) }},
	{"of them new counts; all again; only asking", func(e *Envelope) string {
		return fmt.Sprintf("%s; %s; %s", count(e.Edge.Told), count(e.Edge.Refreshed), count(e.Edge.Asking))
	}},
	{"frames/s; pushes heard/s", func(e *Envelope) string { return count(e.Edge.Frames) + "; " + count(e.Edge.Pushes) }},
	{"bytes up; down; of that pushes, a second", func(e *Envelope) string {
		return size(e.Edge.Up) + "; " + size(e.Edge.Down) + "; " + size(e.Edge.PushBytes)
	}},
	{"live keys; memory", func(e *Envelope) string { return count(e.Edge.Keys) + "; " + size(e.Edge.Memory) }},
	{"**each region**: entries/s of its edges", func(e *Envelope) string { return count(e.Region.Entries) }},
	{"bytes up; down, a second", func(e *Envelope) string { return size(e.Region.Up) + "; " + size(e.Region.Down) }},
	{"keys exported/s; frames/s", func(e *Envelope) string { return count(e.Region.Exports) + "; " + count(e.Region.Frames) }},
	{"bytes to other regions, a second; of a frame", func(e *Envelope) string {
		mark := ""
		if e.Region.Frame > MaxFrame {
			mark = " (!)"
		}
		return size(e.Region.Egress) + "; " + size(e.Region.Frame) + mark
	}},
	{"NATS messages/s", func(e *Envelope) string { return count(e.Region.Messages) }},
	{"merges/s (slices); keys of frames/s", func(e *Envelope) string { return count(e.Region.Merges) + "; " + count(e.Region.FrameKeys) }},
	{"cores of aggregators; their memory", func(e *Envelope) string { return amount(e.Region.Cores) + "; " + size(e.Region.AggregatorMemory) }},
	{"of each of them", func(e *Envelope) string {
		n := float64(e.Plan.Aggregators)
		return amount(e.Region.Cores/n) + "; " + size(e.Region.AggregatorMemory/n)
	}},
	{"keys written to Redis/s; **masters**", func(e *Envelope) string {
		return fmt.Sprintf("%s; **%.0f**", count(e.Region.Writes), e.Region.Masters)
	}},
	{"Redis memory, replicas counted", func(e *Envelope) string { return size(e.Region.RedisMemory) }},
}

// Print writes a table, a column an Envelope.
func Print(w io.Writer, all []Envelope) error {
	var b strings.Builder
	line := func(what string, of func(*Envelope) string) {
		b.WriteString("| " + what)
		for i := range all {
			b.WriteString(" | " + of(&all[i]))
		}
		b.WriteString(" |\n")
	}
	p := &all[0].Plan
	fmt.Fprintf(&b, "Zipf s = %v; each key %.0f in %v of %d slices; %d lanes; %d aggregators a region; round trips of %v to the region and %v between regions.\n\n",
		p.Skew, p.Limit, p.Window, p.Slices, p.Lanes, p.Aggregators, p.EdgeRTT, p.RegionRTT)
	line("", func(e *Envelope) string { return fmt.Sprintf("%d regions", e.Plan.Regions) })
	line("---", func(*Envelope) string { return "---" })
	for _, r := range rows {
		line(r.what, r.of)
	}
	for i := range all {
		if all[i].Region.Frame > MaxFrame {
			b.WriteString("\n(!) That is what there is to tell at a time, and no frame is ever above 64 KiB: with so few lanes not all of it gets through in time. Exports then come later, and more changes share one.\n")
			break
		}
	}
	b.WriteString("\nWhere the costs come from:\n\n")
	for _, s := range Sources {
		fmt.Fprintf(&b, "- %s: %s\n", s.What, s.From)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var units = []string{"", "k", "M", "G", "T", "P"}

// amount is x to two or three places.
func amount(x float64) string {
	if x >= 10 || x == 0 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

func count(x float64) string {
	n := 0
	for ; math.Abs(x) >= 1000 && n < len(units)-1; n++ {
		x /= 1000
	}
	return strings.TrimSpace(amount(x) + " " + units[n])
}

func size(x float64) string {
	n := 0
	for ; x >= 1000 && n < len(units)-1; n++ {
		x /= 1000
	}
	return amount(x) + " " + units[n] + "B"
}
