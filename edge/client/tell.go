package client

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"unicode/utf8"
)

const (
	// mostTold is how much of a request can be told, as JSON has it: an edge takes 64 KiB,
	// the namespace, the cost and the braces included.
	mostTold = 60 << 10
	// mostAttributes are as many as an edge takes.
	mostAttributes = 64
)

// Tellable is nil where an edge can be told of a request with these attributes; transports
// ask it before each call. What it refuses no edge could decide about: over JSON and over
// protocol buffers a text is UTF-8, and one with a replacement character in place of what a
// client wrote would be counted with others.
func Tellable(op string, attributes map[string]string) *Mistake {
	if n := len(attributes); n > mostAttributes {
		return &Mistake{Op: op, Detail: fmt.Sprintf("attributes: %d are too many (%d at the most: send those that the rules read)", n, mostAttributes)}
	}
	told := 0
	for _, name := range slices.Sorted(maps.Keys(attributes)) { // of several mistakes the same is told each time
		value := attributes[name]
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return &Mistake{Op: op, Detail: fmt.Sprintf("attributes.%.40q: is not UTF-8 (send it escaped)", name)}
		}
		if told += len(`"":"",`) + written(name) + written(value); told > mostTold {
			long := &Mistake{Op: op, Status: http.StatusRequestHeaderFieldsTooLarge,
				Detail: fmt.Sprintf("attributes: are longer than the %d KiB that an edge takes (%.40q is %d bytes long)", mostTold>>10, name, len(value))}
			if name == "path" {
				long.Status = http.StatusRequestURITooLong
			}
			return long
		}
	}
	return nil
}

// written is how long a text is in JSON, without its quotes.
func written(text string) int {
	n := len(text)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			n++
		case c < 0x20:
			n += len(`\u0000`) - 1
		case c == 0xe2 && i+2 < len(text) && text[i+1] == 0x80 && text[i+2]&^1 == 0xa8: // U+2028 and U+2029
			n += len(`\u2028`) - 3
		}
	}
	return n
}
