package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/test/proc"
)

// An aggregator whose machine's clock is behind those of the other regions stores what its
// edges count now by theirs. By the clock of the machine that would be to come, and the
// store would not have it.
func TestStoreGoesByTheTimeOfTheOtherRegions(t *testing.T) {
	const behind = time.Minute
	theirs := func() time.Time { return time.Now().Add(behind) }
	redis, nats := proc.Redis(t), proc.NATS(t)
	bus, err := natsbus.Connect(natsbus.Config{URLs: []string{nats.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	settings := configs.AggregatorSettings{
		Admin: configs.AdminSettings{Listen: "127.0.0.1:0"}, Region: "eu", Name: "a1", Peers: []string{"us", "ap"}, Lanes: 1, MaxBytes: 64 << 20,
		Redis: configs.RedisSettings{Addrs: []string{redis.Addr}}, NATS: configs.NATSSettings{URLs: []string{nats.URL}},
		Sync: configs.SyncSettings{Interval: 100 * time.Millisecond, UrgentInterval: 20 * time.Millisecond, Timeout: time.Second},
	}
	for _, peer := range settings.Peers {
		if _, err := bus.Serve(deltasync.LaneSubjects(peer, 0), deltasync.Queue(peer), func(_ context.Context, _ string, payload []byte) []byte {
			return answerAs(peer, theirs(), payload)
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, &settings, slog.New(slog.DiscardHandler)) }() // ends with ctx, below
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}()

	store, err := redisstore.New(redisstore.Config{Addrs: []string{redis.Addr}, Prefix: "sg-eu", Now: theirs})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	shape := deltasync.Shape{Generation: 7, Width: 1500 * time.Millisecond, Slices: 40, Limit: 100}
	seq := uint64(0)
	proc.Until(t, 30*time.Second, func() error {
		seq++
		up := deltasync.Up{
			Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e1", Node: deltasync.NodeID("eu", "p", "e1"), Incarnation: 1, Lanes: 1, Seq: seq, SentAt: theirs().UnixNano(),
			Sections: []deltasync.Section{{Shape: shape, Deltas: []deltasync.Delta{{
				Key: 9, Cells: []crdt.Cell{{Slice: crdt.Slice(theirs().UnixNano() / int64(shape.Width)), Charges: 5}},
			}}}},
		}
		frame, err := up.AppendBinary(nil)
		if err != nil {
			return err
		}
		asks, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		reply, err := bus.Request(asks, deltasync.EdgeSubject("eu", 0, "p", "e1"), frame)
		if err != nil {
			return err
		}
		var down deltasync.Down
		if err := down.UnmarshalBinary(reply); err != nil {
			return err
		}
		if down.Status != deltasync.StatusOK { // while its clock is its machine's the slice is to come
			return fmt.Errorf("the edge is answered %v, want ok", down.Status)
		}
		got, err := store.Load(asks, []regional.Item{{Key: 9, Width: shape.Width, Slices: shape.Slices}})
		if err == nil && len(got[0].Vectors) != 1 {
			err = fmt.Errorf("the store has %+v, want what the edge counted", got)
		}
		return err
	})
}

// answerAs is the answer of a region that knows nothing of what it is asked, at an instant
// by its clock.
func answerAs(region string, at time.Time, frame []byte) []byte {
	var up deltasync.Up
	if err := up.UnmarshalBinary(frame); err != nil {
		return nil
	}
	down := deltasync.Down{
		Status: deltasync.StatusOK, Region: region, Node: deltasync.NodeID(region, "", ""), Seq: up.Seq, StoreEpoch: 1,
		EchoSentAt: up.SentAt, ReceivedAt: at.UnixNano(), SentAt: at.UnixNano(),
	}
	for _, s := range up.Sections {
		down.Totals = append(down.Totals, make([]deltasync.Totals, len(s.Deltas))...)
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		return nil
	}
	return b
}
