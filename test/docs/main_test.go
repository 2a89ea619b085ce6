// Package docs_test checks what the documentation says: names of tests, sections, links, code, and what packages import.
package docs_test

import (
	"log"
	"os"
	"testing"

	"github.com/d0720281/redlock/internal/redistest"
)

// TestMain runs the tests in the root of the module.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		log.Fatal(err)
	}
	os.Exit(redistest.Again(m).Run())
}
