package configs

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// EnvPrefix starts the names of the environment variables that are read:
// sync.interval is SPILLGATE_SYNC_INTERVAL.
const EnvPrefix = "SPILLGATE"

const configFlag = "config"

// Origin says where a setting's value came from.
type Origin string

const (
	FromFlag    Origin = "flag"
	FromEnv     Origin = "env"
	FromFile    Origin = "file"
	FromDefault Origin = "default"
)

// Effective is a setting as it was understood.
type Effective struct {
	Key   string
	Value string // "********" where it is secret
	From  Origin
}

// Flag sets the same on a command line.
func (e Effective) Flag() string { return "--" + (&setting{key: e.Key}).flag() + "=" + e.Value }

const masked = "********"

// quoted is a text in quotes, or the beginning of one that was cut short.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*("|$)`)

// setting is one key: its default and how its text is read into its place.
type setting struct {
	key      string
	fallback string
	usage    string
	secret   bool // never shown
	mask     func(string) string
	parse    parseFunc
	list     bool
	path     bool // in a file, relative to that file
}

func (s *setting) flag() string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.key)
}

func (s *setting) env() string {
	return EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// bindFlags gives every setting a flag, and --config the file.
func bindFlags(fs *pflag.FlagSet, settings []setting, process string) {
	fs.StringP(configFlag, "c", "", "settings `file` of this "+process+" (YAML; also "+EnvPrefix+"_CONFIG)")
	for i := range settings {
		s := &settings[i]
		usage := s.usage
		if s.fallback != "" {
			usage += fmt.Sprintf(" (default %s)", s.fallback)
		}
		fs.String(s.flag(), "", usage)
	}
}

// loader resolves settings: flag, else environment, else file, else default.
type loader struct {
	v         *viper.Viper
	flags     *pflag.FlagSet
	file      string
	tree      *reader // places in the file
	values    map[string]string
	origins   map[string]Origin
	effective []Effective
	mistakes  []Mistake
}

// load reads every setting and lists all that is wrong with them.
func load(flags *pflag.FlagSet, settings []setting) (*loader, error) {
	l := &loader{v: viper.New(), flags: flags, values: map[string]string{}, origins: map[string]Origin{}}
	l.v.SetEnvPrefix(EnvPrefix)
	l.v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	l.v.AutomaticEnv()
	if err := l.openFile(settings); err != nil {
		return nil, err
	}
	l.mistakes = append(l.mistakes, unknownVariables(os.Environ(), settings)...)
	if l.file != "" && l.tree == nil { // what the file would have set is not missing
		return nil, l.err()
	}
	for i := range settings {
		s := &settings[i]
		if f := flags.Lookup(s.flag()); f != nil {
			if err := l.v.BindPFlag(s.key, f); err != nil {
				return nil, fmt.Errorf("bind flag --%s: %w", s.flag(), err)
			}
		}
		l.v.SetDefault(s.key, s.fallback)
	}
	for i := range settings {
		l.resolve(&settings[i])
	}
	return l, nil
}

// openFile reads the settings file, if one is named.
func (l *loader) openFile(settings []setting) error {
	if f := l.flags.Lookup(configFlag); f != nil {
		l.file = f.Value.String()
	}
	if l.file == "" {
		l.file = os.Getenv(EnvPrefix + "_CONFIG")
	}
	if l.file == "" {
		return nil
	}
	text, err := readFile(l.file)
	if err != nil {
		l.mistakes = append(l.mistakes, Mistake{File: l.file, Code: "E204", Detail: err.Error()})
		return nil
	}
	src := newSource(l.file, text)
	docs, mistakes := parseTree(src, text)
	if len(mistakes) > 0 {
		l.mistakes = mistakes
		return nil
	}
	l.tree = newReader(src)
	l.tree.at[""] = position{1, 1}
	if len(docs) == 0 {
		return nil // an empty file sets nothing
	}
	l.known("", docs[0], settings)
	if len(docs) > 1 {
		l.tree.mistake("", docs[1].at, "E201", "one file, one process", "a second document")
	}
	l.mistakes = l.tree.mistakes
	// The values go in as they are written: a second YAML reader would turn
	// a secret of digits into a number.
	if values, ok := l.plain("", docs[0]).(map[string]any); ok {
		return l.v.MergeConfigMap(values)
	}
	return nil
}

// plain is a value as viper takes it, without what is wrong in it.
func (l *loader) plain(path string, n *node) any {
	switch n.kind {
	case kindMapping:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			if at := join(path, e.key); e.value.kind != kindNull && !l.tree.bad[at] {
				m[e.key] = l.plain(at, e.value)
			}
		}
		return m
	case kindList:
		list := make([]any, len(n.items))
		for i, v := range n.items {
			list[i] = v.text
		}
		return list
	}
	return n.text
}

