package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

// Revoke takes rights back, for an operator: the edges are answered no more, so that what
// they hold is free when their leases have ended and what they spent has left the window.
// Whoever has a lane is fenced off, and reads it as he takes it anew. It stays so until
// Restore, or the log is lost, or begun anew with another number of lanes. Where an error is
// returned it may be done in some lanes; it is harmless to call Revoke again. Errors wrap
// escrow.ErrLog.
func (r *Rights) Revoke(ctx context.Context, who escrow.Revoked) error {
	return r.inLanes(who, func(lane int) error {
		_, err := r.revoke(ctx, "revoke", lane, who)
		return err
	})
}

// Restore undoes Revoke of the same.
func (r *Rights) Restore(ctx context.Context, who escrow.Revoked) error {
	return r.inLanes(who, func(lane int) error {
		_, err := r.revoke(ctx, "restore", lane, who)
		return err
	})
}

// Free does what Revoke does, and has the log forget what they hold, so that others are
// granted it at once: strict limits may be exceeded by as much, which it returns.
func (r *Rights) Free(ctx context.Context, who escrow.Revoked) (freed uint64, err error) {
	err = r.inLanes(who, func(lane int) (err error) {
		var n uint64
		for range 5 { // an aggregator may take the lane in between
			if n, err = r.freeLane(ctx, lane, who); !errors.Is(err, escrow.ErrFenced) {
				break
			}
		}
		freed += n
		return err
	})
	return freed, err
}

func (r *Rights) freeLane(ctx context.Context, lane int, who escrow.Revoked) (freed uint64, err error) {
	token, err := r.revoke(ctx, "revoke", lane, who)
	if err != nil {
		return 0, err
	}
	deposits, err := r.Deposits(ctx, lane)
	if err != nil {
		return 0, err
	}
	var changed []escrow.Deposit
	for _, d := range deposits {
		kept := make([]escrow.Holding, 0, len(d.Holdings))
		for _, h := range d.Holdings {
			if who.Of(h.Node, d.Key) {
				freed += h.Out()
			} else {
				kept = append(kept, h)
			}
		}
		if len(kept) < len(d.Holdings) {
			changed = append(changed, escrow.Deposit{Key: d.Key, Version: d.Version + 1, Holdings: kept})
		}
	}
	return freed, r.Commit(ctx, lane, token, changed)
}

// inLanes calls do with the lanes that a revocation is about.
func (r *Rights) inLanes(who escrow.Revoked, do func(lane int) error) error {
	if who.Key != 0 {
		return do(who.Key.Lane(r.count))
	}
	for lane := range r.count {
		if err := do(lane); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rights) revoke(ctx context.Context, verb string, lane int, who escrow.Revoked) (token uint64, err error) {
	token = max(1, rand.Uint64())
	packed := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, who.Node), uint64(who.Key))
	if _, err := r.call(ctx, lane, verb, token, packed, escrow.MostRevoked); err != nil {
		return 0, logFailed(fmt.Sprintf("%s rights of lane %d", verb, lane), err)
	}
	return token, nil
}

// Deposits reads all that the log of a lane has, in the order of keys. What is written
// meanwhile may be in it or not. Errors wrap escrow.ErrLog.
func (r *Rights) Deposits(ctx context.Context, lane int) ([]escrow.Deposit, error) {
	byKey := map[deltasync.Key]escrow.Deposit{}
	for cursor := uint64(0); ; {
		fields, next, err := r.client.HScan(ctx, r.name(lane), cursor, "", 1000).Result()
		if err != nil {
			return nil, logFailed(fmt.Sprintf("read the log of lane %d", lane), err)
		}
		for i := 0; i+1 < len(fields); i += 2 {
			if len(fields[i]) != 8 {
				continue // of the lane's head
			}
			key := deltasync.Key(binary.BigEndian.Uint64([]byte(fields[i])))
			if r.isOver(fields[i+1]) {
				continue
			}
			if byKey[key], err = parseDeposit(key, fields[i+1]); err != nil {
				return nil, logFailed(fmt.Sprintf("read the log of lane %d", lane), err)
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	out := make([]escrow.Deposit, 0, len(byKey))
	for _, d := range byKey {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b escrow.Deposit) int { return cmp.Compare(a.Key, b.Key) })
	return out, nil
}

// isOver says that what is stored may be forgotten.
func (r *Rights) isOver(stored string) bool {
	if len(stored) < dueBytes {
		return false
	}
	due := binary.BigEndian.Uint64(append(make([]byte, 8-dueBytes), stored[:dueBytes]...))
	return due < uint64(r.now().UnixMilli())
}

// parseRevoked reads whose rights were taken back.
func parseRevoked(reply any) (out []escrow.Revoked, err error) {
	packed, ok := reply.(string)
	if !ok || len(packed)%16 != 0 {
		return nil, fmt.Errorf("%w: revoked: %.64q", errReply, reply)
	}
	for b := []byte(packed); len(b) > 0; b = b[16:] {
		out = append(out, escrow.Revoked{Node: binary.BigEndian.Uint64(b), Key: deltasync.Key(binary.BigEndian.Uint64(b[8:]))})
	}
	return out, nil
}
