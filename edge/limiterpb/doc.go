// Package limiterpb is generated from limiter.proto: the service spillgate.v1.Limiter.
//
// To make it again, with protoc (apt: protobuf-compiler) and, at the versions that the
// files name at their top,
//
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
//	go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
//	go generate ./edge/limiterpb
package limiterpb

//go:generate protoc --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. limiter.proto
