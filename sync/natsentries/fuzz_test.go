package natsentries

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"
)

func FuzzUnpack(f *testing.F) {
	for _, e := range []Entry{tier("a", "gold"), tier("\x00.", ""), {Kind: "capacity", Name: "a", Until: time.UnixMicro(7), Body: []byte(`{"value":1}`)}} {
		e.At = time.UnixMicro(1 << 50)
		value, err := e.pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.key(), value)
	}
	f.Add("tenant.a=2eb.YQ", []byte(`{"at_us":-9223372036854775808,"until_us":9223372036854775807,"body":{}}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		e, err := unpack(key, value)
		if err != nil {
			if !errors.Is(err, ErrBad) {
				t.Errorf("error of no known kind: %v", err)
			}
			return
		}
		again, err := e.pack()
		if err != nil {
			t.Fatalf("%+v cannot be packed again: %v", e, err)
		}
		if same, err := unpack(e.key(), again); err != nil || !reflect.DeepEqual(same, e) || e.key() != key {
			t.Errorf("%+v is unpacked as %+v again, %v", e, same, err)
		}
		if k := keep(&e); k.deleted() != e.Deleted || k.newer(k) {
			t.Errorf("%+v is kept as %+v", e, k)
		}
		line := e.key() + " " + string(again)
		if bytes.ContainsRune(again, '\n') {
			t.Errorf("%q has no line of its own", again)
		}
		if same, err := readLine(checksum(line) + " " + line); err != nil || !reflect.DeepEqual(same, e) {
			t.Errorf("line %q is read as %+v, %v", line, same, err)
		}
	})
}
