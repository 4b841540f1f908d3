package deltasync

import (
	"bytes"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/spillgate/spillgate/test/alone"
)

// frame is what Up, Down and Hot have in common.
type frame interface {
	AppendBinary(dst []byte) ([]byte, error)
	UnmarshalBinary(b []byte) error
}

var (
	_ frame = (*Up)(nil)
	_ frame = (*Down)(nil)
	_ frame = (*Hot)(nil)
)

type kind struct {
	name protoreflect.Name
	zero func() frame
	rand func(frames) frame
	spec func(testing.TB, frame) *dynamicpb.Message
}

// kinds are the five frames, each with its message in frame.proto.
var kinds = []kind{
	{"Up", func() frame { return new(Up) }, func(r frames) frame { return r.up() },
		func(t testing.TB, f frame) *dynamicpb.Message { return specUp(t, f.(*Up)) }},
	{"Down", func() frame { return new(Down) }, func(r frames) frame { return r.down() },
		func(t testing.TB, f frame) *dynamicpb.Message { return specDown(t, f.(*Down)) }},
	{"Hot", func() frame { return new(Hot) }, func(r frames) frame { return r.hot() },
		func(t testing.TB, f frame) *dynamicpb.Message { return specHot(t, f.(*Hot)) }},
	{"Live", func() frame { return new(Live) }, func(r frames) frame { return r.live() },
		func(t testing.TB, f frame) *dynamicpb.Message { return specLive(t, f.(*Live)) }},
	{"Snap", func() frame { return new(Snap) }, func(r frames) frame { return r.snap() },
		func(t testing.TB, f frame) *dynamicpb.Message { return specSnap(t, f.(*Snap)) }},
	{"Claims", func() frame { return new(Claims) }, func(r frames) frame { return r.claims() },
		func(t testing.TB, f frame) *dynamicpb.Message { return specClaims(t, f.(*Claims)) }},
	{"Grants", func() frame { return new(Grants) }, func(r frames) frame { return r.grants() },
		func(t testing.TB, f frame) *dynamicpb.Message { return specGrants(t, f.(*Grants)) }},
}

func encode(t testing.TB, f frame) []byte {
	t.Helper()
	b, err := f.AppendBinary(nil)
	if err != nil {
		t.Fatalf("AppendBinary(%+v): %v", f, err)
	}
	return b
}

// TestSpec holds the codec against frame.proto in both directions: what it
// writes is, byte for byte, what a protobuf library writes by the file, and what
// the library writes is read as the frame that it was made from.
func TestSpec(t *testing.T) {
	alone.Mark(t)
	for _, k := range kinds {
		t.Run(string(k.name), func(t *testing.T) {
			for seed := range uint64(500) {
				f := k.rand(newFrames(seed))
				want := marshal(t, k.spec(t, f))
				got, err := f.AppendBinary([]byte("head"))
				if err != nil {
					t.Fatalf("seed %d: AppendBinary: %v", seed, err)
				}
				if got = got[4:]; !bytes.Equal(got, want) {
					t.Fatalf("seed %d: frame\n%x, by frame.proto\n%x", seed, got, want)
				}
				read := newMessage(t, k.name)
				if err := proto.Unmarshal(got, read); err != nil {
					t.Fatalf("seed %d: unmarshal by frame.proto: %v", seed, err)
				}
				if u := unknown(read); len(u) > 0 {
					t.Fatalf("seed %d: %v hold fields that frame.proto does not name", seed, u)
				}
				back := k.zero()
				if err := back.UnmarshalBinary(want); err != nil {
					t.Fatalf("seed %d: UnmarshalBinary: %v", seed, err)
				}
				if !reflect.DeepEqual(back, f) {
					t.Fatalf("seed %d: read %+v, want %+v", seed, back, f)
				}
			}
		})
	}
}

