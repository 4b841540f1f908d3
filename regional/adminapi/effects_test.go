package adminapi

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// Who makes a limit smaller is told what of the last hour's traffic it would have denied.
func TestEffects(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	d.want(201, `"effects":[]`, "ed", "PUT", shop, limited(100), "If-None-Match", "*")
	set, _, err := configs.FormatSpillgate.CheckTexts(configs.Text{Name: "shop", Namespace: "shop", Text: limited(100)})
	if err != nil {
		t.Fatal(err)
	}
	d.agg.SetRules(set)
	const lanes = 8
	rate, now := set.Rules()[slices.IndexFunc(set.Rules(), func(r *limit.Rule) bool { return r.Name == "all" })].Rates[0], time.Now()
	up := deltasync.Up{Kind: deltasync.KindEdge, Region: "eu", Pop: "fra", Name: "e1", Node: deltasync.NodeID("eu", "fra", "e1"), Incarnation: 1, Lanes: lanes, Seq: 1, SentAt: now.UnixNano(),
		Sections: []deltasync.Section{{Shape: deltasync.Shape{Generation: rate.Generation, Width: rate.Width, Slices: rate.Span, Limit: rate.Limit}}}}
	var keys []deltasync.Key // of one lane
	for k := deltasync.Key(1); len(keys) < 2; k++ {
		if k.Lane(lanes) == 0 {
			keys = append(keys, k)
		}
	}
	slice := rate.SliceAt(now.UnixNano())
	up.Sections[0].Deltas = []deltasync.Delta{ // one user has 60 of his 100 an hour, and one 20
		{Key: keys[0], Cells: []crdt.Cell{{Slice: slice, Charges: 60}}}, {Key: keys[1], Cells: []crdt.Cell{{Slice: slice, Charges: 20}}},
	}
	b, err := up.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if d.agg.Tick(now); len(d.agg.Handle(context.Background(), now, deltasync.EdgeSubject("eu", 0, "fra", "e1"), b)) == 0 {
		t.Fatal("no answer")
	}
	if got := d.agg.Used(now, keys[0]); got != 60 {
		t.Fatalf("%d are counted of 60", got)
	}
	for range 2 {
		d.agg.Tick(now)
		now = now.Add(5 * time.Minute)
	}

	tried := func(most int) (c Changed) {
		w := d.want(200, "", "ed", "PUT", shop+"?dry_run=1", limited(most), "If-Match", "*")
		if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := tried(40); len(c.Effects) != 1 || c.Effects[0].Rule != "all" || c.Effects[0].Rate != "hour" || c.Effects[0].Part != 0.25 || c.Effects[0].Windows != 1 || c.Effects[0].Of != 2 {
		t.Errorf("40 of 100: %+v", c.Effects)
	}
	d.want(200, "this would have denied 25 % of the last hour's traffic in all.hour", "ed", "PUT", shop+"?dry_run=1", limited(40), "If-Match", "*")
	d.want(200, "this would have denied 100 % of the last hour's traffic in all.hour", "ed", "PUT", shop+"?dry_run=1", limited(0), "If-Match", "*")
	if c := tried(0); len(c.Warnings) < 2 || c.Warnings[len(c.Warnings)-1].Code != configs.EffectCode || c.Warnings[len(c.Warnings)-1].Line != 7 {
		t.Errorf("0 of 100: %+v", c.Warnings)
	}
	for _, most := range []int{99, 100, 1000} {
		if c := tried(most); len(c.Effects) > 0 && c.Effects[0].Part > 0 || len(c.Warnings) != 1 { // of another kind
			t.Errorf("%d of 100: %+v %+v", most, c.Effects, c.Warnings)
		}
	}
	d.want(200, `"changed":true`, "ed", "PUT", shop, limited(40), "If-Match", "*") // which was warned of, and is done
}
