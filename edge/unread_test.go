package edge

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What aggregators say and nobody can read is counted by reason, and told in the log once,
// not with each of hundreds a second.
func TestUnreadFramesAreCounted(t *testing.T) {
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	n := newNode(t, Config{Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))}, perUser(limit.RateSpec{Limit: 40, Per: aHundred.Per}))
	hot := deltasync.Hot{Region: "eu", LiveRegions: 1}
	newer, err := hot.AppendBinary(nil)
	if err != nil || newer[1] != deltasync.Version {
		t.Fatalf("% x, %v: want the version as the second byte", newer, err)
	}
	newer[1]++
	for range 300 {
		for what, payload := range map[string][]byte{"push": newer, "grants": []byte("garbage")} {
			receive := n.ReceiveHot
			if what == "grants" {
				receive = n.ReceiveGrants
			}
			err := receive(start, payload)
			if err == nil {
				t.Fatalf("%s: % x is taken", what, payload)
			}
			n.dropped(what, err)
		}
	}
	if err := n.Receive(start, 0, []byte("garbage")); err == nil {
		t.Error("a reply of garbage is taken")
	}
	if lines := strings.Count(log.String(), "dropped"); lines != 1 {
		t.Errorf("%d lines in the log, want one:\n%s", lines, &log)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "spillgate_sync_unread_total" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if got["version"] != 300 || got["push"] != 300 || got["reply"] != 1 {
		t.Errorf("counted %v, want 300 of another version, 300 pushes and a reply that are malformed", got)
	}
}
