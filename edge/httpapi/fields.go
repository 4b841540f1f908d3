package httpapi

import (
	"net/http"
	"strconv"
)

// fieldName is a response field: as net/http keys it, and as people write it.
type fieldName struct{ key, shown string }

// fields are the response fields of one answer, written one behind the other
// into one buffer, so that setting them costs two allocations however many
// they are.
type fields struct {
	text []byte
	list []fieldSpan
}

type fieldSpan struct {
	name       *fieldName
	start, end int
}

func (f *fields) reset() { f.text, f.list = f.text[:0], f.list[:0] }

// begin starts a field, whose value is what is appended to text until end. It
// is false where another profile has said it already.
func (f *fields) begin(name *fieldName) bool {
	for i := range f.list {
		if f.list[i].name.key == name.key {
			return false
		}
	}
	f.list = append(f.list, fieldSpan{name: name, start: len(f.text)})
	return true
}

func (f *fields) end() { f.list[len(f.list)-1].end = len(f.text) }

func (f *fields) addUint(name *fieldName, v uint64) {
	if f.begin(name) {
		f.text = strconv.AppendUint(f.text, v, 10)
		f.end()
	}
}

// set puts the fields into a response's header.
func (f *fields) set(h http.Header) {
	if len(f.list) == 0 {
		return
	}
	text := string(f.text)
	values := make([]string, len(f.list))
	for i, s := range f.list {
		values[i] = text[s.start:s.end]
		h[s.name.key] = values[i : i+1 : i+1]
	}
}

// pairs are the fields as people write them.
func (f *fields) pairs() []Field {
	if len(f.list) == 0 {
		return nil
	}
	text, out := string(f.text), make([]Field, len(f.list))
	for i, s := range f.list {
		out[i] = Field{s.name.shown, text[s.start:s.end]}
	}
	return out
}

// append appends the fields as a JSON object.
func (f *fields) append(dst []byte) []byte {
	text := string(f.text)
	dst = append(dst, '{')
	for i, s := range f.list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, s.name.shown)
		dst = append(dst, ':')
		dst = appendString(dst, text[s.start:s.end])
	}
	return append(dst, '}')
}
