// Package etcd compares the library with the mutex of etcd's client. etcd is one replicated store and no set of
// independent masters. Its server brings many modules, so the comparison is a module of its own. ../README.md
// says how to run it and what it measured.
package etcd
