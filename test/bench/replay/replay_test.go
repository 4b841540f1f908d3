package replay

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/cmd/edge/demo/accesslog"
	"github.com/spillgate/spillgate/test/sim/scenarios"
)

var begin = time.Date(2015, 5, 17, 10, 5, 0, 0, time.UTC)

// busy is a log of three clients, each of them once a second for so long, an hour's
// silence, and one more request.
func busy(seconds int) (log []accesslog.Request) {
	for s := range seconds {
		for c := range 3 {
			log = append(log, accesslog.Request{Client: fmt.Sprint("10.0.0.", c), At: begin.Add(time.Duration(s) * time.Second)})
		}
	}
	return append(log, accesslog.Request{Client: "10.0.0.0", At: begin.Add(time.Hour)})
}

func TestRequestsOfALog(t *testing.T) {
	l := load{scenarios.Limit{Limit: 5, Window: 10 * time.Second}, 1, "client"}
	log := busy(60)
	out := requests(log, l, roams{"at home", 0}, 1)
	home := map[int]int{}
	for i, q := range out {
		if i > 0 && q.After < out[i-1].After {
			t.Fatalf("request %d comes at %v, before the last", i, q.After)
		}
		if region, ok := home[q.Key]; ok && region != q.Edge/edges {
			t.Errorf("client %d is at home in region %d, and comes to %d", q.Key, region, q.Edge/edges)
		}
		home[q.Key] = q.Edge / edges
	}
	if len(out) != len(log) || len(home) != 3 || out[0].After != 0 {
		t.Errorf("%d requests of %d clients, want %d of 3", len(out), len(home), len(log))
	}
	if last := out[len(out)-1].After - out[len(out)-2].After; last != 20*time.Second {
		t.Errorf("an hour's silence became %v, want a window and ten seconds", last)
	}

	l.speed, l.of = 30, "all"
	regionsOf := map[int]bool{}
	for _, q := range requests(log, l, roams{"roam", 1}, 1) {
		if q.Key != 0 || q.After > 25*time.Second {
			t.Fatalf("%+v: want one key, 30 times as fast", q)
		}
		regionsOf[q.Edge/edges] = true
	}
	if len(regionsOf) != regions {
		t.Errorf("who roams was in %d regions", len(regionsOf))
	}
}

// Each load, way and level has a row, and a limit that binds is kept at home.
func TestReplay(t *testing.T) {
	log := busy(20)
	rows, err := replayAll(Options{Seeds: 1, Workers: 2}, log, []load{{scenarios.Limit{Limit: 5, Window: 10 * time.Second}, 1, "client"}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(ways) * len(levels()); len(rows) != want {
		t.Fatalf("%d rows, want %d", len(rows), want)
	}
	for _, r := range rows {
		strict := r.level == "strict" // of few requests an edge some rights are always on their way
		if r.exact < 0.3 || r.util > 1.3 || r.util < 0.8 && !strict || r.over > 0 && strict {
			t.Errorf("%+v: twice the limit was asked for", r)
		}
	}
	text := table(Options{Log: "x.log", Seeds: 1}, &accesslog.Log{Requests: log}, rows, "commit abc", time.Second)
	if !strings.Contains(text, "-log x.log -seeds 1") || strings.Count(text, "| 5/10s, each client | ") != len(rows) {
		t.Errorf("the table is\n%s", text)
	}
}

func TestParse(t *testing.T) {
	if o, err := Parse([]string{"-log", "a.gz", "-seeds", "2"}, "out.md", io.Discard); err != nil || o.Log != "a.gz" || o.Seeds != 2 || o.Out != "out.md" {
		t.Errorf("%+v, %v", o, err)
	}
	for args, want := range map[string]string{"": "which access log", "-log a b": "no arguments", "-log a -seeds 0": "1 or more"} {
		if _, err := Parse(strings.Fields(args), "", io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error that says %q", args, err, want)
		}
	}
	if err := Run(Options{Log: "/nowhere.log", Seeds: 1, Workers: 1, Out: "-"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "nowhere.log") {
		t.Errorf("a log that is not there: %v", err)
	}
}
