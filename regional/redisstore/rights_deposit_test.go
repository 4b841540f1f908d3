package redisstore

import (
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

const due = "\x00\x00\x00\x00\x00\x07"

func randomDeposit(r *rand.Rand) escrow.Deposit {
	d := escrow.Deposit{Key: deltasync.Key(r.Uint64()), Version: r.Uint64() >> r.IntN(64)}
	silent := r.IntN(2) == 0
	for range 1 + r.IntN(5) {
		d.Holdings = append(d.Holdings, escrow.Holding{
			Holder: r.Uint64() >> r.IntN(64), Node: r.Uint64() >> r.IntN(64), Granted: r.Uint64() >> r.IntN(64), Returned: r.Uint64() >> r.IntN(64), Limit: r.Uint64() >> r.IntN(64),
			Lasts: time.Duration(r.Uint64() >> (1 + r.IntN(63))), Region: strings.Repeat("r", r.IntN(deltasync.MaxToken+1)),
		})
		if silent && r.IntN(2) == 0 {
			d.Holdings[len(d.Holdings)-1].Silent = (time.Duration(r.Uint64()) >> (1 + r.IntN(63))).Abs().Truncate(time.Millisecond)
		}
	}
	return d
}

// The bytes of a deposit are in the comment on them, and older builds wrote these.
func TestDepositBytes(t *testing.T) {
	const node = "\x11\x12\x13\x14\x15\x16\x17\x18"
	const head, first, second = "\x00\x00\x00\x00\x00\x00\x01\x02", "\x01\x02\x03\x04\x05\x06\x07\x08", "\x00\x00\x00\x00\x00\x00\x00\x09"
	for _, tt := range []struct {
		name   string
		node   uint64 // of the first
		silent time.Duration
		stored string
		older  bool // it is not written any more
	}{
		{"heard", 0x1112131415161718, 0, "\x03" + head + first + node + "\xac\x02\x07\x64\x80\x94\xeb\xdc\x03\x02eu" +
			second + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00", false},
		{"one silent", 0x1112131415161718, 300 * time.Millisecond, "\x04" + head + first + node + "\xac\x02\x07\x64\x80\x94\xeb\xdc\x03\x00\x02eu" +
			second + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\xac\x02\x00", false},
		{"heard, without nodes", 0, 0, "\x01" + head + first + "\xac\x02\x07\x64\x80\x94\xeb\xdc\x03\x02eu" + second + "\x00\x00\x00\x00\x00", true},
		{"one silent, without nodes", 0, 300 * time.Millisecond, "\x02" + head + first + "\xac\x02\x07\x64\x80\x94\xeb\xdc\x03\x00\x02eu" +
			second + "\x00\x00\x00\x00\xac\x02\x00", true},
	} {
		d := escrow.Deposit{Key: 5, Version: 258, Holdings: []escrow.Holding{
			{Holder: 0x0102030405060708, Node: tt.node, Granted: 300, Returned: 7, Limit: 100, Lasts: time.Second, Region: "eu"},
			{Holder: 9, Silent: tt.silent},
		}}
		if got, err := parseDeposit(5, due+tt.stored); err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%s: parsed %+v, %v, want %+v", tt.name, got, err, d)
		}
		d.Holdings[1].Silent += time.Microsecond // less than a millisecond is not written
		if got := string(appendDeposit(nil, &d)); !tt.older && got != tt.stored {
			t.Errorf("%s: packed %x, want %x", tt.name, got, tt.stored)
		}
	}
}

func TestDepositsSurvivePacking(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		d := randomDeposit(r)
		got, err := parseDeposit(d.Key, due+string(appendDeposit(nil, &d)))
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("parsed %+v, %v, want %+v", got, err, d)
		}
	}
}

func TestBadDeposits(t *testing.T) {
	d := escrow.Deposit{Key: 1, Version: 1, Holdings: []escrow.Holding{{Holder: 1, Granted: 1, Lasts: math.MaxInt64, Region: "eu"}}}
	good := due + string(appendDeposit(nil, &d))
	head, holder := good[:dueBytes+versionBytes], good[dueBytes+versionBytes:dueBytes+versionBytes+16]
	for name, bad := range map[string]string{
		"nothing": "", "no holdings": head, "format": due + "\x05" + good[dueBytes+1:], "no format": due + "\x00" + good[dueBytes+1:], "none is silent": head[:dueBytes] + "\x04" + head[dueBytes+1:] + holder + "\x01\x00\x00\x00\x00\x00",
		"huge silent":     head[:dueBytes] + "\x04" + head[dueBytes+1:] + holder + "\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00",
		"cut in a holder": head + holder[:7], "cut in a node": head + holder[:15], "cut in a number": head + holder + "\x80", "no numbers": head + holder,
		"long number":     head + holder + "\x80\x00\x00\x00\x00\x00",
		"huge number":     head + holder + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00",
		"negative lasts":  head + holder + "\x00\x00\x00\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00",
		"long region":     head + holder + "\x00\x00\x00\x00\x21" + strings.Repeat("a", 33),
		"cut in a region": good[:len(good)-1], "more": good + "\x00",
	} {
		if got, err := parseDeposit(1, bad); !errors.Is(err, errDeposit) || !reflect.DeepEqual(got, escrow.Deposit{}) {
			t.Errorf("%s: parsed %+v, %v, want an error", name, got, err)
		}
	}
}

func FuzzDeposit(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		d := randomDeposit(r)
		f.Add(due + string(appendDeposit(nil, &d)))
	}
	f.Fuzz(func(t *testing.T, stored string) {
		d, err := parseDeposit(1, stored)
		if err != nil {
			if !errors.Is(err, errDeposit) {
				t.Errorf("error of no known kind: %v", err)
			}
			return
		}
		again := string(appendDeposit(nil, &d))
		if stored[dueBytes] < formatHeard { // it is written otherwise by now
			if same, err := parseDeposit(1, due+again); err != nil || !reflect.DeepEqual(same, d) {
				t.Errorf("parsed %x as %+v, and that again as %+v, %v", stored[dueBytes:], d, same, err)
			}
			return
		}
		if again != stored[dueBytes:] {
			t.Errorf("parsed %x as %+v, which is %x", stored[dueBytes:], d, again)
		}
	})
}
