package configs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxMistakes bounds what one file can make us say.
const maxMistakes = 100

// maxExcerpt bounds, in characters, how much of a line is shown.
const maxExcerpt = 160

// Mistake is one thing wrong in what an operator wrote.
type Mistake struct {
	File         string // the file's name; for settings also "flag --lanes" or "environment SPILLGATE_LANES"
	Line, Column int    // from 1; 0: the whole file
	Code         string // "E145": stable, for tools
	Path         string // "rules[0].rates[1].per"
	Detail       string // what is wrong
	Hint         string // how to mend it
	Excerpt      string // the source line with a caret under the place; may be empty
}

// String is the mistake on one line, as a compiler prints it.
func (m Mistake) String() string {
	var b strings.Builder
	b.WriteString(m.File)
	if m.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", m.Line, m.Column)
	}
	fmt.Fprintf(&b, ": %s ", m.Code)
	if m.Path != "" {
		b.WriteString(m.Path + ": ")
	}
	b.WriteString(m.Detail)
	if m.Hint != "" {
		fmt.Fprintf(&b, " (hint: %s)", m.Hint)
	}
	return b.String()
}

// Text is the mistake with its excerpt below.
func (m Mistake) Text() string {
	if m.Excerpt == "" {
		return m.String()
	}
	return m.String() + "\n" + m.Excerpt
}

// RulesError is all the mistakes in a set of rules files.
type RulesError struct{ Mistakes []Mistake }

func (e *RulesError) Error() string { return mistakesText(e.Mistakes) }

// SettingsError is all the mistakes in a process's settings.
type SettingsError struct{ Mistakes []Mistake }

func (e *SettingsError) Error() string { return mistakesText(e.Mistakes) }

func mistakesText(ms []Mistake) string {
	lines := make([]string, len(ms))
	for i, m := range ms {
		lines[i] = m.Text()
	}
	return strings.Join(lines, "\n")
}

// sortMistakes orders by place and drops what is told twice: a rule that
// stands behind an alias is read once for each of its uses. What has no place is
// told apart by its path: several settings may be missing.
func sortMistakes(ms []Mistake) []Mistake {
	slices.SortStableFunc(ms, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(ms, func(a, b Mistake) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Code == b.Code && a.Detail == b.Detail && (a.Line != 0 || a.Path == b.Path)
	})
}

// position is a place in a file, counted in characters from 1.
type position struct{ line, column int }

// source is a file's text, for excerpts, or a part of it.
type source struct {
	name  string
	lines []string
	first int // lines of the file that stand before
}

// lineOf is a line as it is counted in the file; 0 stays.
func (s *source) lineOf(line int) int {
	if line == 0 {
		return 0
	}
	return s.first + line
}

func newSource(name string, text []byte) *source {
	return &source{name: name, lines: strings.Split(oneBreak.Replace(strings.ToValidUTF8(string(text), "\uFFFD")), "\n")}
}

// oneBreak makes all of YAML's line breaks the same, so that lines and columns
// are counted as editors count them.
var oneBreak = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// excerpt shows the line at a position with a caret under it. A long line is
// cut around the place.
func (s *source) excerpt(at position) string {
	if at.line < 1 || at.line > len(s.lines) || at.column < 1 {
		return ""
	}
	line := []rune(s.lines[at.line-1])
	column := min(at.column-1, len(line))
	if from := column - maxExcerpt/2; from > 0 {
		line, column = line[from:], column-from
	}
	line = line[:min(len(line), maxExcerpt)]
	pad := make([]rune, column)
	for i := range pad {
		pad[i] = ' '
		if line[i] == '\t' {
			pad[i] = '\t'
		}
	}
	return "    " + printable(string(line)) + "\n    " + string(pad) + "^"
}

// inside is a place within the text that starts at a position, by its line and
// column there. ok is false where the text is written in such a way (folded,
// or with escapes) that it cannot be told.
func (s *source) inside(at position, line, column int) (position, bool) {
	here := []rune(s.line(at.line))
	if at.column < 1 || at.column > len(here) {
		return position{}, false
	}
	switch start := here[at.column-1]; {
	case start == '|':
		// The text begins on the next line, as deep as its first line that is
		// not empty.
		indent := 0
		for next := at.line + 1; next <= len(s.lines) && indent == 0; next++ {
			indent = len(s.line(next)) - len(strings.TrimLeft(s.line(next), " "))
		}
		at = position{at.line + line, indent + column}
	case line > 1 || start == '>' || start == '"' && slices.Contains(here, '\\'):
		return position{}, false
	case start == '"' || start == '\'':
		at.column += column
	default:
		at.column += column - 1
	}
	return at, at.column <= len([]rune(s.line(at.line)))+1
}

// line is a line by its number from 1, "" beyond the ends.
func (s *source) line(number int) string {
	if number < 1 || number > len(s.lines) {
		return ""
	}
	return s.lines[number-1]
}

// printable keeps a hostile file from steering the terminal it is shown on.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return utf8.RuneError
		}
		return r
	}, s)
}
