// Package chaos breaks masters and clients while locks are held, and a checker decides
// whether the library keeps its promises. Its README says what is covered, and how to
// run it. The package is for tests only.
package chaos
