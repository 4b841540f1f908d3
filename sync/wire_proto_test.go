package deltasync

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/spillgate/spillgate/crdt"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

var compileSpec = sync.OnceValues(func() (protoreflect.FileDescriptor, error) {
	c := protocompile.Compiler{Resolver: &protocompile.SourceResolver{}}
	files, err := c.Compile(context.Background(), "frame.proto")
	if err != nil {
		return nil, err
	}
	return files[0], nil
})

// spec is frame.proto, compiled.
func spec(t testing.TB) protoreflect.FileDescriptor {
	t.Helper()
	if _, err := os.Stat("frame.proto"); err != nil {
		t.Fatalf("frame.proto stands beside the tests: %v", err)
	}
	f, err := compileSpec()
	if err != nil {
		t.Fatalf("compile frame.proto: %v", err)
	}
	return f
}

func newMessage(t testing.TB, name protoreflect.Name) *dynamicpb.Message {
	t.Helper()
	md := spec(t).Messages().ByName(name)
	if md == nil {
		t.Fatalf("frame.proto has no message %s", name)
	}
	return dynamicpb.NewMessage(md)
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatalf("marshal by frame.proto: %v", err)
	}
	return b
}

// pb builds a message by the names of frame.proto and by the words of its
// comments, sharing nothing with the codec: the dumb twin that it is held
// against.
type pb struct{ protoreflect.Message }

func (m pb) field(name protoreflect.Name) protoreflect.FieldDescriptor {
	fd := m.Descriptor().Fields().ByName(name)
	if fd == nil {
		panic("frame.proto: no field " + string(name) + " in " + string(m.Descriptor().Name()))
	}
	return fd
}

func (m pb) set(name protoreflect.Name, v any) {
	fd := m.field(name)
	if fd.Kind() == protoreflect.EnumKind {
		v = protoreflect.EnumNumber(v.(int))
	}
	m.Set(fd, protoreflect.ValueOf(v))
}

func (m pb) child(name protoreflect.Name) pb {
	return pb{m.Mutable(m.field(name)).Message()}
}

func (m pb) element(name protoreflect.Name) pb {
	return pb{m.Mutable(m.field(name)).List().AppendMutable().Message()}
}

func setColumn[T uint32 | uint64 | int64 | float32](m pb, name protoreflect.Name, values []T, optional bool) {
	zero := true
	for _, v := range values {
		zero = zero && v == 0
	}
	if zero && optional {
		return
	}
	list := m.Mutable(m.field(name)).List()
	for _, v := range values {
		list.Append(protoreflect.ValueOf(v))
	}
}

func (m pb) shape(s Shape) {
	c := m.child("shape")
	c.set("generation", s.Generation)
	c.set("width", uint64(s.Width))
	c.set("slices", uint32(s.Slices))
	c.set("limit", s.Limit)
	c.set("regional", s.Regional)
	c.set("refill", s.Refill)
	c.set("refill_per", uint64(s.RefillPer))
	c.set("floor", s.Floor)
	c.set("eager", s.Eager)
}

// untils writes the column of ends of penalties.
func (m pb) untils(untils []int64) {
	var column []uint64
	for _, until := range untils {
		column = append(column, uint64(until))
	}
	setColumn(m, "until", column, true)
}

// carries writes the two columns of carries.
func (m pb) carries(base crdt.Slice, carries []crdt.Carry) {
	var slices []int64
	var levels []uint64
	for _, c := range carries {
		distance := int64(0)
		if c.Level > 0 {
			distance = int64(c.Boundary - base)
		}
		slices, levels = append(slices, distance), append(levels, c.Level)
	}
	setColumn(m, "carry_slices", slices, true)
	setColumn(m, "carry_levels", levels, true)
}

func (m pb) cells(name protoreflect.Name, base crdt.Slice, lists [][]crdt.Cell, optional bool) {
	var counts []uint32
	var slices []int64
	var charges, refunds []uint64
	ones := true
	before := base
	for _, cells := range lists {
		counts = append(counts, uint32(len(cells)))
		ones = ones && len(cells) == 1
		for i, c := range cells {
			if i == 0 {
				slices = append(slices, int64(c.Slice-before))
				before = c.Slice
			} else {
				slices = append(slices, int64(c.Slice-cells[i-1].Slice))
			}
			charges = append(charges, c.Charges)
			refunds = append(refunds, c.Refunds)
		}
	}
	if len(charges) == 0 && optional {
		return
	}
	c := m.child(name)
	if !ones {
		setColumn(c, "counts", counts, false)
	}
	setColumn(c, "slices", slices, true)
	setColumn(c, "charges", charges, false)
	setColumn(c, "refunds", refunds, true)
}

func baseOf(carries []crdt.Carry, lists ...[][]crdt.Cell) crdt.Slice {
	for _, l := range lists {
		for _, cells := range l {
			if len(cells) > 0 {
				return cells[0].Slice
			}
		}
	}
	for _, c := range carries {
		if c.Level > 0 {
			return c.Boundary
		}
	}
	return 0
}

