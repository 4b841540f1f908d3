package demo

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// banner is the first thing that is seen: what runs, where, and what to try.
func banner(w io.Writer, c *cluster, rules rulesText, about string) {
	store := "memory"
	if c.cfg.RedisURL != "" {
		store = "Redis"
	}
	fmt.Fprintf(w, "Spillgate: one rate limit over %s, decided in memory at each of %s.\n",
		counted(len(c.regions), "region"), counted(len(c.regions)*c.cfg.Edges, "edge"))
	fmt.Fprintf(w, "Embedded NATS, counts in %s, %v one way between regions; %s.\n\n", store, c.cfg.Delay, about)

	where(w, c)
	fmt.Fprintf(w, "\nTry, in another terminal:\n%s\n", try(c, rules))
	for _, cut := range c.cfg.Cuts {
		fmt.Fprintf(w, "%s is cut off from %v to %v.\n", cut.Region, cut.After, cut.After+cut.Length)
	}
	fmt.Fprint(w, "Drift is how wrong the worst edge is now, over-admission how far the worst window\nwas above its limit, both as a part of that limit. Ctrl-C ends it.\n\n")
}

// longTable is how many edges are listed one by one.
const longTable = 30

// where says at which address each edge listens.
func where(w io.Writer, c *cluster) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "REGION\tEDGE\tURL")
	_, port, _ := splitListen(c.cfg.Listen) // it was checked
	inARow := port > 0 && len(c.regions)*c.cfg.Edges > longTable
	for _, r := range c.regions {
		if last := r.edges[len(r.edges)-1]; inARow && len(r.edges) > 1 {
			fmt.Fprintf(table, "%s\t%s to %s\t%s to %s\n", r.name, r.edges[0].name, last.name, r.edges[0].url, last.url)
			continue
		}
		for _, s := range r.edges {
			fmt.Fprintf(table, "%s\t%s\t%s\n", r.name, s.name, s.url)
		}
	}
	_ = table.Flush() // as with all progress, a reader that is gone is no reason to stop
}

// try is a command to paste: with the demo's own rules it spends one user's
// five a minute over all regions, and is denied from then on, wherever it asks.
func try(c *cluster, rules rulesText) string {
	const header = "-H 'Content-Type: application/json'"
	first := c.regions[0].edges[0]
	if !rules.own() {
		return fmt.Sprintf("  curl -s %s/v1/check %s \\\n    -d '{\"namespace\":%q,\"attributes\":{\"path\":\"/\",\"client_ip\":\"192.0.2.1\"}}'\n", first.url, header, first.ns)
	}
	var ports []string
	for _, r := range c.regions[:min(3, len(c.regions))] {
		url := r.edges[0].url
		ports = append(ports, url[strings.LastIndexByte(url, ':')+1:])
	}
	if len(ports) == 1 {
		ports = append(ports, ports[0])
	}
	base := first.url[:strings.LastIndexByte(first.url, ':')]
	return fmt.Sprintf("  for port in %s; do for n in 1 2 3; do\n    curl -s %s:$port/v1/check %s -d '{\"attributes\":{\"user\":\"you\"}}'\n    sleep 0.2; done; done\n"+
		"It spends the five a minute of user \"you\" over the regions, then sees \"allowed\":false.\n", strings.Join(ports, " "), base, header)
}

// status is the live line.
func (d *show) status(s Sample) string {
	at := time.Duration(s.Millis) * time.Millisecond
	var decisions, denied uint64
	for _, r := range d.regions {
		all, no := r.decided()
		decisions, denied = decisions+all, denied+no
	}
	text := fmt.Sprintf("%4ds", int(at.Seconds()+0.5))
	if cut := d.cuts(at); len(cut) > 0 {
		text += "  (" + strings.Join(cut, ", ") + " cut off)"
	}
	return fmt.Sprintf("%s  %s decisions, %s denied  drift %s  over %s (worst %s)", text,
		thousands(decisions), thousands(denied), percent(s.Drift), percent(s.Over), percent(d.meter.over()))
}

// closing is the last line.
func closing(w io.Writer, sum Summary) error {
	drift := 0.0
	for _, r := range sum.Regions {
		drift = max(drift, r.Drift)
	}
	over := percent(sum.Over)
	if sum.untold {
		over = "not told"
	}
	_, err := fmt.Fprintf(w, "%d s: %s decisions, %s allowed, %s denied; worst drift %s, worst over-admission %s.\n", (sum.Millis+500)/1000,
		thousands(sum.Decisions), thousands(sum.Allowed), thousands(sum.Denied), percent(drift), over)
	if err == nil && len(sum.Unjudged) > 0 {
		_, err = fmt.Fprintf(w, "Over-admission is not told of %s: %s.\n", strings.Join(sum.Unjudged[:min(mostUnjudged, len(sum.Unjudged))], ", ")+more(len(sum.Unjudged)-mostUnjudged),
			"it is that of windows, and not of buckets, slots, elastic margins and what counts after the answer")
	}
	if err == nil && sum.Unlogged > 0 {
		_, err = fmt.Fprintf(w, "%s admissions did not fit into the exact log: drift and over-admission are wrong since then.\n", thousands(sum.Unlogged))
	}
	return err
}

// mostUnjudged is how many rates are named of which no over-admission is told.
const mostUnjudged = 5

// more says how many there are that are not named.
func more(count int) string {
	if count <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", count)
}

// line is the progress: on a terminal one line that is rewritten, else a line
// each time.
type line struct {
	w       io.Writer
	rewrite bool
	written bool
}

func newLine(w io.Writer, rewrite bool) *line { return &line{w: w, rewrite: rewrite} }

func (l *line) write(text string) {
	l.written = true
	if l.rewrite {
		// Clipped at the right edge, not wrapped: a second row would stay.
		fmt.Fprintf(l.w, "\r\x1b[K\x1b[?7l%s\x1b[?7h", text)
		return
	}
	fmt.Fprintln(l.w, text)
}

func (l *line) end() {
	if l.rewrite && l.written {
		fmt.Fprintln(l.w)
	}
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(uint64(n)) + " " + noun + "s"
}

// thousands writes 1234567 as 1,234,567.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func percent(x float64) string { return strconv.FormatFloat(x*100, 'f', 1, 64) + "%" }
