// Package fencing has the code that docs/fencing.md shows, and the tests of package fence with
// SQLite, PostgreSQL, MariaDB and Redis. It is a module of its own so that the library does not
// depend on a database.
package fencing
