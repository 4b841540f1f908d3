// Package e2e tests Spillgate from where its users stand: behind the proxies that
// they run, set up by the files of deploy/, with clients that know nothing of it.
package e2e
