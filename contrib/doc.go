// Package contrib has files for running masters and jobs: see README.md. There is nothing to
// import here; the module has tests of these files.
package contrib
