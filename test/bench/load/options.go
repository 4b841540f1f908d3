package load

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Bounds of a load: what one process of this kind makes, and remembers.
const (
	maxRate        = 1_000_000
	maxTenants     = 10_000 // seven kilobytes each
	maxConnections = 10_000
)

const (
	surgeAll   = "all"
	surgeFirst = "first"
)

// Options are a load, and what it is made against.
type Options struct {
	Shape   string
	Targets []*url.URL
	wrong   []error // with further ones

	Rate     float64 // requests a second, outside bursts and crowds
	Duration time.Duration
	Times    float64       // how many times the rate a burst or a crowd is
	Every    time.Duration // from a burst to the next
	Burst    time.Duration // how long one is
	Ramp     time.Duration // in which a crowd comes, and goes
	Hold     time.Duration // for how long it stays; 0: a third of Duration
	Surge    string        // whose bursts and crowds are

	Tenants     int
	Skew        float64 // of Zipf's law; 0: all alike
	Connections int
	Timeout     time.Duration

	Namespace  string
	Key        string
	Attributes []pair
	Header     string
	Headers    []pair
	Method     string

	Top  int
	JSON bool
}

// pair is a name with a value.
type pair struct{ name, value string }

// Wanted says that arguments of go run ./test/bench ask for a load.
func Wanted(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return name == "-load" || name == "--load"
	})
}

// Parse reads the flags of a load.
func Parse(args []string, stderr io.Writer) (o Options, err error) {
	flags := flag.NewFlagSet("bench -load", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // a mistake is told by its error: the list of flags would hide it
	flags.StringVar(&o.Shape, "load", "", "the shape of the load: steady, burst (one at the end of every -every) or flash (one crowd in the middle)")
	flags.Func("target", "the `URL` to ask: an edge's /v1/check (meant where the URL has no path) or /v1/auth, or any page; several, one after the other, where it stands several times", func(text string) error {
		o.target(text)
		return nil // flag would tell the value, and a password in it
	})
	flags.Float64Var(&o.Rate, "rate", 100, "requests a second, outside bursts and crowds")
	flags.DurationVar(&o.Duration, "duration", 30*time.Second, "how long the load lasts")
	flags.Float64Var(&o.Times, "times", 10, "how many times -rate a burst or a crowd is")
	flags.DurationVar(&o.Every, "every", 10*time.Second, "from a burst to the next")
	flags.DurationVar(&o.Burst, "burst", time.Second, "how long a burst lasts")
	flags.DurationVar(&o.Ramp, "ramp", 3*time.Second, "how long a crowd takes to come, and to go")
	flags.DurationVar(&o.Hold, "hold", 0, "how long a crowd stays (a third of -duration, if it is not set)")
	flags.StringVar(&o.Surge, "surge", surgeAll, "whose bursts and crowds are: all tenants', or the first's alone")
	flags.IntVar(&o.Tenants, "tenants", 10, "how many tenants ask: t1, t2, ...")
	flags.Float64Var(&o.Skew, "skew", 0, "exponent of Zipf's law by which some ask more than others: t2 asks 1/2^skew as often as t1; 0: all alike")
	flags.IntVar(&o.Connections, "connections", 64, "requests under way at once, at most")
	flags.DurationVar(&o.Timeout, "timeout", 5*time.Second, "how long a request may wait for a free connection, and then for its answer")
	flags.StringVar(&o.Namespace, "namespace", "", "the namespace, where the target is a /v1/check of an edge with several")
	flags.StringVar(&o.Key, "key", "user", "the attribute that tells the tenant, where the target is a /v1/check")
	flags.Func("attribute", "a further attribute, `name=value`, likewise; may stand several times: -attribute path=/api/x", into(&o.Attributes, "="))
	flags.StringVar(&o.Header, "header", "X-User-Id", "the header that tells the tenant, where the target is no /v1/check")
	flags.Func("H", "a further header, `'Name: value'`; may stand several times: -H 'X-Forwarded-Uri: /api/x'", into(&o.Headers, ":"))
	flags.StringVar(&o.Method, "method", http.MethodGet, "the method, where the target is no /v1/check")
	flags.IntVar(&o.Top, "top", 10, "how many tenants are told one by one, those who asked the most")
	flags.BoolVar(&o.JSON, "json", false, "report in JSON")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: no arguments are expected; bench -load %s -help lists the flags", flags.Args(), o.Shape)
	}
	if o.Hold == 0 {
		o.Hold = o.Duration / 3
	}
	return o, o.validate()
}

