package deltasync

import (
	"math"
	"math/bits"
	"time"
)

// Budget is how many bytes a link may carry: so many a second, and what was
// saved up in the last one. What cannot wait may overdraw it by a frame; then
// all waits until that is made good. It is not safe for concurrent use.
type Budget struct {
	rate int64 // bytes a second; 0: any number
	left int64
	at   int64 // the instant of left, in ns
}

// Haste is how urgent something is that wants to be sent.
type Haste int

const (
	// CanWait is sent while half of what may be saved up is left.
	CanWait Haste = iota
	// Regular is sent while anything is left.
	Regular
	// Pressing is sent while the budget is overdrawn by less than a frame.
	Pressing
)

// NewBudget makes a budget of so many bytes a second; 0: no bound.
func NewBudget(rate int64) Budget { return Budget{rate: rate, left: rate} }

// Allows says whether something in such haste may be sent.
func (b *Budget) Allows(now int64, h Haste) bool {
	if b.rate == 0 {
		return true
	}
	b.save(now)
	switch h {
	case CanWait:
		return b.left > b.rate/2
	case Regular:
		return b.left > 0
	default:
		return b.left > -MaxFrame
	}
}

// Room is how many bytes may be sent, and come back, of what is Pressing.
func (b *Budget) Room(now int64) int64 {
	if b.rate == 0 {
		return math.MaxInt64
	}
	b.save(now)
	return max(0, b.left+MaxFrame)
}

// Spend takes note of bytes that were sent, or that came back.
func (b *Budget) Spend(bytes int) {
	if b.rate != 0 {
		b.left -= int64(bytes)
	}
}

// save adds what has come in since it was last looked at. A clock that was set
// back saves nothing.
func (b *Budget) save(now int64) {
	passed := min(max(0, now-b.at), int64(time.Second))
	if b.at = now; passed == 0 {
		return
	}
	high, low := bits.Mul64(uint64(passed), uint64(b.rate))
	gained, _ := bits.Div64(high, low, uint64(time.Second))
	b.left = min(b.rate, b.left+int64(gained))
}