func (m pb) totals(totals []Totals, optional bool) {
	var others, peers, own [][]crdt.Cell
	var carries []crdt.Carry
	var untils []int64
	empty := true
	for _, t := range totals {
		untils = append(untils, t.Until)
		others, peers, carries = append(others, t.Others), append(peers, t.Peers), append(carries, t.Carry)
		own = append(own, t.Own)
		empty = empty && len(t.Others)+len(t.Peers)+len(t.Own) == 0 && t.Carry.Level == 0 && t.Until == 0 && t.Share == nil
	}
	if len(totals) == 0 || optional && empty {
		return
	}
	base := baseOf(carries, others, peers, own)
	c := m.child("totals")
	c.set("base", int64(base))
	c.cells("others", base, others, true)
	c.cells("peers", base, peers, optional)
	c.cells("own", base, own, true)
	c.untils(untils)
	c.carries(base, carries)
	c.shares(totals)
}

func specUp(t testing.TB, u *Up) *dynamicpb.Message {
	msg := newMessage(t, "Up")
	m := pb{msg}
	m.set("version", uint32(Version))
	m.set("kind", int(u.Kind))
	m.set("region", u.Region)
	m.set("pop", u.Pop)
	m.set("name", u.Name)
	m.set("node", u.Node)
	m.set("incarnation", u.Incarnation)
	m.set("lane", uint32(u.Lane))
	m.set("lanes", uint32(u.Lanes))
	m.set("seq", u.Seq)
	m.set("sent_at", u.SentAt)
	m.set("features", uint64(u.Features))
	m.set("heard_epoch", u.HeardEpoch)
	m.set("secret_check", u.SecretCheck)
	m.set("hears", u.Hears)
	m.set("silent", u.Silent)
	for _, s := range u.Sections {
		e := m.element("sections")
		e.shape(s.Shape)
		e.set("life", s.Life)
		var keys []uint64
		var flags []uint32
		var lists [][]crdt.Cell
		var carries []crdt.Carry
		var untils []int64
		var heards []crdt.Slice
		for _, d := range s.Deltas {
			keys, flags, lists = append(keys, uint64(d.Key)), append(flags, uint32(d.Flags)), append(lists, d.Cells)
			carries, untils, heards = append(carries, d.Carry), append(untils, d.Until), append(heards, d.Heard)
		}
		base := baseOf(carries, lists)
		for _, heard := range heards {
			if base == 0 {
				base = heard
			}
		}
		column := make([]uint64, len(heards))
		for i, heard := range heards {
			if heard != 0 {
				column[i] = protowire.EncodeZigZag(int64(heard-base)) + 1
			}
		}
		setColumn(e, "heard", column, true)
		e.set("base", int64(base))
		setColumn(e, "keys", keys, true)
		setColumn(e, "flags", flags, true)
		e.cells("cells", base, lists, true)
		e.untils(untils)
		e.carries(base, carries)
		e.demands(s.Deltas)
	}
	return msg
}

// demands writes the columns of what is asked for.
func (m pb) demands(deltas []Delta) {
	var columns [7][]float32
	for _, delta := range deltas {
		d := delta.Demand
		if d == nil {
			d = &Demand{}
		}
		for i, v := range []float32{d.Fast, d.Mid, d.Slow, d.Window, d.Kept, d.Since, d.KeptSpent} {
			columns[i] = append(columns[i], v)
		}
	}
	for i, name := range []protoreflect.Name{"demand_fast", "demand_mid", "demand_slow", "demand_window", "demand_kept", "demand_since", "demand_kept_spent"} {
		setColumn(m, name, columns[i], true)
	}
}

// shares writes the columns of shares.
func (m pb) shares(totals []Totals) {
	var floats [4][]float32
	var unseen, kept, doubt, spent []uint64
	for _, t := range totals {
		s := t.Share
		if s == nil {
			s = &Share{}
		}
		for i, v := range []float32{s.Omega, s.Sum, s.Demand, s.Window} {
			floats[i] = append(floats[i], v)
		}
		unseen, kept, doubt, spent = append(unseen, s.Unseen), append(kept, s.Kept), append(doubt, s.Doubt), append(spent, s.Spent)
	}
	for i, name := range []protoreflect.Name{"omega", "demand_sum", "demand", "demand_window"} {
		setColumn(m, name, floats[i], true)
	}
	setColumn(m, "unseen", unseen, true)
	setColumn(m, "kept", kept, true)
	setColumn(m, "doubt", doubt, true)
	setColumn(m, "spent", spent, true)
}

