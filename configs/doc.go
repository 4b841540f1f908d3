// Package configs reads what operators write: the rules of the namespaces
// (YAML, read strictly, every mistake with its line and column) and the
// settings of the two processes (flag over environment over file over default).
//
// Nothing is half accepted: a set of rules or settings is taken whole or not
// at all, and all of its mistakes are told at once. viper stays inside this
// package. The folder also holds the files that ship with Spillgate; tests
// load each of them.
package configs
