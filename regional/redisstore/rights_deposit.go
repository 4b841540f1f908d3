package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

// A deposit is stored as
//
//	deposit = due:6 format:1 version:8 holding*
//	holding = holder:8 granted returned limit lasts length region:length
//
// where due, which the script writes, is when it may be forgotten, in milliseconds
// since 1970; format is 1; the numbers with a width are big endian and the others
// unsigned varints, none longer than it need be; lasts is in nanoseconds.

const (
	depositFormat = 1
	dueBytes      = 6
	versionBytes  = 1 + 8 // with the format
)

// appendDeposit packs a deposit, without due.
func appendDeposit(dst []byte, d *escrow.Deposit) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, depositFormat), d.Version)
	for i := range d.Holdings {
		h := &d.Holdings[i]
		dst = binary.BigEndian.AppendUint64(dst, h.Holder)
		for _, v := range []uint64{h.Granted, h.Returned, h.Limit, uint64(h.Lasts), uint64(len(h.Region))} {
			dst = binary.AppendUvarint(dst, v)
		}
		dst = append(dst, h.Region...)
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
	if b = b[dueBytes:]; b[0] != depositFormat {
		return bad(fmt.Sprintf("format %d, want %d; a later build may have written it", b[0], depositFormat))
	}
	d := escrow.Deposit{Key: key, Version: binary.BigEndian.Uint64(b[1:])}
	for b = b[versionBytes:]; len(b) > 0; {
		var h escrow.Holding
		if len(b) < 8 {
			return bad("cut in a holder")
		}
		h.Holder, b = binary.BigEndian.Uint64(b), b[8:]
		var numbers [5]uint64
		for i := range numbers {
			v, n := binary.Uvarint(b)
			if n <= 0 || n > 1 && b[n-1] == 0 {
				return bad("cut in a number, or it is longer than it need be")
			}
			numbers[i], b = v, b[n:]
		}
		length := numbers[4]
		switch {
		case numbers[3] > uint64(1<<63-1):
			return bad("lasts is out of range")
		case length > deltasync.MaxToken || length > uint64(len(b)):
			return bad("cut in a region")
		}
		h.Granted, h.Returned, h.Limit, h.Lasts = numbers[0], numbers[1], numbers[2], time.Duration(numbers[3])
		h.Region, b = string(b[:length]), b[length:]
		d.Holdings = append(d.Holdings, h)
	}
	return d, nil
}
