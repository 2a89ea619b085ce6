package guard_test

import (
	"testing"

	"github.com/d0720281/redlock/internal/locktest"
)

// What is promised of masters and clients that change, told in testdata.
//
// Source: ALGORITHM section 8.
func TestQuarantineScenarios(t *testing.T) { locktest.Scenarios(t, "testdata/quarantine.txt") }
func TestAgreementScenarios(t *testing.T)  { locktest.Scenarios(t, "testdata/agreement.txt") }
func TestBootstrapScenarios(t *testing.T)  { locktest.Scenarios(t, "testdata/bootstrap.txt") }
