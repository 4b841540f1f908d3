package natsrules

import (
	"errors"
	"testing"
	"time"
)

func FuzzUnpack(f *testing.F) {
	for _, v := range []Version{{Namespace: "a", Number: 1, At: time.UnixMicro(1), Text: "x"}, {Namespace: "b.c", Number: 1 << 63, At: time.UnixMicro(1 << 50), Author: "ada", Message: "\n", Deleted: true},
		{Namespace: "a", Number: 1, At: time.UnixMicro(1), Text: "x", Regions: "eu", Until: Condition{After: time.Minute, Denied: Most{true, 2.5}, Requests: 7}}} {
		b, err := v.pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := unpack(b)
		if err != nil {
			if !errors.Is(err, ErrBad) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("error of no known kind: %v", err)
			}
			return
		}
		again, err := v.pack()
		if errors.Is(err, ErrTooLarge) {
			return
		}
		same, err2 := unpack(again)
		if err != nil || err2 != nil || same != v {
			t.Errorf("%+v is unpacked as %+v again, %v, %v", v, same, err, err2)
		}
	})
}
