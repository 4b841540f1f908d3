package cuts

import (
	"strings"
	"testing"
)

// Lives are what their seed says, and what is told of them is what happened; `go run
// ./test/sim -cuts -seeds 40` has more, as ./test/run does.
func TestLives(t *testing.T) {
	for seed := range uint64(3) {
		var tale strings.Builder
		o := Run(seed, &tale)
		if o.Err != nil {
			t.Errorf("%s: %v\n%s", o.Plan, o.Err, &tale)
		}
		if o.Windows < 500 {
			t.Errorf("%s: looked at %d windows", o.Plan, o.Windows)
		}
		if again := Run(seed, nil); again != o {
			t.Errorf("%s: %+v, and then %+v", o.Plan, o, again)
		}
	}
}

// A limit that is exceeded by more than any edge says is found to be.
func TestWhatIsExceededIsFound(t *testing.T) {
	l := newLife(0, nil)
	if err := l.begin(0); err != nil {
		t.Fatal(err)
	}
	l.over, l.told = 10, [2]int{20, 30}
	if l.close(); l.out.Uncovered+l.out.Surged > 0 || l.out.Err != nil {
		t.Errorf("10 above the limit, and 20 told: %+v", l.out)
	}
	l.over, l.told = 10*most, [2]int{}
	if l.close(); l.out.Uncovered != 1 || l.out.Surged != 1 || l.out.Err == nil {
		t.Errorf("ten times the limit above it: %+v", l.out)
	}
}
