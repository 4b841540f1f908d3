package trial

import "testing"

// A penalty that every region has lost which had stored it need not be told again by
// edges that forget keys to make room; all others must be.
func TestPenaltiesThatAreLost(t *testing.T) {
	for name, tc := range map[string]struct {
		evict                 bool
		stored, lost, regains bool
		elsewhere, refused    bool
		want                  bool
	}{
		"stored and lost":        {evict: true, stored: true, lost: true, want: true},
		"told to nobody":         {evict: true},
		"told in vain":           {evict: true, refused: true, want: true},
		"first in vain":          {evict: true, refused: true, stored: true},
		"stored":                 {evict: true, stored: true},
		"told again since":       {evict: true, stored: true, lost: true, regains: true},
		"another region has it":  {evict: true, stored: true, lost: true, elsewhere: true},
		"no edge forgets a key":  {stored: true, lost: true},
		"lost before it was set": {evict: true, lost: true},
	} {
		tr := &trial{plan: &plan{has: map[Fault]bool{Evict: tc.evict}}, sentences: newSentences()}
		if tc.stored {
			tr.sentences.store("eu", "u")
		}
		if tc.refused {
			tr.sentences.refuse("u")
		}
		if tc.elsewhere {
			tr.sentences.store("us", "u")
		}
		if tc.lost {
			tr.sentences.forget("eu")
		}
		if tc.regains {
			tr.sentences.store("eu", "u")
		}
		if got := tr.untold("u"); got != tc.want {
			t.Errorf("%s: untold: %v, want %v", name, got, tc.want)
		}
	}
}