func specDown(t testing.TB, d *Down) *dynamicpb.Message {
	msg := newMessage(t, "Down")
	m := pb{msg}
	m.set("version", uint32(Version))
	m.set("status", int(d.Status))
	m.set("region", d.Region)
	m.set("node", d.Node)
	m.set("seq", d.Seq)
	m.set("echo_sent_at", d.EchoSentAt)
	m.set("received_at", d.ReceivedAt)
	m.set("sent_at", d.SentAt)
	m.set("store_epoch", d.StoreEpoch)
	m.set("pace", uint64(d.Pace))
	m.set("live_edges", uint32(d.LiveEdges))
	m.set("live_regions", uint32(d.LiveRegions))
	m.totals(d.Totals, false)
	setColumn(m, "refused", d.Refused, true)
	m.set("store", d.Store)
	m.set("mistake", uint32(d.Mistake))
	m.set("lanes", uint32(d.Lanes))
	m.set("between", uint64(d.Between))
	m.set("regions", uint32(d.Regions))
	m.set("hears", d.Hears)
	m.set("named", d.Named)
	return msg
}

func specHot(t testing.TB, h *Hot) *dynamicpb.Message {
	msg := newMessage(t, "Hot")
	m := pb{msg}
	m.set("version", uint32(Version))
	m.set("region", h.Region)
	m.set("lane", uint32(h.Lane))
	m.set("sent_at", h.SentAt)
	m.set("live_regions", uint32(h.LiveRegions))
	for _, s := range h.Sections {
		e := m.element("sections")
		e.shape(s.Shape)
		var keys []uint64
		var totals []Totals
		for _, k := range s.Keys {
			keys, totals = append(keys, uint64(k.Key)), append(totals, k.Totals)
		}
		setColumn(e, "keys", keys, true)
		e.totals(totals, true)
	}
	m.set("next", h.Next)
	return msg
}

func specSnap(t testing.TB, s *Snap) *dynamicpb.Message {
	msg := newMessage(t, "Snap")
	m := pb{msg}
	m.set("version", uint32(Version))
	m.set("region", s.Region)
	m.set("lane", uint32(s.Lane))
	m.set("lanes", uint32(s.Lanes))
	m.set("from", s.From)
	return msg
}

func specClaims(t testing.TB, c *Claims) *dynamicpb.Message {
	msg := newMessage(t, "Claims")
	m := pb{msg}
	m.set("version", uint32(Version))
	m.set("region", c.Region)
	m.set("lane", uint32(c.Lane))
	m.set("lanes", uint32(c.Lanes))
	m.set("from", c.From)
	m.set("pop", c.Pop)
	m.set("name", c.Name)
	m.set("sent_at", c.SentAt)
	for _, k := range c.Claims {
		e := m.element("claims")
		e.set("key", uint64(k.Key))
		e.set("holder", k.Holder)
		e.set("limit", k.Limit)
		e.set("lasts", uint64(k.Lasts))
		e.set("granted", k.Granted)
		e.set("returned", k.Returned)
		e.set("want", k.Want)
		e.set("regional", k.Regional)
		e.set("bound", k.Bound)
		for _, end := range k.Ends {
			f := e.element("ends")
			f.set("cost", end.Cost)
			f.set("in", uint64(end.In))
		}
	}
	return msg
}

func specGrants(t testing.TB, g *Grants) *dynamicpb.Message {
	msg := newMessage(t, "Grants")
	m := pb{msg}
	m.set("version", uint32(Version))
	m.set("region", g.Region)
	m.set("lane", uint32(g.Lane))
	m.set("status", int(g.Status))
	m.set("echo", g.Echo)
	m.set("lease", uint64(g.Lease))
	m.set("log", g.Log)
	for _, k := range g.Grants {
		e := m.element("grants")
		e.set("key", uint64(k.Key))
		e.set("holder", k.Holder)
		e.set("granted", k.Granted)
		e.set("target", k.Target)
		e.set("echo", k.Echo)
		e.set("flags", uint32(k.Flags))
		e.set("home", k.Home)
	}
	return msg
}

func specLive(t testing.TB, l *Live) *dynamicpb.Message {
	msg := newMessage(t, "Live")
	m := pb{msg}
	m.set("version", uint32(Version))
	m.set("region", l.Region)
	m.set("name", l.Name)
	m.set("incarnation", l.Incarnation)
	m.set("lanes", uint32(l.Lanes))
	m.set("sent_at", l.SentAt)
	m.set("leaving", l.Leaving)
	m.set("live_edges", uint32(l.LiveEdges))
	m.set("even_edges", uint32(l.EvenEdges))
	m.set("live_regions", uint32(l.LiveRegions))
	return msg
}

// unknown is the fields of m that frame.proto does not name.
func unknown(m protoreflect.Message) (found []string) {
	if len(m.GetUnknown()) > 0 {
		found = append(found, string(m.Descriptor().Name()))
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				found = append(found, unknown(v.List().Get(i).Message())...)
			}
		default:
			found = append(found, unknown(v.Message())...)
		}
		return true
	})
	return found
}
