package regional

import "github.com/spillgate/spillgate/sync"

// reshape takes over what may change of a rate without a new generation, as long
// as nobody who counted has spoken for what it is.
func (c *counter) reshape(told deltasync.Shape) {
	if !c.vouched || c.shape.Limit == 0 {
		c.adopt(told)
	}
}

// adopt makes a shape the counter's.
func (c *counter) adopt(told deltasync.Shape) {
	told = c.complete(told)
	if told.Bucket() {
		told.Slices = max(told.Slices, c.shape.Slices)
		if c.past == nil {
			c.past = &past{}
		}
	}
	if told.Limit != c.shape.Limit {
		c.crossed = 0 // of another limit
	}
	c.shape = told
}

// complete fills in what a node does not know: its limit, or, of an older build,
// how a bucket drains.
func (c *counter) complete(told deltasync.Shape) deltasync.Shape {
	if told.Limit == 0 {
		told.Limit = c.shape.Limit
	}
	if c.shape.Bucket() && !told.Bucket() {
		told.Refill, told.RefillPer, told.Floor = c.shape.Refill, c.shape.RefillPer, c.shape.Floor
	}
	return told
}

// sameTerms says that two shapes of a key differ by no more than for how long a
// bucket's counts are kept, which follows from the rest.
func sameTerms(a, b deltasync.Shape) bool {
	if a.Bucket() {
		a.Slices = b.Slices
	}
	return a == b
}
