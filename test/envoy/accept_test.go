package envoy

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/test/reference"
)

// TestEqualVerdicts: of random files, good ones and such with a slip or two, both take
// the same and refuse the same.
func TestEqualVerdicts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(seed, 1))
	taken, refused := 0, 0
	for range 120 {
		root := randomRoot(r)
		for range r.IntN(3) {
			slip(r, &root)
		}
		text, _ := root.yaml(r, "", false)
		text += "\n"
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "d.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(program(reference.ConfigCheck), "-config_dir", dir).CombinedOutput()
		_, ours := configs.FormatEnvoy.Load(dir)
		if (err == nil) != (ours == nil) {
			t.Fatalf("%s\nthe reference: %v: %.600s\nours: %v\nagain: SEED=%d go test -run TestEqualVerdicts ./test/envoy", text, err, said, ours, seed)
		}
		if ours == nil {
			taken++
		} else {
			refused++
		}
	}
	if taken < 20 || refused < 20 {
		t.Errorf("%d taken and %d refused, want 20 of each at least: they test little", taken, refused)
	}
}

// value is a piece of YAML: a mapping, a list, or else a scalar as it is written.
type value struct {
	fields []field
	items  []value
	list   bool
	scalar string
}

type field struct {
	name string
	value
}

// yaml writes it as somebody may: by indentation, or in brackets, on one line or on several,
// with tabs or without. What is in brackets has all in brackets. Its first line is begun; block
// says that it has to begin its own, after a colon.
func (v *value) yaml(r *rand.Rand, indent string, flow bool) (text string, block bool) {
	open, end, words := "[", "]", make([]string, 0, len(v.items)+len(v.fields))
	if v.fields != nil {
		open, end = "{", "}"
	} else if !v.list {
		return v.scalar, false
	}
	block = !flow && len(v.items)+len(v.fields) > 0 && chance(r, 2)
	for i := range v.items {
		text, _ := v.items[i].yaml(r, indent+"  ", !block)
		words = append(words, text)
	}
	for i := range v.fields {
		text, begins := v.fields[i].yaml(r, indent+"  ", !block)
		space := " "
		if begins {
			space = pick(r, []string{"\n", " # so\n"}) + indent + "  "
		}
		words = append(words, v.fields[i].name+":"+space+text)
	}
	if block && v.list {
		return "- " + strings.Join(words, "\n"+indent+"- "), true
	}
	if block {
		return strings.Join(words, "\n"+indent), true
	}
	ends := ", "
	if chance(r, 2) {
		ends = pick(r, []string{",", ", # so", ",\n\t"}) + "\n" + indent + pick(r, []string{"  ", "\t", "\t\t", " \t "})
	}
	return open + strings.Join(words, ends) + end, false
}

func scalar(text string) value { return value{scalar: text} }

func randomRoot(r *rand.Rand) value {
	return value{fields: []field{{"domain", scalar("d")}, {"descriptors", randomDescriptors(r, 2)}}}
}

func randomDescriptors(r *rand.Rand, depth int) value {
	list := value{list: true}
	for i := range 1 + r.IntN(3) {
		d := value{fields: []field{{"key", scalar(fmt.Sprintf("k%d", i))}}}
		add := func(name string, v value) { d.fields = append(d.fields, field{name, v}) }
		if chance(r, 2) {
			add("value", scalar(pick(r, []string{"a", "b*", "'*'", "7"})))
			if strings.Contains(d.fields[1].scalar, "*") && chance(r, 2) {
				add("share_threshold", scalar(pick(r, []string{"true", "yes"})))
			}
		}
		if chance(r, 3) {
			add(pick(r, []string{"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric"}), scalar(pick(r, []string{"true", "false", "on"})))
		}
		if !chance(r, 3) {
			l := value{fields: []field{{"unit", scalar(pick(r, units))}, {"requests_per_unit", scalar(pick(r, []string{"0", "10", "0x1F", "1_000"}))}}}
			if chance(r, 3) {
				l.fields = append(l.fields, field{"name", scalar("n")}, field{"replaces", value{list: true, items: []value{{fields: []field{{"name", scalar("m")}}}}}})
			}
			add("rate_limit", l)
		}
		if depth > 1 && chance(r, 2) {
			add("descriptors", randomDescriptors(r, depth-1))
		}
		list.items = append(list.items, d)
	}
	return list
}

// slipped are what may come to stand in the place of something else. No list of plain
// words is among them that would be read as text: neither takes one.
var slipped = []string{
	"", "~", "''", "a", "k1", "'7'", "7", "-7", "08", "0o17", "1.5", "'1.5'", "1e3", ".5", ".inf", "true", "'true'", "off", "n", "second", "weeks", "UNKNOWN",
	"4294967296", "9223372036854775808", "99999999999999999999", "2026-11-25", "10.0.0.1", "[]", "[a]", "[{}]", "[{name: n}]", "[{key: a}]", "{key: 1}", "{name: [1]}", "{what: 1}",
}

// words are those of the reference, and some that are not. Not so metadata: this build
// does not know it yet.
var words = []string{"domain", "descriptors", "key", "value", "rate_limit", "unit", "requests_per_unit", "unlimited", "name", "replaces",
	"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "Key", "rate-limit", "limit", "1", "true"}

// slip changes something somewhere.
func slip(r *rand.Rand, v *value) {
	switch {
	case v.fields != nil && !chance(r, 3):
		i := r.IntN(len(v.fields))
		f := &v.fields[i]
		if (f.fields != nil || len(f.items) > 0) && !chance(r, 4) {
			slip(r, &f.value)
			return
		}
		switch r.IntN(4) {
		case 0:
			v.fields = slices.Delete(v.fields, i, i+1)
			if len(v.fields) == 0 {
				*v = scalar("{}")
			}
		case 1: // none twice: the last one would count
			if word := pick(r, words); !slices.ContainsFunc(v.fields, func(f field) bool { return f.name == word }) {
				f.name = word
			}
		default:
			f.value = scalar(pick(r, slipped))
		}
	case v.fields != nil:
		if word := pick(r, words); !slices.ContainsFunc(v.fields, func(f field) bool { return f.name == word }) {
			v.fields = append(v.fields, field{word, scalar(pick(r, slipped))})
		}
	case len(v.items) > 0 && chance(r, 4):
		v.items = append(v.items, v.items[r.IntN(len(v.items))])
	case len(v.items) > 0:
		slip(r, &v.items[r.IntN(len(v.items))])
	}
}