// TestKeepsNothing: a frame shares no memory with the bytes that it was read
// from, and its lists of cells none with each other.
func TestKeepsNothing(t *testing.T) {
	for _, k := range kinds {
		for seed := range uint64(50) {
			want := k.rand(newFrames(seed))
			b := encode(t, want)
			got := k.zero()
			if err := got.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			for i := range b {
				b[i] = 0xff
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s, seed %d: changed with the input", k.name, seed)
			}
		}
	}
	var u Up
	in := &Up{Kind: KindEdge, Lanes: 1, Sections: []Section{{Shape: minute, Deltas: []Delta{{Key: 1, Cells: cell(5, 1)}, {Key: 2, Cells: cell(5, 2)}}}}}
	if err := u.UnmarshalBinary(encode(t, in)); err != nil {
		t.Fatal(err)
	}
	d := u.Sections[0].Deltas
	d[0].Cells = append(d[0].Cells, cell(6, 9)...)
	if d[1].Cells[0] != in.Sections[0].Deltas[1].Cells[0] {
		t.Errorf("appending to the cells of one key changed the next: %v", d[1].Cells)
	}
}

// TestNumbers: the numbers in Go are those of frame.proto, all of them, those
// not yet used included.
func TestNumbers(t *testing.T) {
	numbers := map[protoreflect.Name]map[protoreflect.Name]protoreflect.FieldNumber{
		"Up": {"version": upVersion, "kind": upKind, "region": upRegion, "pop": upPop, "name": upName, "node": upNode,
			"incarnation": upIncarnation, "lane": upLane, "lanes": upLanes, "seq": upSeq, "sent_at": upSentAt, "secret_check": upSecretCheck, "hears": upHears, "silent": upSilent,
			"sections": upSections, "features": upFeatures, "received_at": upReceivedAt, "echo_sent_at": upEchoSentAt,
			"echo_age": upEchoAge, "echo_seq": upEchoSeq, "live_edges": upLiveEdges, "heard_epoch": upHeardEpoch},
		"Shape": {"generation": shapeGeneration, "width": shapeWidth, "slices": shapeSlices, "limit": shapeLimit, "regional": shapeRegional,
			"refill": shapeRefill, "refill_per": shapeRefillPer, "floor": shapeFloor, "eager": shapeEager},
		"Cells": {"counts": cellsCounts, "slices": cellsSlices, "charges": cellsCharges, "refunds": cellsRefunds},
		"Section": {"shape": sectionShape, "life": sectionLife, "base": sectionBase, "keys": sectionKeys, "flags": sectionFlags,
			"cells": sectionCells, "until": sectionUntil, "carry_slices": sectionCarrySlices, "carry_levels": sectionCarryLevels,
			"demand_fast": sectionDemandFast, "demand_mid": sectionDemandMid, "demand_slow": sectionDemandSlow,
			"demand_window": sectionDemandWindow, "demand_kept": sectionDemandKept, "demand_since": sectionDemandSince, "demand_kept_spent": sectionKeptSpent, "admitted": sectionAdmitted, "admitted_age": sectionAdmittedAge, "heard": sectionHeard},
		"Totals": {"base": totalsBase, "others": totalsOthers, "peers": totalsPeers, "seen": totalsSeen, "own": totalsOwn,
			"others_sums": totalsOthersSums, "peers_sums": totalsPeersSums, "omega": totalsOmega, "weight": totalsWeight,
			"demand_sum": totalsDemandSum, "demand_window": totalsDemandWindow, "admitted": totalsAdmitted,
			"limit_in_force": totalsLimitInForce, "kept": totalsKept, "doubt": totalsDoubt, "spent": totalsSpent, "unseen": totalsUnseen, "demand": totalsDemand, "until": totalsUntil, "carry_slices": totalsCarrySlices, "carry_levels": totalsCarryLevels},
		"StoreEpoch": {"tag": storeEpochTag, "epoch": storeEpochEpoch},
		"Down": {"version": upVersion, "status": downStatus, "region": downRegion, "node": downNode, "seq": downSeq,
			"echo_sent_at": downEchoSentAt, "received_at": downReceivedAt, "sent_at": downSentAt, "store_epoch": downStoreEpoch,
			"pace": downPace, "live_edges": downLiveEdges, "live_regions": downLiveRegions, "between": downBetween, "regions": downRegions, "totals": downTotals, "mistake": downMistake, "lanes": downLanes,
			"features": downFeatures, "echo_age": downEchoAge, "epochs": downEpochs, "refused": downRefused, "store": downStore, "hears": downHears, "named": downNamed},
		"Taken": {"node": takenNode, "incarnation": takenIncarnation, "seq": takenSeq},
		"Hot": {"version": upVersion, "region": hotRegion, "lane": hotLane, "sent_at": hotSentAt, "live_regions": hotLiveRegions,
			"sections": hotSections, "lanes": hotLanes, "seq": hotSeq, "live_edges": hotLiveEdges, "taken": hotTaken,
			"features": hotFeatures, "store_epoch": hotStoreEpoch, "pace": hotPace, "next": hotNext},
		"Snap":       {"version": upVersion, "region": snapRegion, "lane": snapLane, "lanes": snapLanes, "from": snapFrom},
		"HotSection": {"shape": hotSectionShape, "keys": hotSectionKeys, "totals": hotSectionTotals},
		"Live": {"version": upVersion, "region": liveRegion, "name": liveName, "incarnation": liveIncarnation, "lanes": liveLanes,
			"sent_at": liveSentAt, "leaving": liveLeaving, "live_edges": liveLiveEdges, "live_regions": liveLiveRegions, "even_edges": liveEvenEdges},
		"Claims": {"version": upVersion, "region": claimsRegion, "lane": claimsLane, "lanes": claimsLanes, "from": claimsFrom, "pop": claimsPop,
			"name": claimsName, "sent_at": claimsSentAt, "claims": claimsClaims},
		"Claim": {"key": claimKey, "holder": claimHolder, "limit": claimLimit, "lasts": claimLasts, "granted": claimGranted,
			"returned": claimReturned, "want": claimWant, "regional": claimRegional, "bound": claimBound, "ends": claimEnds},
		"End": {"cost": endCost, "in": endIn},
		"Grants": {"version": upVersion, "region": grantsRegion, "lane": grantsLane, "status": grantsStatus, "echo": grantsEcho,
			"lease": grantsLease, "log": grantsLog, "grants": grantsGrants},
		"Grant": {"key": grantKey, "holder": grantHolder, "granted": grantGranted, "target": grantTarget, "echo": grantEcho,
			"flags": grantFlags, "home": grantHome},
	}
	messages := spec(t).Messages()
	if messages.Len() != len(numbers) {
		t.Errorf("frame.proto has %d messages, want %d", messages.Len(), len(numbers))
	}
	for i := range messages.Len() {
		m := messages.Get(i)
		want := numbers[m.Name()]
		if m.Fields().Len() != len(want) {
			t.Errorf("message %s has %d fields, want %d", m.Name(), m.Fields().Len(), len(want))
		}
		for j := range m.Fields().Len() {
			if f := m.Fields().Get(j); f.Number() != want[f.Name()] {
				t.Errorf("%s is %d in frame.proto, want %d", f.FullName(), f.Number(), want[f.Name()])
			}
		}
	}
	for name, want := range map[protoreflect.Name]int{
		"KIND_EDGE": int(KindEdge), "KIND_REGION": int(KindRegion), "STATUS_OK": int(StatusOK),
		"STATUS_NOT_OWNER": int(StatusNotOwner), "STATUS_CLOCK": int(StatusClock), "STATUS_OVERLOADED": int(StatusOverloaded),
		"STATUS_STORE_DOWN": int(StatusStoreDown), "STATUS_UNSUPPORTED": int(StatusUnsupported), "STATUS_FORBIDDEN": int(StatusForbidden),
	} {
		var got protoreflect.EnumValueDescriptor
		for i := range spec(t).Enums().Len() {
			if v := spec(t).Enums().Get(i).Values().ByName(name); v != nil {
				got = v
			}
		}
		if got == nil || int(got.Number()) != want {
			t.Errorf("enum value %s = %v, want %d", name, got, want)
		}
	}
}
