package limiterpb_test

import (
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/spillgate/spillgate/edge/limiterpb"
)

// The code is that of the file beside it.
func TestGeneratedFromTheProto(t *testing.T) {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{}}
	files, err := compiler.Compile(t.Context(), "limiter.proto")
	if err != nil {
		t.Fatal(err)
	}
	written, generated := protodesc.ToFileDescriptorProto(files[0]), protodesc.ToFileDescriptorProto(limiterpb.File_limiter_proto)
	written.SourceCodeInfo = nil
	if !proto.Equal(written, generated) {
		t.Errorf("limiter.proto says\n%v\nand the generated code\n%v\n(go generate ./edge/limiterpb)", written, generated)
	}
}