// target takes in a URL, or notes what is wrong with it; a password is not told.
func (o *Options) target(text string) {
	u, err := url.Parse(text)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		if u.Path == "" {
			u.Path = checkPath
		}
		o.Targets = append(o.Targets, u)
		return
	}
	shown := text[strings.LastIndexByte(text, '@')+1:]
	var wrong *url.Error
	if errors.As(err, &wrong) && strings.Contains(text, "://") && shown == text {
		o.wrong = append(o.wrong, fmt.Errorf("-target %q: %w", shown, wrong.Err))
		return
	}
	o.wrong = append(o.wrong, fmt.Errorf("-target %q: want http://host:port or https://host:port, with a path or without", shown))
}

func into(to *[]pair, separator string) func(string) error {
	return func(text string) error {
		name, value, ok := strings.Cut(text, separator)
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Errorf("want name%svalue", separator)
		}
		*to = append(*to, pair{name, strings.TrimSpace(value)})
		return nil
	}
}

// validate says every mistake.
func (o *Options) validate() error {
	wrong := o.wrong
	mistake := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	surges := o.Shape == "burst" || o.Shape == "flash"
	mistake(o.Shape != "steady" && !surges, "-load %q: want steady, burst or flash", o.Shape)
	mistake(len(o.Targets)+len(o.wrong) == 0, "-target URL: what is to be asked? Such as http://127.0.0.1:8080/v1/check")
	mistake(!(o.Rate > 0 && o.Rate <= maxRate), "-rate %v: want more than 0, and %d a second at most", o.Rate, maxRate)
	mistake(o.Duration <= 0, "-duration %v: want more than 0s", o.Duration)
	mistake(surges && !(o.Times >= 1 && o.Times*o.Rate <= maxRate), "-times %v: want 1 or more, and with -rate %v %d a second at most", o.Times, o.Rate, maxRate)
	mistake(o.Shape == "burst" && (o.Burst <= 0 || o.Every <= o.Burst), "-burst %v -every %v: want bursts that last, and end before the next", o.Burst, o.Every)
	mistake(o.Shape == "burst" && o.Every-o.Burst >= o.Duration, "-every %v: the first burst comes after %v, and the load ends after %v: want a longer -duration", o.Every, o.Every-o.Burst, o.Duration)
	mistake(o.Shape == "flash" && (o.Ramp <= 0 || o.Hold < 0 || 2*o.Ramp+o.Hold >= o.Duration), "-ramp %v -hold %v: a crowd that comes, stays and goes takes %v, and the load ends after %v: want a longer -duration", o.Ramp, o.Hold, 2*o.Ramp+o.Hold, o.Duration)
	mistake(o.Surge != surgeAll && o.Surge != surgeFirst, "-surge %q: want %s or %s", o.Surge, surgeAll, surgeFirst)
	mistake(o.Tenants < 1 || o.Tenants > maxTenants, "-tenants %d: want 1 to %d", o.Tenants, maxTenants)
	mistake(!(o.Skew >= 0 && o.Skew <= 10), "-skew %v: want 0 to 10", o.Skew)
	mistake(o.Connections < 1 || o.Connections > maxConnections, "-connections %d: want 1 to %d", o.Connections, maxConnections)
	mistake(o.Timeout <= 0, "-timeout %v: want more than 0s", o.Timeout)
	mistake(o.Key == "", "-key: which attribute tells the tenant?")
	mistake(!token(o.Header), "-header %q: want the name of a header", o.Header)
	for _, h := range o.Headers {
		mistake(!token(h.name), "-H %q: want the name of a header before the colon", h.name)
	}
	mistake(!token(o.Method), "-method %q: want a method, such as GET", o.Method)
	mistake(o.Top < 0, "-top %d: want 0 or more", o.Top)
	return errors.Join(wrong...)
}

// token says that text can be a header's name, or a method.
func token(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// shape is the load over time.
func (o *Options) shape() shape {
	switch o.Shape {
	case "burst":
		return bursts(o.Rate, o.Times, o.Every, o.Burst, o.Duration)
	case "flash":
		return flash(o.Rate, o.Times, o.Ramp, o.Hold, o.Duration)
	}
	return steady(o.Rate, o.Duration)
}

// tenant is the name of one, counted from 0.
func tenant(i int) string { return fmt.Sprintf("t%d", i+1) }
