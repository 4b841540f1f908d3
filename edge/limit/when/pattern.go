package when

import (
	"regexp/syntax"
	"slices"
)

// beginsWith says whether a regular expression matches any text that begins with c, a mark.
// Where it is in doubt it says yes.
func beginsWith(re *syntax.Regexp, c rune) bool {
	if !anchored(re) {
		return true
	}
	first, empty := begins(re, c)
	return first || empty
}

// anchored says that it matches at the beginning of a text alone.
func anchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText:
		return true
	case syntax.OpCapture, syntax.OpPlus, syntax.OpConcat:
		return anchored(re.Sub[0])
	case syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return !anchored(sub) })
	}
	return false
}

// begins says whether what re matches may begin with c, and whether it may be empty, so
// that what comes after it begins.
func begins(re *syntax.Regexp, c rune) (first, empty bool) {
	switch re.Op {
	case syntax.OpLiteral:
		return re.Rune[0] == c, false
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			first = first || re.Rune[i] <= c && c <= re.Rune[i+1]
		}
		return first, false
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true, false
	case syntax.OpNoMatch:
		return false, false
	case syntax.OpCapture, syntax.OpPlus:
		return begins(re.Sub[0], c)
	case syntax.OpStar, syntax.OpQuest:
		first, _ = begins(re.Sub[0], c)
		return first, true
	case syntax.OpRepeat:
		first, empty = begins(re.Sub[0], c)
		return first, empty || re.Min == 0
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if first, empty = begins(sub, c); first || !empty {
				return first, false
			}
		}
		return false, true
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			f, e := begins(sub, c)
			first, empty = first || f, empty || e
		}
		return first, empty
	}
	return false, true // a place, such as the beginning of a text
}

// parts are texts that all has in it that a regular expression matches.
func parts(re *syntax.Regexp) (all []string) {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			all = append(all, string(re.Rune))
		}
	case syntax.OpCapture, syntax.OpPlus, syntax.OpConcat:
		for _, sub := range re.Sub {
			all = append(all, parts(sub)...)
		}
	}
	return all
}
