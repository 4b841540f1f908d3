package demo

// router sends clients to regions as a geo-routing DNS does: a client always
// to its own region, by a stable hash of its address, some regions getting more
// clients than others.
type router struct {
	bounds []float64 // of the regions' shares of [0, 1), ascending; the last is 1
}

func newRouter(regions int) router {
	r := router{bounds: make([]float64, regions)}
	weight := func(i int) float64 { return 1 / (1 + 0.25*float64(i)) }
	sum := 0.0
	for i := range r.bounds {
		sum += weight(i)
	}
	at := 0.0
	for i := range r.bounds {
		at += weight(i) / sum
		r.bounds[i] = at
	}
	r.bounds[regions-1] = 1
	return r
}

// home is the client's own region.
func (r router) home(client string) int {
	at := float64(mix(client)>>11) / (1 << 53)
	for i, bound := range r.bounds {
		if at < bound {
			return i
		}
	}
	return len(r.bounds) - 1
}

// mix is FNV-1a with the finalizer of MurmurHash3, whose high bits are good
// enough to divide clients by. It is the same in every process.
func mix(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
