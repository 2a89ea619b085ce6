// Package telemetry has what the metrics of the modules redlockprom and redlockotel have in common.
package telemetry

// Outcomes that are no reason for a failure; for one there is redlock.Reason.
const (
	Granted  = "granted"  // of an attempt or a call
	Renewed  = "renewed"  // of a renewal
	Answered = "answered" // of an exchange with a master
)

// When the validity of a lease was looked at.
const (
	AtGrant   = "grant"
	AtRenewal = "renewal"
	AtFailure = "failure" // of a renewal
)

// Bounds of histograms, in seconds.
var (
	Latency  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	Wait     = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	Hold     = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	Validity = []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800, 7200}
)
