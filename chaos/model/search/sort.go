package search

import "hash/maphash"

var sortSeed = maphash.MakeSeed()

// Sort puts the parts of a state that are alike, such as its nodes, into one order, whatever
// order they had. There are at most eight. It is for Canon. The order is that of their hashes,
// which differs from run to run. Two parts that differ and have the same hash stay as they were.
// The search visits such a state twice, and overlooks nothing.
func Sort[P comparable](parts []P) {
	var hashes [8]uint64
	for i, p := range parts {
		h := maphash.Comparable(sortSeed, p)
		j := i
		for ; j > 0 && h < hashes[j-1]; j-- {
			parts[j], hashes[j] = parts[j-1], hashes[j-1]
		}
		parts[j], hashes[j] = p, h
	}
}
