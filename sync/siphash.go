package deltasync

// HashText is Hash of a mark and a text behind it, which need not be put together: a
// processor that reads as one word what was just written in pieces waits until all of
// that has left for its cache.
func (k Keyer) HashText(mark byte, text string) Hash {
	a, b, c, d := k[0]^0x736f6d6570736575, k[1]^0x646f72616e646f6d, k[0]^0x6c7967656e657261, k[1]^0x7465646279746573
	word := uint64(mark) // the first has seven bytes of the text, and the last how long all is
	if len(text) >= 8 {
		word |= littleEndian(text) << 8
	} else {
		word |= littleEnd(text) << 8
	}
	if len(text) >= 7 {
		rest := text[7:]
		for {
			d ^= word
			a, b, c, d = sipRound(a, b, c, d)
			a, b, c, d = sipRound(a, b, c, d)
			a ^= word
			if len(rest) < 8 {
				break
			}
			word, rest = littleEndian(rest), rest[8:]
		}
		word = 0
		if len(rest) > 0 {
			word = littleEndian(text[len(text)-8:]) >> (64 - 8*len(rest))
		}
	}
	word |= uint64(len(text)+1) << 56
	d ^= word
	a, b, c, d = sipRound(a, b, c, d)
	a, b, c, d = sipRound(a, b, c, d)
	a ^= word
	c ^= 0xff
	for range 4 {
		a, b, c, d = sipRound(a, b, c, d)
	}
	return Hash(a ^ b ^ c ^ d)
}

// sipRound is the round of SipHash.
func sipRound(a, b, c, d uint64) (_, _, _, _ uint64) {
	a, c = a+b, c+d
	b, d = (b<<13|b>>51)^a, (d<<16|d>>48)^c
	a = a<<32 | a>>32
	c, a = c+b, a+d
	b, d = (b<<17|b>>47)^c, (d<<21|d>>43)^a
	return a, b, c<<32 | c>>32, d
}

// littleEndian is the first eight bytes of s as a number, the first the lowest.
func littleEndian(s string) uint64 {
	_ = s[7] // one check for all
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// littleEnd is that of a string of fewer.
func littleEnd(s string) (word uint64) {
	for i := len(s) - 1; i >= 0; i-- {
		word = word<<8 | uint64(s[i])
	}
	return word
}
