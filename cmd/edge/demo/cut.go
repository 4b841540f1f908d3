package demo

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Cut is a region cut off from all others for a while.
type Cut struct {
	Region string
	// After is when it begins, counted from the start of the run; Length is
	// how long it lasts.
	After, Length time.Duration
}

var errCut = errors.New("want REGION@AFTER+LENGTH, such as eu@5s+5s")

// ParseCut reads REGION@AFTER+LENGTH.
func ParseCut(s string) (Cut, error) {
	bad := func(why string) (Cut, error) { return Cut{}, fmt.Errorf("cut %q: %s; %w", s, why, errCut) }
	region, times, ok := strings.Cut(s, "@")
	if !ok || region == "" {
		return bad("no region before an @")
	}
	after, length, ok := strings.Cut(times, "+")
	if !ok {
		return bad("no length after a +")
	}
	c := Cut{Region: region}
	var err error
	if c.After, err = time.ParseDuration(after); err != nil || c.After < 0 {
		return bad(fmt.Sprintf("%q is not a time", after))
	}
	if c.Length, err = time.ParseDuration(length); err != nil || c.Length <= 0 {
		return bad(fmt.Sprintf("%q is not a length", length))
	}
	return c, nil
}

// String is the cut as ParseCut reads it.
func (c Cut) String() string { return fmt.Sprintf("%s@%v+%v", c.Region, c.After, c.Length) }

// holds says whether the cut is on at the given time of the run.
func (c Cut) holds(at time.Duration) bool { return at >= c.After && at-c.After < c.Length }

// CutList is the value of a flag that may be given several times.
type CutList []Cut

// String implements pflag.Value.
func (l *CutList) String() string {
	texts := make([]string, len(*l))
	for i, c := range *l {
		texts[i] = c.String()
	}
	return strings.Join(texts, ",")
}

// Set implements pflag.Value.
func (l *CutList) Set(s string) error {
	c, err := ParseCut(s)
	if err != nil {
		return err
	}
	*l = append(*l, c)
	return nil
}

// Type implements pflag.Value.
func (l *CutList) Type() string { return "region@after+length" }
