package limit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// starry is rules of which each has a name or a star at each of 14 places.
func starry(n int) Document {
	doc := Document{Namespace: "t"}
	for i := range n {
		names := make([]string, 14)
		for k := range names {
			names[k] = [...]string{"a", "*"}[i>>k&1]
		}
		path := "/" + strings.Join(names, "/")
		doc.Rules = append(doc.Rules, RuleSpec{Name: fmt.Sprint("r", i), Priority: i, Allow: true, Match: MatchSpec{Path: []string{path}}})
	}
	return doc
}

// Whatever the patterns, no path leads a walk to many places: those with stars that would
// are found by rows.
func TestStarsDoNotMultiply(t *testing.T) {
	for _, doc := range []Document{starry(100), starry(10_000), manyRules(10_000)} {
		set, problems := Compile(doc)
		if problems != nil {
			t.Fatal(problems[0])
		}
		tree := set.Only().groups[0].index.paths
		n := tree.root.count()
		if listed := len(tree.root.list(nil, nil)); listed != n {
			t.Errorf("%d patterns are counted, %d listed", n, listed)
		}
		if w := tree.root.width(); (w > widest(n)) != (tree.rows != nil) {
			t.Errorf("%d rules: a path leads to %d places of a tree: found by rows is %v", len(doc.Rules), w, tree.rows != nil)
		}
	}
	one := MatchSpec{}
	for _, s := range starry(1000).Rules {
		one.Path = append(one.Path, s.Match.Path...)
	}
	set, problems := Compile(Document{Namespace: "t", Rules: []RuleSpec{{Name: "one", Allow: true, Match: one}}})
	if problems != nil {
		t.Fatal(problems[0])
	}
	if tree := set.Only().groups[0].rules[0].match.tree; tree.rows == nil {
		t.Errorf("a rule's own 1000 paths are walked: %d places", tree.root.width())
	}
}

// Rules that one path may fit are warned of where they are many, as a request of it that
// lacks their key is held against all of them.
func TestOnePathOfManyRulesIsWarnedOf(t *testing.T) {
	for n, want := range map[int]bool{255: false, 256: true} {
		doc := starry(n)
		for i := range 300 { // a name more each, and so of one path each
			doc.Rules = append(doc.Rules, RuleSpec{Name: fmt.Sprint("one", i), Priority: n + i, Allow: true, Match: MatchSpec{Path: []string{fmt.Sprintf("/b/*/%d/**", i)}}})
		}
		set, problems := Compile(doc)
		if problems != nil {
			t.Fatal(problems[0])
		}
		warned := slices.ContainsFunc(set.Warnings()[0], func(p Problem) bool { return p.Code == "W227" && p.Path == "rules[255].match.path" })
		if warned != want {
			t.Errorf("%d rules that /a/a/... fits: warned of is %v: %v", n, warned, set.Warnings())
		}
	}
}

// Rows find what a walk does, which is what patterns say.
func TestRowsFindWhatAWalkDoes(t *testing.T) {
	took := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var tree pathTree
		var patterns []pattern
		rules := make([]*Rule, 1+rng.IntN(300))
		for i := range rules {
			p, err := compilePattern(deepPattern(rng))
			if err != nil {
				t.Fatal(err)
			}
			patterns = append(patterns, p)
			rules[i] = &Rule{match: match{paths: []pattern{p}, lacks: []source{{slots: []int{slotMethod}}}}}
		}
		under := map[string]*index{}
		for i, p := range patterns { // several rules may have one pattern
			ix := under[p.String()]
			if ix == nil {
				ix = &index{min: int32(i)}
				under[p.String()] = ix
			}
			ix.scan = append(ix.scan, candidate{rank: int32(i)})
			tree.root.put(p, ix)
		}
		tree.settle()
		if tree.root.width() <= widest(len(under)) {
			continue
		}
		for range 200 {
			path := strings.NewReplacer("**", "a/b", "*", [...]string{"a", "z", "", "*"}[rng.IntN(4)]).Replace(deepPattern(rng))
			req := &Request{attrs: make([]string, slotPath+1)}
			req.attrs[slotPath] = path
			left, ok := pathSegments(path)
			if !ok {
				t.Fatal(path)
			}
			want := slices.IndexFunc(patterns, func(p pattern) bool { return p.matches(path) })
			before := int32(len(rules))
			walk, rows := tree.root.lowest(&query{req: req, rules: rules}, left, true, before), tree.rows.lowest(&query{req: req, rules: rules}, left, before)
			if want < 0 {
				want = len(rules)
			}
			if walk != int32(want) || rows != int32(want) {
				t.Fatalf("seed %d: of %q a walk finds %d, rows %d, and %d comes first", seed, path, walk, rows, want)
			}
			if has := tree.rows.has(left); has != (want < len(rules)) || tree.root.has(left, true) != has {
				t.Fatalf("seed %d: rows have %q: %v, the walk: %v", seed, path, has, !has)
			}
			if want < len(rules) {
				took++
			}
		}
	}
	if took < 5000 {
		t.Errorf("only %d paths were taken: this test sees too little", took)
	}
}

func deepPattern(rng *rand.Rand) string {
	text := ""
	for range 1 + rng.IntN(9) {
		text += "/" + [...]string{"a", "b", "*", "*", ""}[min(rng.IntN(4)+rng.IntN(20)/19, 4)]
	}
	if rng.IntN(5) == 0 {
		text += "/**"
	}
	return text
}

// What rules with stars cost, by their number, on paths that none matches.
func BenchmarkMatchByStars(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		set, problems := Compile(starry(n))
		if problems != nil {
			b.Fatal(problems[0])
		}
		for _, path := range []string{"/v1/none", strings.Repeat("/a", 500), strings.Repeat("/a", 14)} {
			b.Run(fmt.Sprintf("rules=%d/%.6s-%d", n, path[1:], strings.Count(path, "/")), func(b *testing.B) {
				req := set.Only().NewRequest()
				defer req.Release()
				req.Set("path", path)
				b.ReportAllocs()
				for b.Loop() {
					req.Rules()
				}
			})
		}
	}
}
