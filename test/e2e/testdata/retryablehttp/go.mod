// What test/e2e has go-retryablehttp ask with: a module of its own, so that it is no
// dependency of ours.
module github.com/spillgate/spillgate/test/e2e/testdata/retryablehttp

go 1.26

require github.com/hashicorp/go-retryablehttp v0.7.8

require github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
