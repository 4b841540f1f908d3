package deltasync

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// No head of a frame takes more than is kept for it while a frame is begun without
// one, or frames would be too large to be sent.
func TestHeadsFit(t *testing.T) {
	name := strings.Repeat("n", MaxToken)
	u := Up{
		Kind: KindEdge, Region: name, Pop: name, Name: name, Node: math.MaxUint64, Incarnation: maxIncarnation,
		Lane: MaxLanes - 1, Lanes: MaxLanes, Seq: math.MaxUint64, SentAt: math.MaxInt64,
		Features: math.MaxUint64, Left: math.MaxInt64, HeardEpoch: math.MaxUint64, SecretCheck: math.MaxUint64, Hears: math.MaxUint64, Silent: math.MaxUint64,
	}
	v := reflect.ValueOf(u)
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && f.Name != "Sections" && v.Field(i).IsZero() {
			t.Errorf("%s is left out: give it its largest value here", f.Name)
		}
	}
	if n := len(encode(t, &u)); n > headSize || n < headSize*3/4 {
		t.Errorf("the largest head takes %d bytes, want %d at most, and about as many", n, headSize)
	}
}
