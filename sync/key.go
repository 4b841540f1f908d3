package deltasync

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/dchest/siphash"
)

// MinSecret is the shortest cluster secret, in bytes.
const MinSecret = 16

// ErrSecret is returned, wrapped, for a cluster secret that is too short.
var ErrSecret = errors.New("cluster secret too short")

// Keyer names counters under the cluster secret: SipHash-2-4 (Aumasson and
// Bernstein, "SipHash: a fast short-input PRF", 2012), keyed, because clients
// choose their keys and could aim an unkeyed hash at each other. All edges and
// aggregators of a cluster share the secret.
type Keyer [2]uint64

// NewKeyer derives a Keyer from the cluster secret, at least MinSecret bytes.
func NewKeyer(secret []byte) (Keyer, error) {
	if len(secret) < MinSecret {
		return Keyer{}, fmt.Errorf("%w: %d bytes, want at least %d", ErrSecret, len(secret), MinSecret)
	}
	k0, k1 := siphash.Hash128(binary.LittleEndian.Uint64(secret), binary.LittleEndian.Uint64(secret[8:]), secret)
	return Keyer{k0, k1}, nil
}

// SecretCheck tells cluster secrets apart, and nothing else of them: edges send it,
// and regions pass on that of theirs, as those with different secrets count
// different keys and would never notice. It is of another form of the hash than all
// keys are made with, so it says nothing of theirs either. Whoever sees it can try
// guesses, as with any key; it is never 0.
func SecretCheck(secret []byte) (uint64, error) {
	if len(secret) < MinSecret {
		return 0, fmt.Errorf("%w: %d bytes, want at least %d", ErrSecret, len(secret), MinSecret)
	}
	word := append([]byte("spillgate secret check:"), secret...)
	return max(1, siphash.Hash(binary.LittleEndian.Uint64(secret), binary.LittleEndian.Uint64(secret[8:]), word)), nil
}

// Sub is a Keyer for one rule: the rule's identity is hashed once, when rules
// are compiled, and not with every request.
func (k Keyer) Sub(identity []byte) Keyer {
	k0, k1 := siphash.Hash128(k[0], k[1], identity)
	return Keyer{k0, k1}
}

// Hash is the keyed hash of key material; Key makes it the name of a counter.
// A rule with several rates hashes once. It allocates nothing.
func (k Keyer) Hash(material []byte) Hash { return Hash(siphash.Hash(k[0], k[1], material)) }

// Hash is a keyed hash of a request's key under one rule.
type Hash uint64

// Key names the counter of the rate with the given generation. Without the
// secret nobody can aim two keys at one name, as the hash is already a keyed
// one. Names of one hash have their first and last bits in common, by which
// ledgers place them: the rates of a rule then share a lock and neighbouring
// cache lines.
func (h Hash) Key(generation uint64) Key {
	return Key(max(1, uint64(h)^mix(generation)&differing)) // 0 marks an empty place in tables
}

// HashOf is the hash that the name of a counter is of, whose rate has the given generation.
func HashOf(key Key, generation uint64) Hash { return Hash(Hash(key).Key(generation)) } // the same bits flip back

// Anew is the hash that a key has once it was reset: as good as that of another key, for
// each number another. Who has no secret knows it, too.
func (h Hash) Anew(number uint64) Hash { return Hash(mix(uint64(h) ^ mix(number))) }

// differing are the bits in which the names of one hash differ.
const differing = 0x00ff_ffff_ff00_0000

// mix is the finalizer of MurmurHash3: a bijection.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// nodeBits tell the edges of a PoP apart, the bits above them PoPs: of a thousand edges
// two have a name in common once in two million times, of three hundred PoPs once in
// four hundred, which then share what each PoP may take and vote for, and nothing else.
const nodeBits = 40

// NodeID names an edge, or with empty pop and name a whole region. Edges of a PoP have
// their upper bits in common, so that it is known of each count which PoP it is of, by
// whoever reads it: a PoP may call as many edges its own as it likes, and each that it
// may speak for counts as one.
func NodeID(region, pop, name string) uint64 {
	all := nodeHash(region, pop, name)
	if pop == "" {
		return all
	}
	return PopOf(nodeHash(region, pop, "")) | all&(1<<nodeBits-1)
}

// WireNodeID is what an edge calls itself in frames: builds that tell no PoP by a node's
// name know no other, and whoever knows better makes its NodeID of it.
func WireNodeID(region, pop, name string) uint64 { return nodeHash(region, pop, name) }

// PopOf is the PoP of an edge's node, as a node that no edge has.
func PopOf(node uint64) uint64 { return node &^ (1<<nodeBits - 1) }

func nodeHash(region, pop, name string) uint64 {
	text := make([]byte, 0, 128) // asked with each frame: fmt takes several times as long
	for _, part := range [...]string{region, pop, name} {
		text = append(append(strconv.AppendInt(text, int64(len(part)), 10), ':'), part...)
	}
	return siphash.Hash(0x7370696c6c676174, 0x6e6f6465, text)
}
