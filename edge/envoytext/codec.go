// Package envoytext has a gRPC server take in what Envoy writes. Envoy copies the values of
// headers into its calls as clients wrote them, and HTTP lets those have any byte from 0x80
// on; but a text of protocol buffers is UTF-8, and Go's refuse a message with any other
// before its service is asked. As Envoy passes requests about which no service decides
// (failure_mode_deny: false), one byte would turn a client's limits off.
//
// So texts are taken in byte for byte, as edge/httpapi takes them from requests that it sees
// itself: the same client has one counter by both ways, and no two byte strings share one.
// A message that is no protocol buffer stays an error. What is answered has to be UTF-8 as
// before: Envoy refuses what is not.
//
// A message in which more stand than any call may have is refused before it is read: two
// bytes of it can be a hundred in memory.
package envoytext

import (
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// ServerOption has a server take in Envoy's messages whatever their texts are; others have
// to be UTF-8, as programs can escape what is not. All calls of the server are protocol
// buffers then, whatever their content-type says.
func ServerOption() grpc.ServerOption { return grpc.ForceServerCodecV2(Codec()) }

// Codec is that of ServerOption, for a server that looks at messages before it.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(protocodec.Name)} }

// codec is gRPC's own, reads plain calls itself and again what that one refuses, and refuses
// what would grow.
type codec struct{ encoding.CodecV2 }

var _ encoding.CodecV2 = codec{}

// Unread is a message that is taken in as it came, for who has it wait before it is read: that
// takes many times its bytes.
type Unread struct{ text mem.Buffer }

// Len is how many bytes it has.
func (u *Unread) Len() int { return u.text.Len() }

// Count is how often a field stands in it; what is no message ends the count.
func (u *Unread) Count(field protowire.Number) (n int) {
	for text := u.text.ReadOnlyData(); len(text) > 0; {
		number, _, size := protowire.ConsumeField(text)
		if size < 0 {
			return n
		}
		if number == field {
			n++
		}
		text = text[size:]
	}
	return n
}

// Read reads it, as the codec does.
func (u *Unread) Read(into proto.Message) error {
	return codec{encoding.GetCodecV2(protocodec.Name)}.Unmarshal(mem.BufferSlice{u.text}, into)
}

// Free is to be called once, when it is done with.
func (u *Unread) Free() { u.text.Free() }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if u, is := v.(*Unread); is {
		u.text = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	}
	if call, is := v.(*rlsv3.RateLimitRequest); is && data.Len() <= fewBytes {
		whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer whole.Free()
		if call.Reset(); plainCall(whole.ReadOnlyData(), call) {
			return nil
		}
	}
	in, is := v.(proto.Message)
	if is && data.Len() > fewBytes {
		whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer whole.Free()
		if err := bounded(whole.ReadOnlyData(), in.ProtoReflect().Descriptor()); err != nil {
			return err
		}
		data = mem.BufferSlice{whole}
	}
	err := c.CodecV2.Unmarshal(data, v)
	if err == nil || !is || !strings.HasPrefix(string(in.ProtoReflect().Descriptor().FullName()), "envoy.") {
		return err
	}
	text := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer text.Free()
	if Unmarshal(text.ReadOnlyData(), in) != nil {
		return err // of the two the one that gRPC's clients know
	}
	return nil
}
