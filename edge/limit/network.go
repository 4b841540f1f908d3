package limit

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// networks are the addresses that a rule is for: prefixes as they were given,
// and the same as ranges that lie apart, for finding an address among many.
type networks struct {
	prefixes []netip.Prefix
	ranges   []addrRange
}

type addrRange struct{ first, last netip.Addr }

// HostBitsError refuses a prefix with bits beyond its length: whether the network
// around was meant, or the one address, cannot be told, and of the two one lets
// in many thousands more.
type HostBitsError struct {
	Text    string
	Network netip.Prefix // what holds it
}

func (e *HostBitsError) Error() string {
	return fmt.Sprintf("%q is no network, but an address in one", e.Text)
}

// Hint is how to mend it.
func (e *HostBitsError) Hint() string {
	addr, _, _ := strings.Cut(e.Text, "/")
	return fmt.Sprintf("%s; or %s, for the one address", e.Network, addr)
}

// ParseNetwork reads a prefix or a single address. A mapped IPv4 prefix is the
// IPv4 prefix that it maps. Of a prefix with bits beyond its length the error
// is a *HostBitsError.
func ParseNetwork(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		addr, addrErr := netip.ParseAddr(s)
		if addrErr != nil || addr.Zone() != "" {
			return p, fmt.Errorf("%q is not a network", s)
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, fmt.Errorf("%q holds more than the mapped IPv4 addresses", s)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return p, &HostBitsError{s, p.Masked()}
	}
	return p, nil
}

// join puts the prefixes together into ranges.
func (n *networks) join() {
	for _, p := range n.prefixes {
		n.ranges = append(n.ranges, addrRange{p.Addr(), lastOf(p)})
	}
	// Of those that begin alike the widest stands first, and so covers the rest.
	slices.SortFunc(n.ranges, func(a, b addrRange) int {
		return cmp.Or(a.first.Compare(b.first), b.last.Compare(a.last))
	})
	apart := n.ranges[:0]
	for _, r := range n.ranges {
		// Prefixes lie inside one another or apart: none cuts another.
		if len(apart) == 0 || apart[len(apart)-1].last.Less(r.first) {
			apart = append(apart, r)
		}
	}
	n.ranges = apart
}

// lastOf is the highest address of a masked prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b) // as long as it was
	return last
}

// has is false for what is not an address.
func (n *networks) has(addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	i, found := slices.BinarySearchFunc(n.ranges, addr, func(r addrRange, a netip.Addr) int { return r.first.Compare(a) })
	return found || i > 0 && !n.ranges[i-1].last.Less(addr)
}

// NormalAddr reads an address as it is compared: a mapped IPv4 address as the
// IPv4 address, without a zone or a port. It is invalid where s is no address.
func NormalAddr(s string) netip.Addr {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		with, err := netip.ParseAddrPort(s) // as net/http's RemoteAddr is
		if err != nil {
			return netip.Addr{}
		}
		addr = with.Addr()
	}
	return addr.Unmap().WithZone("")
}
