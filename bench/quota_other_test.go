//go:build !linux

package bench

import "testing"

func limit(b *testing.B, _ int, _ []int) { b.Skip("REDLOCK_QUOTA: control groups are of Linux") }
