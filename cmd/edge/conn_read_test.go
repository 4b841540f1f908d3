package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/spillgate/spillgate/test/proc"
)

// A message waits for no room that one before it has in the same packet, which gRPC gets first.
func TestNoMessageWaitsForItsOwnPacket(t *testing.T) {
	c := testCalls()
	c.roomWait = time.Minute
	const most = 4 << 20
	begins := func(f *http2.Framer, id uint32, size, sent int) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte("h"), EndHeaders: true})
		_ = f.WriteData(id, false, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), make([]byte, sent)...))
	}
	for range 2 { // with the first one these have an address's part, but for a little
		testConn(c).arrive(framed(true, func(f *http2.Framer) { begins(f, 1, most/3, 1000) }))
	}
	at := testConn(c)
	at.arrive(framed(true, func(f *http2.Framer) { begins(f, 1, most, most-100) }))
	packet := framed(false, func(f *http2.Framer) {
		_ = f.WriteData(1, false, make([]byte, 100))
		begins(f, 3, 2<<20, 1000)
	})
	from, to := net.Pipe()
	t.Cleanup(func() { from.Close(); to.Close() })
	at.Conn = to
	go func() { _, _ = from.Write(packet) }() // the end of the test ends it
	read := make([]byte, 32<<10)
	n, err := at.Read(read)
	if err != nil || n == len(packet) {
		t.Fatalf("%d of %d bytes come first, and %v: want those of the first message", n, len(packet), err)
	}
	if !at.read() { // gRPC has it, and has done with it
		t.Fatal("the first message is not done with")
	}
	for n < len(packet) {
		more, err := at.Read(read[n:min(len(read), n+700)])
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	if !bytes.Equal(read[:n], packet) || at.open[3].over {
		t.Errorf("the second message was refused, or other bytes came than were sent")
	}
}

// A message that cannot come on, as this edge has not read what came of it, is not slow, nor is
// the stream beside it; once more of it may come it is.
func TestChokedReportsAreNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCalls()
		at := testConn(c)
		at.arrive(framed(true, func(f *http2.Framer) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("h"), EndHeaders: true})
			message := append(binary.BigEndian.AppendUint32([]byte{0}, 1<<20), make([]byte, grpcWindow)...)[:grpcWindow]
			for ; len(message) > 0; message = message[16<<10:] {
				_ = f.WriteData(1, false, message[:16<<10])
			}
		}))
		cut := false
		u := &underway{Context: t.Context(), of: &c.quotas, cancel: func() { cut = true }}
		time.AfterFunc(c.patience, c.late(u, at))
		seconds := func(n int) (overdue bool) {
			for range n {
				time.Sleep(time.Second) // of virtual time
				overdue = overdue || at.tick(int(grpcLongPatience/time.Second))
			}
			synctest.Wait()
			return overdue
		}
		if overdue := seconds(30); overdue || cut {
			t.Errorf("nothing more may come: its connection is overdue: %t, the call was ended: %t", overdue, cut)
		}
		more := framed(false, func(f *http2.Framer) { _ = f.WriteWindowUpdate(1, 1<<20) })
		at.leave(more[:11])
		at.leave(more[11:])
		if overdue := seconds(10); overdue || !cut {
			t.Errorf("more may come, and does not: its connection is overdue: %t, the call was ended: %t", overdue, cut)
		}
		if !seconds(1) {
			t.Error("more may come, and does not: its connection is not overdue")
		}
	})
}

// What has come and waits in the kernel, as this edge is too busy to read on, is not slow.
func TestUnreadReportsAreNotSlow(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	at := testConn(testCalls())
	if at.Conn, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { at.Conn.Close() })
	begun := framed(true, func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("h"), EndHeaders: true})
	})
	read := make([]byte, len(begun)+1)
	if _, err := client.Write(append(begun, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(at, read[:len(begun)]); err != nil {
		t.Fatal(err)
	}
	proc.Until(t, 20*time.Second, func() error { // where the system says so
		if runtime.GOOS == "linux" && !unread(at.Conn) {
			return errors.New("nothing is unread")
		}
		return nil
	})
	ticks := func() (overdue bool) {
		for range 12 {
			overdue = overdue || at.tick(10)
		}
		return overdue
	}
	if runtime.GOOS == "linux" && ticks() {
		t.Error("it is overdue while a part of it is unread")
	}
	if _, err := at.Read(read); err != nil {
		t.Fatal(err)
	}
	if !ticks() {
		t.Error("it is not overdue once all that came was read")
	}
}

// framed is what a client says.
func framed(first bool, say func(f *http2.Framer)) []byte {
	var text bytes.Buffer
	if first {
		text.WriteString(http2.ClientPreface)
	}
	framer := http2.NewFramer(&text, nil)
	framer.AllowIllegalWrites = true
	say(framer)
	return text.Bytes()
}

// testConn is a connection that nobody reads from.
func testConn(c *calls) *conn {
	return &conn{place: place{Conn: nowhere{}, places: c.places, from: c.places.enter("192.0.2.1:1")}, calls: c, skip: preface, open: map[uint32]*incoming{}}
}

// nowhere is a connection that is closed.
type nowhere struct{ net.Conn }

func (nowhere) Close() error { return nil }
