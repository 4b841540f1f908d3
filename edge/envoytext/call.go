package envoytext

import (
	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of calls that plainCall reads, as they stand on the wire: a number and a kind each.
const (
	callDomain     = 1<<3 | byte(protowire.BytesType)
	callDescriptor = 2<<3 | byte(protowire.BytesType)
	callHits       = 3<<3 | byte(protowire.VarintType)
	aDescriptors   = 1<<3 | byte(protowire.BytesType) // an entry of a descriptor
	entryKey       = 1<<3 | byte(protowire.BytesType)
	entryValue     = 2<<3 | byte(protowire.BytesType)
)

// plainCall is Unmarshal of calls that have what nearly all have: a domain, hits, and
// descriptors of nothing but entries, in a fifth of proto's time: what the call consists of is
// allocated at once, and its texts are parts of one. It says false of any other, of which into
// may have a part then, and of what is no message.
func plainCall(text []byte, into *rlsv3.RateLimitRequest) bool {
	descriptors, entries, ok := count(text)
	if !ok {
		return false
	}
	p := plain{
		text:        string(text),
		descriptors: make([]rlv3.RateLimitDescriptor, descriptors),
		entries:     make([]rlv3.RateLimitDescriptor_Entry, entries),
		pointers:    make([]*rlv3.RateLimitDescriptor_Entry, entries),
	}
	if descriptors > 0 {
		into.Descriptors = make([]*rlv3.RateLimitDescriptor, descriptors)
	}
	for at, n := 0, 0; at < len(text); {
		tag := text[at]
		at++
		if tag == callHits {
			v, size := protowire.ConsumeVarint(text[at:])
			into.HitsAddend = uint32(v)
			at += size
			continue
		}
		from, to := bytesAt(text, at)
		at = to
		if tag == callDomain {
			into.Domain = p.text[from:to]
			continue
		}
		d := &p.descriptors[n]
		if d.Entries, ok = p.entriesIn(text, from, to); !ok {
			return false
		}
		into.Descriptors[n] = d
		n++
	}
	return true
}

// plain is what a call consists of.
type plain struct {
	text        string
	descriptors []rlv3.RateLimitDescriptor
	entries     []rlv3.RateLimitDescriptor_Entry // those that are not taken yet, and their pointers
	pointers    []*rlv3.RateLimitDescriptor_Entry
}

// entriesIn reads the entries of a descriptor that stands between two places of the text.
func (p *plain) entriesIn(text []byte, at, end int) (entries []*rlv3.RateLimitDescriptor_Entry, ok bool) {
	n := 0
	for ; at < end; n++ {
		from, to := bytesAt(text, at+1)
		e := &p.entries[n]
		for at = from; at < to; {
			tag := text[at]
			if tag != entryKey && tag != entryValue {
				return nil, false
			}
			start, stop := bytesAt(text[:to], at+1)
			if stop < 0 {
				return nil, false
			}
			if tag == entryKey {
				e.Key = p.text[start:stop]
			} else {
				e.Value = p.text[start:stop]
			}
			at = stop
		}
		p.pointers[n] = e
	}
	if n == 0 {
		return nil, true
	}
	entries = p.pointers[:n:n]
	p.entries, p.pointers = p.entries[n:], p.pointers[n:]
	return entries, true
}

// count is how many descriptors a call has, and entries in all of them; false: it has what is
// not plain, but for what stands in an entry, or is no message.
func count(text []byte) (descriptors, entries int, ok bool) {
	for at := 0; at < len(text); {
		tag := text[at]
		at++
		if tag == callHits {
			_, size := protowire.ConsumeVarint(text[at:])
			if size < 0 {
				return 0, 0, false
			}
			at += size
			continue
		}
		if tag != callDomain && tag != callDescriptor {
			return 0, 0, false
		}
		from, to := bytesAt(text, at)
		if to < 0 {
			return 0, 0, false
		}
		at = to
		if tag == callDomain {
			continue
		}
		descriptors++
		for ; from < to; entries++ {
			if text[from] != aDescriptors {
				return 0, 0, false
			}
			if _, from = bytesAt(text[:to], from+1); from < 0 {
				return 0, 0, false
			}
		}
	}
	return descriptors, entries, true
}

// bytesAt is where bytes begin and end whose length stands at a place of a text; to is below 0
// where they do not.
func bytesAt(text []byte, at int) (from, to int) {
	if at < len(text) && text[at] < 0x80 { // nearly all are that short
		from, to = at+1, at+1+int(text[at])
	} else {
		length, size := protowire.ConsumeVarint(text[at:])
		if size < 0 || length > uint64(len(text)) {
			return 0, -1
		}
		from, to = at+size, at+size+int(length)
	}
	if to > len(text) {
		return 0, -1
	}
	return from, to
}
