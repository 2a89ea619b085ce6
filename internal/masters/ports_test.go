package masters

import "testing"

// Two processes do not share ports. To claim all blocks would disturb tests beside this one.
func TestClaim(t *testing.T) {
	one, two := claim(), claim()
	for _, b := range []*block{one, two} {
		if b.claimed != nil {
			t.Cleanup(func() { _ = b.claimed.Close() })
		}
	}
	if one.claimed == nil || two.claimed == nil {
		t.Skip("other processes have nearly all blocks")
	}
	if one.first < two.first+two.size && two.first < one.first+one.size {
		t.Errorf("got %d ports from %d, and %d from %d; want them apart", one.size, one.first, two.size, two.first)
	}
}
