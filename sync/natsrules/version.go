package natsrules

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillgate/spillgate/sync"
)

// Version is a namespace's document as somebody made it.
type Version struct {
	Namespace string
	Number    uint64    // 1 the first, and each one more than the one before
	At        time.Time // when it was made, to the microsecond; later than the one before
	Author    string
	Message   string
	Text      string // the document; empty where Deleted
	Deleted   bool   // the namespace was taken away

	// While a document is rolled out: the regions where Text is in force, in order and separated by
	// commas, and the document of all others; empty: there the namespace is not there yet.
	Regions   string
	Elsewhere string
	// Until is by what that ends by itself.
	Until Condition
}

// In is the document that is in force in a region; ok is false where the namespace is not there.
func (v *Version) In(region string) (text string, ok bool) {
	switch {
	case v.Deleted:
		return "", false
	case v.Regions == "" || slices.Contains(strings.Split(v.Regions, ","), region):
		return v.Text, true
	}
	return v.Elsewhere, v.Elsewhere != ""
}

// Stamp tells a version from all others of its namespace, and is higher than those of the ones before: when it
// was made, in microseconds since 1970.
func (v *Version) Stamp() uint64 { return uint64(v.At.UnixMicro()) }

// What a version may have at the most, in bytes.
const (
	MaxText    = 8 << 20
	MaxAuthor  = 200
	MaxMessage = 2000
	maxRegions = 4 << 10
	// maxValue is what a version is packed to: a message has room for that, with its head.
	maxValue = 1<<20 - 16<<10
)

var (
	// ErrBad: a version that cannot be written, or none of ours.
	ErrBad = errors.New("bad version")
	// ErrTooLarge: the document is larger than a message may be.
	ErrTooLarge = errors.New("the document is too large")
)

// namespaceForm is what limit.Compile takes for a name.
var namespaceForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// stored is a Version as it stands in a bucket, and in a Follower's file: JSON, packed by gzip.
type stored struct {
	Namespace string `json:"namespace"`
	Number    uint64 `json:"version"`
	At        int64  `json:"at_us"` // since 1970
	Author    string `json:"author,omitempty"`
	Message   string `json:"message,omitempty"`
	Text      string `json:"text,omitempty"`
	Deleted   bool   `json:"deleted,omitempty"`
	Regions   string `json:"regions,omitempty"`
	Elsewhere string `json:"elsewhere,omitempty"`
}

// check returns what is wrong with a version; its error wraps ErrBad, or ErrTooLarge.
func (v *Version) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrBad}, args...)...)
	}
	switch {
	case !namespaceForm.MatchString(v.Namespace):
		return bad(`namespace: %.80q is no name; want letters, digits, "_", "." and "-", at most 63`, v.Namespace)
	case v.Number == 0:
		return bad("version: missing")
	case v.At.UnixMicro() <= 0:
		return bad("at: missing")
	case v.Deleted && v.Text != "":
		return bad("text: %d bytes of a namespace that was taken away", len(v.Text))
	case !v.Deleted && v.Text == "":
		return bad("text: missing")
	case len(v.Text) > MaxText:
		return fmt.Errorf("%w: text: %d bytes, want at most %d; split the namespace", ErrTooLarge, len(v.Text), MaxText)
	case v.Regions == "" && v.Elsewhere != "":
		return bad("elsewhere: %d bytes of a version that is in force everywhere", len(v.Elsewhere))
	case v.Regions == "" && v.Until.Stated():
		return bad("until: a version that is in force everywhere has no end")
	case v.Deleted && v.Regions != "":
		return bad("regions: %.80q of a namespace that was taken away", v.Regions)
	}
	if err := v.Until.check(); err != nil {
		return bad("until: %w", err)
	}
	last := ""
	for region := range strings.SplitSeq(v.Regions, ",") {
		switch err := deltasync.ValidToken(region); {
		case v.Regions == "":
		case err != nil:
			return bad("regions: %.80q: %w", v.Regions, err)
		case region <= last:
			return bad("regions: %.80q: want each once, in order", v.Regions)
		}
		last = region
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{{"author", v.Author, MaxAuthor}, {"message", v.Message, MaxMessage}, {"text", v.Text, MaxText}, {"regions", v.Regions, maxRegions}, {"elsewhere", v.Elsewhere, MaxText}} {
		switch {
		case len(f.value) > f.most:
			return bad("%s: %d bytes, want at most %d", f.name, len(f.value), f.most)
		case !utf8.ValidString(f.value):
			return bad("%s: not UTF-8", f.name)
		}
	}
	return nil
}

// pack is the version as it is stored.
func (v *Version) pack() ([]byte, error) {
	if err := v.check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(stored{v.Namespace, v.Number, v.At.UnixMicro(), v.Author, v.Message, v.Text, v.Deleted, v.Regions, v.Elsewhere})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBad, err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if z.Extra, err = v.Until.extra(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBad, err)
	}
	if _, err := z.Write(text); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	if b.Len() > maxValue {
		return nil, fmt.Errorf("%w: it is packed to %d bytes, want at most %d; split the namespace", ErrTooLarge, b.Len(), maxValue)
	}
	return b.Bytes(), nil
}

// unpack reads what pack wrote. Its error wraps ErrBad. What a value is unpacked to is bounded,
// whatever it says.
func unpack(value []byte) (Version, error) {
	bad := func(err error) (Version, error) { return Version{}, fmt.Errorf("%w: %w", ErrBad, err) }
	z, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return bad(err)
	}
	until := conditionOf(z.Extra)
	const most = 13*MaxText + 1<<16 // two documents, six bytes for each that JSON escapes
	text, err := io.ReadAll(io.LimitReader(z, most+1))
	switch {
	case err != nil:
		return bad(err)
	case len(text) > most:
		return bad(errors.New("it is unpacked to more than a version may have"))
	}
	var s stored
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return bad(err)
	}
	if in.More() {
		return bad(errors.New("more than a version"))
	}
	v := Version{s.Namespace, s.Number, time.UnixMicro(s.At).UTC(), s.Author, s.Message, s.Text, s.Deleted, s.Regions, s.Elsewhere, until}
	if v.Regions == "" {
		v.Until = Condition{}
	}
	if err := v.check(); err != nil {
		return Version{}, err
	}
	return v, nil
}

// newer says that v was made after w, which may be none; of two at one instant, neither of
// which knew of the other, the one with the higher number is, or the greater text.
func (v *Version) newer(w *Version) bool {
	switch c := v.At.Compare(w.At); {
	case c != 0:
		return c > 0
	case v.Number != w.Number:
		return v.Number > w.Number
	case v.Deleted != w.Deleted:
		return v.Deleted
	case v.Regions != w.Regions:
		return v.Regions > w.Regions
	default:
		return v.Text > w.Text || v.Text == w.Text && v.Elsewhere > w.Elsewhere
	}
}

// key is a namespace's in the bucket: a dot would part it into tokens, of which none may be empty.
func key(namespace string) string { return keyPrefix + strings.ReplaceAll(namespace, ".", "=2e") }

const keyPrefix = "ns."
