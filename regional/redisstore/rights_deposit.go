package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

// A deposit is stored as
//
//	deposit = due:6 format:1 version:8 holding*
//	holding = holder:8 node:8? granted returned limit lasts silent? length region:length
//
// where due, which the script writes, is when it may be forgotten, in milliseconds
// since 1970; format is 3, or 4 where some holder is silent, and each has its silent, and of older
// builds 1 or 2, without nodes; the
// numbers with a width are big endian and the others unsigned varints, none longer than
// it need be; lasts is in nanoseconds, silent in milliseconds.

const (
	formatHeard  = 3
	formatSilent = 4
	// what builds wrote that knew no nodes
	formatHeardBefore  = 1
	formatSilentBefore = 2
	dueBytes           = 6
	versionBytes       = 1 + 8 // with the format
)

func isSilent(h escrow.Holding) bool { return h.Silent >= time.Millisecond }

// appendDeposit packs a deposit, without due.
func appendDeposit(dst []byte, d *escrow.Deposit) []byte {
	format := byte(formatHeard)
	if slices.ContainsFunc(d.Holdings, isSilent) {
		format = formatSilent
	}
	dst = binary.BigEndian.AppendUint64(append(dst, format), d.Version)
	for i := range d.Holdings {
		h := &d.Holdings[i]
		dst = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, h.Holder), h.Node)
		for _, v := range []uint64{h.Granted, h.Returned, h.Limit, uint64(h.Lasts)} {
			dst = binary.AppendUvarint(dst, v)
		}
		if format == formatSilent {
			dst = binary.AppendUvarint(dst, uint64(h.Silent/time.Millisecond))
		}
		dst = append(binary.AppendUvarint(dst, uint64(len(h.Region))), h.Region...)
	}
	return dst
}

var errDeposit = errors.New("a deposit that was not written by us")

// parseDeposit reads what is stored of a key. Who holds rights in a strict limit is not
// guessed: anything that appendDeposit would not write is refused.
func parseDeposit(key deltasync.Key, stored string) (escrow.Deposit, error) {
	bad := func(what string) (escrow.Deposit, error) {
		return escrow.Deposit{}, fmt.Errorf("%w: key %016x: %s", errDeposit, uint64(key), what)
	}
	b := []byte(stored)
	if len(b) < dueBytes+versionBytes+1 {
		return bad("too short")
	}
	b = b[dueBytes:]
	format := b[0]
	if format < formatHeardBefore || format > formatSilent {
		return bad(fmt.Sprintf("format %d, want %d to %d; a later build may have written it", format, formatHeardBefore, formatSilent))
	}
	nodes, silent := format >= formatHeard, format == formatSilent || format == formatSilentBefore
	d := escrow.Deposit{Key: key, Version: binary.BigEndian.Uint64(b[1:])}
	for b = b[versionBytes:]; len(b) > 0; {
		var h escrow.Holding
		if len(b) < 8 || nodes && len(b) < 16 {
			return bad("cut in a holder")
		}
		if h.Holder, b = binary.BigEndian.Uint64(b), b[8:]; nodes {
			h.Node, b = binary.BigEndian.Uint64(b), b[8:]
		}
		var numbers [6]uint64
		for i := range numbers {
			if i == 4 && !silent {
				continue
			}
			v, n := binary.Uvarint(b)
			if n <= 0 || n > 1 && b[n-1] == 0 {
				return bad("cut in a number, or it is longer than it need be")
			}
			numbers[i], b = v, b[n:]
		}
		length := numbers[5]
		switch {
		case numbers[3] > uint64(1<<63-1):
			return bad("lasts is out of range")
		case numbers[4] > uint64(1<<63-1)/uint64(time.Millisecond):
			return bad("silent is out of range")
		case length > deltasync.MaxToken || length > uint64(len(b)):
			return bad("cut in a region")
		}
		h.Granted, h.Returned, h.Limit, h.Lasts = numbers[0], numbers[1], numbers[2], time.Duration(numbers[3])
		h.Silent = time.Duration(numbers[4]) * time.Millisecond
		h.Region, b = string(b[:length]), b[length:]
		d.Holdings = append(d.Holdings, h)
	}
	if silent && !slices.ContainsFunc(d.Holdings, isSilent) {
		return bad("of the format of the silent, and none is")
	}
	return d, nil
}
