package limit

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// ratio is what limits are multiplied by, a reduced fraction: of numbers with a
// point most multiples are not what they look like.
type ratio struct{ num, den uint64 }

// ratioOf is num/den; den is not zero.
func ratioOf(num, den uint64) ratio {
	g := gcd(num, den)
	return ratio{num / g, den / g}
}

// decimal is the number as it was written, to 17 digits: 0.3 is 3/10. It is from
// minMultiply to maxMultiply.
func decimal(m float64) ratio {
	whole, part, _ := strings.Cut(strconv.FormatFloat(m, 'f', -1, 64), ".")
	num, _ := strconv.ParseUint(whole+part, 10, 64) // at most 17 digits and a few zeros before them
	den := uint64(1)
	for range part {
		den *= 10
	}
	return ratioOf(num, den)
}

// of is x times the ratio, to the nearest whole number.
func (m ratio) of(x uint64) uint64 {
	q, rem := product(x, m.num).over(m.den)
	if rem >= m.den-rem && rem > 0 {
		q++
	}
	return q
}

// times is what drains, multiplied; exact is false where that is no whole number
// of units, up to MaxUnits, in a time up to MaxWindow: then it is the nearest.
// Twice 5 a second is 10 a second, half of them 5 in two seconds.
func (d Drain) times(m ratio) (refill uint64, per time.Duration, exact bool) {
	if m.num == 0 { // nothing drains at a rate of nothing, and a bucket that does not is none
		return 1, d.Per, false
	}
	units, num, den, t := d.Refill, m.num, m.den, uint64(d.Per)
	cancel := func(a, b *uint64) {
		g := gcd(*a, *b)
		*a, *b = *a/g, *b/g
	}
	cancel(&units, &den)
	fits := func() bool {
		return !product(MaxUnits, 1).less(product(units, num)) && !product(uint64(MaxWindow), 1).less(product(t, den))
	}
	if !fits() {
		cancel(&num, &t)
		cancel(&units, &t)
	}
	if fits() {
		return units * num, time.Duration(t * den), true
	}
	// As long a time as there may be has the finest units.
	units, t = d.Refill, uint64(d.Per)
	want := float64(units) * float64(m.num) / float64(m.den)
	longer := max(1, uint64(math.Min(float64(MaxWindow)/float64(t), MaxUnits/want)))
	return min(max(1, uint64(math.Round(want*float64(longer)))), MaxUnits), time.Duration(t * longer), false
}

func gcd(a, b uint64) uint64 {
	for b > 0 {
		a, b = b, a%b
	}
	return max(a, 1)
}
