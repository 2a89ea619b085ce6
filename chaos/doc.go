// Package chaos breaks masters and clients while locks are held, and has a checker see
// whether the library keeps its promises. Its README says what is covered, and how to
// run it. Nothing here is for use outside of tests.
package chaos
