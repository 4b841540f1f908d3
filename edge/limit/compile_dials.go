package limit

import "cmp"

const (
	// DefaultSurge is F where a rate names none: the accuracy of the default holds
	// for ten times the limit at once (research/accuracy.md §3).
	DefaultSurge = 10
	// DefaultLeeway is m, likewise.
	DefaultLeeway = 0.05

	leastSurge, mostSurge = 2, 1000
)

func (r *Rate) surge() float64  { return cmp.Or(r.Surge, DefaultSurge) }
func (r *Rate) leeway() float64 { return cmp.Or(r.Leeway, DefaultLeeway) }

// dials reads how far an adaptive rate trusts that others hold still. They change
// what is admitted, and not what a count means.
func (c *compiler) dials(path string, spec *RateSpec, r *Rate) {
	foreign := func(word string) {
		c.problem(path+"."+word, "E223", "consistency: adaptive, or leave it out", "%s belongs to adaptive rates, which this one is not", word)
	}
	if spec.Surge != 0 {
		switch {
		case r.Consistency != Adaptive:
			foreign("surge")
		case !(spec.Surge >= leastSurge && spec.Surge <= mostSurge):
			c.problem(path+".surge", "E221", "2 to 1000, such as 10; or leave it out", "a surge of %v times the limit is out of range", spec.Surge)
		}
	}
	if spec.LeewayPercent != 0 {
		switch {
		case r.Consistency != Adaptive:
			foreign("leeway")
		case !(spec.LeewayPercent > 0 && spec.LeewayPercent <= 100):
			c.problem(path+".leeway", "E222", "above 0% to 100%, such as 5%; or leave it out", "%v%% is out of range", spec.LeewayPercent)
		}
	}
	r.Surge, r.Leeway = spec.Surge, spec.LeewayPercent/100
}
