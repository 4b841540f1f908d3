package main

import (
	_ "github.com/bufbuild/protocompile"
	_ "github.com/dgraph-io/ristretto/v2"
	_ "github.com/dunglas/httpsfv"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/goccy/go-yaml"
	_ "github.com/goccy/go-yaml/parser"
	_ "github.com/nats-io/nats-server/v2/server"
	_ "github.com/nats-io/nats.go"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/viper"
	_ "google.golang.org/protobuf/encoding/protowire"
	_ "google.golang.org/protobuf/types/dynamicpb"
)

func main() {}
