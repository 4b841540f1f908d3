package deltasync

import (
	"math/rand/v2"
	"testing"
)

// Edges of all builds name a counter alike, however they hash.
func TestHashTextIsHash(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for size := range 100 {
		for range 20 {
			k := Keyer{rnd.Uint64(), rnd.Uint64()}
			material := make([]byte, 1+size)
			for i := range material {
				material[i] = byte(rnd.Uint32())
			}
			if got, want := k.HashText(material[0], string(material[1:])), k.Hash(material); got != want {
				t.Fatalf("HashText of %d bytes behind a mark = %#x, want %#x", size, uint64(got), uint64(want))
			}
		}
	}
}

func BenchmarkHash(b *testing.B) {
	k, texts := Keyer{1, 2}, []string{"user-00000001", "user-00000002"}
	b.Run("put together", func(b *testing.B) {
		var room [128]byte
		for i := range b.N {
			k[0] += uint64(k.Hash(append(append(room[:0], 's'), texts[i&1]...)))
		}
	})
	b.Run("text", func(b *testing.B) {
		for i := range b.N {
			k[0] += uint64(k.HashText('s', texts[i&1]))
		}
	})
}
