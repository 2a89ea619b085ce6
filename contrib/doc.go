// Package contrib is what it takes to run masters and jobs: see README.md. There is nothing to
// import here; the module has tests of the files beside it.
package contrib
