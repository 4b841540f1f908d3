package deltasync

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func testKeyer(t testing.TB, secret string) Keyer {
	t.Helper()
	k, err := NewKeyer([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const testSecret = "0123456789abcdef"

func TestKeyerSecret(t *testing.T) {
	for n := range 40 {
		_, err := NewKeyer(bytes.Repeat([]byte("x"), n))
		if short := n < MinSecret; errors.Is(err, ErrSecret) != short || (err != nil) != short {
			t.Errorf("NewKeyer of %d bytes: %v, want an error: %v", n, err, short)
		}
	}
	secret := []byte(testSecret)
	_, err := NewKeyer(secret[:5])
	if strings.Contains(err.Error(), testSecret[:5]) {
		t.Errorf("the error tells the secret: %v", err)
	}
}

// TestKeysDiffer: whatever goes into a key makes another key.
func TestKeysDiffer(t *testing.T) {
	type in struct {
		secret, identity, material string
		generation                 uint64
	}
	one := in{testSecret + "tail", "acme/api", "user=1", 1}
	all := map[Key]in{}
	for _, x := range []in{
		one,
		{"1123456789abcdeftail", one.identity, one.material, 1},
		{testSecret + "tai", one.identity, one.material, 1},
		{testSecret + "tajl", one.identity, one.material, 1}, // past the first 16 bytes
		{testSecret + "tail\x00", one.identity, one.material, 1},
		{one.secret, "acme/apj", one.material, 1},
		{one.secret, "", one.material, 1},
		{one.secret, "acme/apiuser", "=1", 1},
		{one.secret, one.identity, "user=2", 1},
		{one.secret, one.identity, "", 1},
		{one.secret, one.identity, "user=1\x00", 1},
		{one.secret, one.identity, one.material, 2},
		{one.secret, one.identity, one.material, 0},
		{one.secret, one.identity, one.material, 1 << 63},
	} {
		name := func() Key {
			return testKeyer(t, x.secret).Sub([]byte(x.identity)).Hash([]byte(x.material)).Key(x.generation)
		}
		k := name()
		if k != name() {
			t.Errorf("%+v: the key changes", x)
		}
		if k == 0 {
			t.Errorf("%+v: key 0 marks an empty place", x)
		}
		if y, taken := all[k]; taken {
			t.Errorf("%+v and %+v have the same key", x, y)
		}
		all[k] = x
	}
}

// TestKeyPinned: edges and aggregators of different builds name a counter alike.
func TestKeyPinned(t *testing.T) {
	if got, want := testKeyer(t, testSecret).Sub([]byte("acme/api")).Hash([]byte("user=1")).Key(7), Key(0x1feef9d0a4be98cb); got != want {
		t.Errorf("key = %#x, want %#x: old and new builds would count apart", got, want)
	}
	if got, want := NodeID("eu", "ams", "edge-1"), uint64(0xb175b1d49b5ec914); got != want {
		t.Errorf("NodeID = %#x, want %#x", got, want)
	}
	if got, want := WireNodeID("eu", "ams", "edge-1"), uint64(0xd07c80d49b5ec914); got != want {
		t.Errorf("WireNodeID = %#x, want %#x", got, want)
	}
	if got, want := NodeID("eu", "", ""), uint64(0x7fa9aa5a71c9d622); got != want {
		t.Errorf("NodeID of a region = %#x, want %#x", got, want)
	}
}

// Each edge has a name of its own, and of each it is known which PoP it is of.
func TestNodesOfAPoP(t *testing.T) {
	pops, nodes := map[uint64]string{}, map[uint64]string{}
	for _, region := range []string{"eu", "us"} {
		if node := NodeID(region, "", ""); node == PopOf(node) {
			t.Errorf("region %s is named like a PoP: %016x", region, node)
		}
		for pop := range 50 {
			pop := fmt.Sprint("p", pop)
			place := PopOf(NodeID(region, pop, "e0"))
			if other, taken := pops[place]; taken {
				t.Errorf("%s of %s and %s are one PoP", pop, region, other)
			}
			pops[place] = pop + " of " + region
			for edge := range 100 {
				edge := fmt.Sprint("e", edge)
				node := NodeID(region, pop, edge)
				if PopOf(node) != place {
					t.Errorf("%s of %s is of another PoP than e0", edge, pop)
				}
				if other, taken := nodes[node]; taken || node == place {
					t.Errorf("%s of %s is named like %s, or like its PoP", edge, pop, other)
				}
				nodes[node] = edge + " of " + pop
			}
		}
	}
}

// The names of one hash lie side by side in a ledger, and are different ones.
func TestRatesOfAKeyLieTogether(t *testing.T) {
	hash := testKeyer(t, testSecret).Sub([]byte("acme/api")).Hash([]byte("user=1"))
	seen := map[Key]bool{}
	for generation := range uint64(10_000) {
		k := hash.Key(generation)
		if (k^hash.Key(0))&^differing != 0 {
			t.Fatalf("Key(%d) = %016x and Key(0) = %016x differ in the bits that place them", generation, uint64(k), uint64(hash.Key(0)))
		}
		if seen[k] {
			t.Fatalf("Key(%d) = %016x is the name of another rate", generation, uint64(k))
		}
		seen[k] = true
	}
}

func TestKeyAllocatesNothing(t *testing.T) {
	rule := testKeyer(t, testSecret).Sub([]byte("acme/api"))
	material := []byte("user=1234567890")
	var sink Key
	if n := testing.AllocsPerRun(100, func() { sink ^= rule.Hash(material).Key(7) }); n != 0 {
		t.Errorf("a key allocates %v times, want 0", n)
	}
	_ = sink
}

// TestLanes: keys that clients choose spread evenly over any number of lanes.
func TestLanes(t *testing.T) {
	rule := testKeyer(t, testSecret).Sub([]byte("acme/api"))
	const keys = 100_000
	for _, lanes := range []int{1, 2, 3, 7, 8, 63, MaxLanes} {
		count := make([]int, lanes)
		for i := range uint64(keys) {
			lane := rule.Hash(binary.LittleEndian.AppendUint64(nil, i)).Key(7).Lane(lanes)
			if lane < 0 || lane >= lanes {
				t.Fatalf("lane %d of %d", lane, lanes)
			}
			count[lane]++
		}
		mean := float64(keys) / float64(lanes)
		for lane, n := range count {
			if math.Abs(float64(n)-mean) > 5*math.Sqrt(mean) {
				t.Errorf("lane %d of %d has %d keys, want about %.0f", lane, lanes, n, mean)
			}
		}
	}
}

func TestNodeID(t *testing.T) {
	all := map[uint64][3]string{}
	for _, n := range [][3]string{
		{"eu", "ams", "e1"}, {"eu", "ams", "e2"}, {"eu", "fra", "e1"}, {"us", "ams", "e1"}, {"eu", "", ""}, {"us", "", ""},
		{"eua", "ms", "e1"}, {"eu", "amse", "1"}, {"", "eu", ""}, {"", "", "eu"}, {"", "", ""},
	} {
		id := NodeID(n[0], n[1], n[2])
		if o, taken := all[id]; taken {
			t.Errorf("%v and %v have the same id", n, o)
		}
		all[id] = n
	}
}

func BenchmarkKey(b *testing.B) {
	rule := testKeyer(b, testSecret).Sub([]byte("acme/api"))
	material := []byte("user=1234567890")
	var sink Key
	b.ReportAllocs()
	for b.Loop() {
		sink ^= rule.Hash(material).Key(7)
	}
	_ = sink
}
