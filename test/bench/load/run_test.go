package load

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// options are those of flags.
func options(t *testing.T, flags ...string) Options {
	t.Helper()
	o, err := Parse(append([]string{"-target", "http://127.0.0.1:8080"}, flags...), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// answering answers after some time, unless that is too long.
func answering(after func(request) time.Duration) means {
	return means{pause: time.Sleep, send: func(ctx context.Context, r request) outcome {
		select {
		case <-time.After(after(r)):
			return outcome{denied: r.tenant == 0}
		case <-ctx.Done():
			return failure(ctx.Err())
		}
	}}
}

// A server that stands still for two seconds is seen by all whose requests were due
// meanwhile, also by those that no connection was free for.
func TestAStallIsSeenByAllThatWereDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := options(t, "-load", "steady", "-rate", "100", "-duration", "10s", "-connections", "4", "-tenants", "2")
		f := run(t.Context(), o, answering(func(request) time.Duration {
			if at := time.Since(began); at >= 4*time.Second && at < 6*time.Second {
				return 6*time.Second - at
			}
			return time.Millisecond
		}))
		r := newReport(o, f, false)
		if r.Asked != 1000 || r.Failed != 0 || r.Admitted+r.Denied != 1000 {
			t.Errorf("%d asked, %d failed, %d answered, want 1000, 0, 1000", r.Asked, r.Failed, r.Answered)
		}
		// A fifth was due in the stall: they waited from 2 s down to nothing.
		if l := r.Latency; l.P50 > millis(2*time.Millisecond) || l.P90 < millis(900*time.Millisecond) || l.P90 > millis(1100*time.Millisecond) || l.Max < millis(1990*time.Millisecond) {
			t.Errorf("latency %v, want p90 about 1 s, and 2 s at most", l)
		}
		if r.Late.Max < millis(1900*time.Millisecond) {
			t.Errorf("sent late: %v, want up to 2 s", r.Late)
		}
		if len(r.Top) != 2 || r.Top[0].Asked+r.Top[1].Asked != 1000 {
			t.Errorf("tenants: %v", r.Top)
		}
	})
}

// Where no connection is free for -timeout, requests are given up, and the load ends.
func TestWhatCannotBeSentIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		o := options(t, "-load", "steady", "-rate", "10", "-duration", "10s", "-connections", "1", "-timeout", "2s")
		r := newReport(o, run(t.Context(), o, answering(func(request) time.Duration { return time.Hour })), false)
		if took := time.Since(began); took > 14*time.Second {
			t.Errorf("it took %v", took)
		}
		if r.Asked != 100 || r.Answered != 0 || r.Failed != 100 || r.Unsent < 80 || r.Unsent > 96 {
			t.Errorf("%d asked, %d answered, %d failed, %d unsent", r.Asked, r.Answered, r.Failed, r.Unsent)
		}
		if len(r.Errors) != 2 || r.Errors[0].Kind != overdue || r.Errors[1].Kind != "timeout" || r.Errors[0].Count+r.Errors[1].Count != 100 {
			t.Errorf("errors: %v", r.Errors)
		}
	})
}

// What is interrupted reports what it has; what was under way counts nowhere.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second-time.Millisecond)
		defer cancel()
		o := options(t, "-load", "steady", "-rate", "10", "-duration", "1h", "-connections", "50")
		r := newReport(o, run(ctx, o, answering(func(request) time.Duration { return time.Second })), true)
		if r.Asked != 40 || r.Failed != 0 || r.CutShort != 10 || r.Seconds > 5 {
			t.Errorf("%d asked, %d failed, %d cut short in %v s, want 40, 0, 10 in 5 s", r.Asked, r.Failed, r.CutShort, r.Seconds)
		}
		var b strings.Builder
		if err := r.text(&b); err != nil || !strings.Contains(b.String(), "interrupted, 10 requests cut short") {
			t.Errorf("%v: %s", err, b.String())
		}
	})
}

func TestWhoAsks(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		parts []float64 // of all requests, by tenant
	}{
		{"all alike", []string{"-load", "steady", "-tenants", "4"}, []float64{.25, .25, .25, .25}},
		{"by Zipf's law", []string{"-load", "steady", "-tenants", "3", "-skew", "1"}, []float64{6. / 11, 3. / 11, 2. / 11}},
		{"the burst is all tenants'", []string{"-load", "burst", "-every", "2s", "-times", "9", "-tenants", "2"}, []float64{.5, .5}},
		// In two seconds ten parts come, of which eight are the first's alone.
		{"the burst is the first's", []string{"-load", "burst", "-every", "2s", "-times", "9", "-tenants", "2", "-surge", "first"}, []float64{.9, .1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, append(c.flags, "-rate", "1000", "-duration", "30s")...)
			asked, total, surge := make([]float64, o.Tenants), 0.0, 0
			next := newSource(o)
			for r, ok := next.next(); ok; r, ok = next.next() {
				asked[r.tenant]++
				total++
				if r.surge {
					surge++
				}
			}
			for i, want := range c.parts {
				if got := asked[i] / total; got < want-.02 || got > want+.02 {
					t.Errorf("%s asks %.3f of all, want %.3f", tenant(i), got, want)
				}
			}
			if want := map[string]int{"steady": 0, "burst": 15 * 9000}[o.Shape]; surge != want {
				t.Errorf("%d requests of bursts, want %d", surge, want)
			}
		})
	}
}

func TestMistakesAreTold(t *testing.T) {
	target := "-target http://127.0.0.1:8080 "
	for args, want := range map[string]string{
		"-load steady":                                                "-target URL: what is to be asked?",
		target + "-load wave":                                         `-load "wave": want steady, burst or flash`,
		"-load steady -target 127.0.0.1:1":                            "want http://host:port",
		"-load steady -target ftp://h":                                "want http://host:port",
		target + "-load steady -rate 0":                               "-rate 0: want more than 0",
		target + "-load steady -rate NaN":                             "-rate NaN: want more than 0",
		target + "-load burst -times 1e6":                             "-times 1e+06: want 1 or more, and with -rate 100 1000000 a second at most",
		target + "-load burst -burst 10s":                             "want bursts that last, and end before the next",
		target + "-load burst -duration 9s":                           "-every 10s: the first burst comes after 9s, and the load ends after 9s",
		target + "-load flash -duration 9s":                           "a crowd that comes, stays and goes takes 9s",
		target + "-load flash -surge some":                            `-surge "some": want all or first`,
		target + "-load steady -tenants 0 -connections 0 -timeout 0s": "-connections 0: want 1 to 10000",
		target + "-load steady -skew -1":                              "-skew -1: want 0 to 10",
		target + "-load steady -key=":                                 "-key: which attribute tells the tenant?",
		target + "-load steady -header X:Y":                           `-header "X:Y": want the name of a header`,
		target + "-load steady -H nothing":                            "want name:value",
		target + "-load steady -attribute =x":                         "want name=value",
		target + "-load steady now":                                   `["now"]: no arguments are expected`,
	} {
		if _, err := Parse(strings.Fields(args), t.Output()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	for args, want := range map[string]bool{"-load steady": true, "-target http://h -load=flash": true, "-long": false, "-round 1s": false} {
		if got := Wanted(strings.Fields(args)); got != want {
			t.Errorf("Wanted(%s) = %v", args, got)
		}
	}
}