// known checks the keys of the file against the settings. viper alone would
// take any key, in any case.
func (l *loader) known(path string, n *node, settings []setting) {
	var fields []field
	seen := map[string]bool{}
	for i := range settings {
		rest, ok := strings.CutPrefix(settings[i].key, path+".")
		if path == "" {
			rest, ok = settings[i].key, true
		}
		name, _, nested := strings.Cut(rest, ".")
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		fields = append(fields, field{name: name, read: func(at string, n *node) {
			switch {
			case n.kind == kindNull: // all that stands below it is commented out
			case nested:
				l.known(at, n, settings)
			case n.kind == kindMapping, n.kind == kindList && !settings[i].list:
				l.tree.wrongKind(at, n, "one value", "write it on the same line")
			case n.kind == kindList:
				l.tree.each(at, n, func(at string, n *node) {
					if n.kind == kindList || n.kind == kindMapping || n.kind == kindNull {
						l.tree.wrongKind(at, n, "one value", "write it on the same line")
					}
				})
			}
		}})
	}
	l.tree.object(path, n, fields)
}

func (l *loader) resolve(s *setting) {
	value, from := l.lookup(s)
	if s.path && from == FromFile && value != "" && !filepath.IsAbs(value) {
		value = filepath.Join(filepath.Dir(l.file), value)
	}
	l.values[s.key], l.origins[s.key] = value, from
	if err := s.parse(value); err != nil && !(l.tree != nil && l.tree.bad[s.key]) {
		l.mistake(s.key, "E202", "--help tells what it takes", "%v", err)
	}
	shown := value
	switch {
	case s.secret && value != "":
		shown = masked
	case s.mask != nil:
		shown = s.mask(value)
	}
	l.effective = append(l.effective, Effective{Key: s.key, Value: shown, From: from})
}

// show sets what is shown of a setting whose default follows from another.
func (l *loader) show(key, value string) {
	for i := range l.effective {
		if l.effective[i].Key == key {
			l.effective[i].Value = value
		}
	}
}

func (l *loader) lookup(s *setting) (string, Origin) {
	var text string
	switch v := l.v.Get(s.key).(type) {
	case nil:
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = fmt.Sprint(v[i])
		}
		text = strings.Join(words, ",")
	default:
		text = fmt.Sprint(v)
	}
	f := l.flags.Lookup(s.flag())
	switch {
	case f != nil && f.Changed:
		return text, FromFlag
	case os.Getenv(s.env()) != "":
		return text, FromEnv
	case l.v.InConfig(s.key):
		return text, FromFile
	}
	return text, FromDefault
}

// mistake reports a setting at the place its value came from.
func (l *loader) mistake(key, code, hint, format string, args ...any) {
	m := Mistake{File: "settings", Code: code, Path: key, Detail: fmt.Sprintf(format, args...), Hint: hint}
	s := setting{key: key}
	switch l.origins[key] {
	case FromFlag:
		m.File = "flag --" + s.flag()
	case FromEnv:
		m.File = "environment " + s.env()
	case FromFile:
		at := l.tree.placeOf(key)
		m.File, m.Line, m.Column = l.file, at.line, at.column
	default:
		if hint == "" {
			m.Hint = fmt.Sprintf("--%s, %s, or %s: in the file", s.flag(), s.env(), key)
		}
	}
	l.mistakes = append(l.mistakes, m)
}

func (l *loader) err() error {
	if len(l.mistakes) == 0 {
		return nil
	}
	for i := range l.mistakes {
		m := &l.mistakes[i]
		m.Excerpt = "" // the line may hold a secret, and errors are logged
		switch m.Code {
		case "E003", "E009", "E010": // what they quote is a value in a wrong place, of whatever setting
			m.Detail = quoted.ReplaceAllLiteralString(m.Detail, `"`+masked+`"`)
		}
	}
	return &SettingsError{Mistakes: inOrder(l.mistakes)}
}

// maskURLs hides the user information of a list of URLs: a password, or a
// token where a name would stand.
func maskURLs(value string) string {
	list := splitList(value)
	for i, s := range list {
		if u, err := url.Parse(s); err != nil || u.User == nil && strings.Contains(s, "@") {
			list[i] = masked // not a URL, but there is something in it to hide
		} else if u.User != nil {
			u.User = url.User(masked)
			list[i] = strings.ReplaceAll(u.String(), url.QueryEscape(masked), masked)
		}
	}
	return strings.Join(list, ",")
}

func splitList(value string) []string {
	list := strings.Split(value, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}
