// Package fence compares fencing tokens at the store: in a transaction of PostgreSQL, MySQL,
// MariaDB or SQLite, and in Redis. A service passes tokens on in the headers of its requests.
//
// A holder can be paused past the end of its lease, and write when another holder has the
// resource. The store can refuse such a write, and no lock can.
//
// # Promise
//
// The store keeps the largest token that a writer has presented for each resource. A call
// with a smaller token fails with [ErrFenced]. A transaction of [Tx] holds the row of its
// resource until it ends. So no older holder reads or writes between a read of the transaction
// and its commit, and no update is lost. If a write depends on a read of an earlier transaction,
// both transactions are made by Tx, with the same lease.
//
// # Limits
//
// Every writer of the data presents its token. One path without a token makes the others
// worthless. A token says nothing about the order of goroutines that share a lease. A value
// that was read in a transaction that failed must not be written later, since the store has not kept
// its token. A row with a token lives as long as the data: do not delete it. A statement that
// commits by itself, like a change of a schema in MySQL, ends the protection of Tx. So does a deadlock
// (1213) in MySQL: it rolls the token back, too, and what the function executes after it commits by
// itself. So the function returns that error. A fail-over to a replica without the last transactions
// loses their tokens together with them.
//
// # Isolation levels
//
// [Tx] loses no update at any level. At REPEATABLE READ and SERIALIZABLE, PostgreSQL fails with a
// serialization failure (40001) where it would otherwise wait and compare. InnoDB can report a
// deadlock (1213), and SQLite that the database is busy. None of them is ErrFenced, and the same
// lease may try again. [Claim] and [ClaimRow] must be the first statement of their transaction. After a
// read they lose updates at READ COMMITTED, and in MySQL also at REPEATABLE READ. The table in
// docs/fencing.md has what was measured.
//
// # Errors
//
//	error            the transaction of Tx       what to do
//	ErrFenced        is rolled back              stop: the lease is over
//	ErrConfig        has not begun, or is        correct the program
//	                 rolled back
//	of the function  is rolled back              as the program decides
//	of a statement   is rolled back              try again with the same lease, if it is held
//	of the commit    is rolled back, or          read what is there; or make the work one
//	                 committed if the answer     that may be done twice
//	                 was lost
//
// [Claim] and [ClaimRow] leave the transaction to the caller, who rolls it back after an error. Source: ALGORITHM section 7, "The store".
package fence

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/d0720281/redlock/internal/reason"
)

var (
	// ErrFenced means that a later holder has used the store: the lease of the caller is over. No later
	// call with the same token succeeds. A [*FencedError] has both tokens.
	ErrFenced = errors.New("fence: a later holder has used the store")

	// ErrConfig is redlock.ErrConfig: an argument cannot be right. It is nil, an empty resource, a token below 1, a
	// dialect that does not exist, a reader's token for a write, a pipeline in place of a client, a header
	// without the token, or, for the table of PostgreSQL, a name that is not UTF-8 or has a zero byte. The
	// store was not asked. A [Column] whose fence does not keep a token is one, too, after it was asked.
	ErrConfig = reason.Config
)

// A FencedError has the token of the caller and the larger one that the store had seen. It
// matches [ErrFenced].
type FencedError struct {
	Resource string // of the lease
	Token    int64  // of the caller
	Seen     int64  // the largest token of a writer
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("%v: token %d of %q is older than %d", ErrFenced, e.Token, e.Resource, e.Seen)
}

// Is reports whether target is [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// A Lease tells the store what it has to know of a lease. A *redlock.Lease is one. So is a [Token]. A
// lease of package several or semaphore has one in each of its Parts.
//
// A Lease with a method Shared() bool that returns true is that of a reader. The store compares the
// token of a reader, and does not keep it: several readers have the same one. Source: ALGORITHM section 12, "Tokens".
type Lease interface {
	Resource() string
	Fence() int64
}

// A Token tells a service of a lease of another process. [NewToken], [FromHeader] and
// [PermitsFromHeader] make one. It is a [Lease], safe for concurrent use.
type Token struct {
	resource string
	fence    int64
	shared   bool
}

// NewToken returns the token of a writer: for a program that has got it from elsewhere, as from
// $REDLOCK_FENCE of the command redlock. A wrong argument is an [ErrConfig] at the first use.
func NewToken(resource string, fence int64) Token { return Token{resource: resource, fence: fence} }

// Resource returns the name of the resource.
func (t Token) Resource() string { return t.resource }

// Fence returns the number.
func (t Token) Fence() int64 { return t.fence }

// Shared reports whether the token is that of a reader.
func (t Token) Shared() bool { return t.shared }

// mode is what the header and the script of Redis call a reader or a writer.
func (t Token) mode() string {
	if t.shared {
		return "shared"
	}
	return "exclusive"
}

// compare returns nil unless the store has seen a larger token.
func (t Token) compare(seen int64) error {
	if seen > t.fence {
		return &FencedError{Resource: t.resource, Token: t.fence, Seen: seen}
	}
	return nil
}

// in adds the name of the called function to an ErrConfig.
func in(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: fence: %s: %s", ErrConfig, name, strings.TrimPrefix(err.Error(), ErrConfig.Error()+": "))
}

func isNil(what string) error { return fmt.Errorf("%w: the %s is nil", ErrConfig, what) }

// isNone reports whether a value is nil, or a pointer that is.
func isNone(value any) bool {
	v := reflect.ValueOf(value)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// tokenOf returns what a lease is now. It reads the number before Shared: a lease that becomes a
// reader's in between is one, with the smaller number of its time as a writer.
func tokenOf(lease Lease) (Token, error) {
	if isNone(lease) {
		return Token{}, isNil("lease")
	}
	t := Token{resource: lease.Resource(), fence: lease.Fence()}
	if reader, may := lease.(interface{ Shared() bool }); may {
		t.shared = reader.Shared()
	}
	switch {
	case t.resource == "":
		return t, fmt.Errorf("%w: a resource without a name", ErrConfig)
	case t.fence < 1:
		return t, fmt.Errorf("%w: token %d of %q is not positive", ErrConfig, t.fence, t.resource)
	}
	return t, nil
}

// tokensOf returns the tokens of leases in the order of their resources, in which all
// transactions lock them. Of one resource the largest token is the first, so that a smaller one is refused.
func tokensOf[L Lease](leases []L) ([]Token, error) {
	tokens := make([]Token, 0, len(leases))
	for _, lease := range leases {
		t, err := tokenOf(lease)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%w: no lease", ErrConfig)
	}
	slices.SortFunc(tokens, func(a, b Token) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(b.fence, a.fence))
	})
	return tokens, nil
}
