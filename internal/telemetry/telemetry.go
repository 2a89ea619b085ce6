// Package telemetry has the metrics of the modules redlockprom and redlockotel: the table of them, and which event or
// gauge is told to which. The modules are sinks.
package telemetry

// Outcomes that are no reason for a failure; for one there is redlock.Reason.
const (
	Granted  = "granted"  // of an attempt or a call
	Renewed  = "renewed"  // of a renewal
	Answered = "answered" // of an exchange with a master
)

// Kind is the kind of a metric.
type Kind int

// The kinds. Gauges are read at each collection.
const (
	Counter Kind = iota
	Histogram
	Gauge
	Sum // a gauge whose values add up over processes
)

// Labels whose values are not words of Outcomes, modes, or moments.
const (
	Master = "master" // the address of a master
	Reason = "reason" // why a master failed
)

// Metric is a row of Table.
type Metric struct {
	Prometheus    string // the name, behind "redlock_"
	OpenTelemetry string // the name, behind "redlock."
	Kind          Kind
	Unit          string // "s", "1", or what is counted in braces
	Help          string
	Labels        []string
	Bounds        []float64 // of a histogram of seconds
}

// ID is the place of a metric in Table.
type ID int

const (
	attempts ID = iota
	wait
	handovers
	leases
	leader
	waiting
	quorum
	abandoned
	hold
	validity
	renewals
	losses
	latency
	up
	quarantine
	quarantines
	failures
	forgets
	clockSteps
	warnings
	standstill
	dropped
)

// Table has all metrics.
var Table = [...]Metric{
	attempts:    {"attempts_total", "attempts", Counter, "{attempt}", "Attempts to be granted a lease by the masters.", []string{"outcome"}, nil},
	wait:        {"wait_seconds", "wait.duration", Histogram, "s", "Time from the call of Lock or TryLock to its end.", []string{"outcome"}, waitBounds},
	handovers:   {"handovers_total", "handovers", Counter, "{lease}", "Leases handed over by another caller of the process.", nil, nil},
	leases:      {"leases", "leases", Sum, "{lease}", "Leases that are held.", []string{"mode"}, nil},
	leader:      {"leader", "leader", Sum, "1", "Whether this process leads an election in which it campaigns.", []string{"election"}, nil},
	waiting:     {"waiting_calls", "waiting", Sum, "{call}", "Calls of Lock and Do that have no lease yet.", nil, nil},
	quorum:      {"quorum", "quorum", Gauge, "1", "Whether enough masters have a vote.", nil, nil},
	abandoned:   {"abandoned_total", "abandoned", Counter, "{lease}", "Leases that the program dropped without Unlock.", nil, nil},
	hold:        {"hold_seconds", "hold.duration", Histogram, "s", "How long leases were held.", nil, holdBounds},
	validity:    {"validity_seconds", "validity", Histogram, "s", "Validity left of a lease.", []string{"at"}, validityBounds},
	renewals:    {"renewals_total", "renewals", Counter, "{renewal}", "Rounds of renewal, by the library or by Extend.", []string{"outcome"}, nil},
	losses:      {"losses_total", "losses", Counter, "{lease}", "Leases that ended without having been released.", []string{"cause"}, nil},
	latency:     {"master_latency_seconds", "master.duration", Histogram, "s", "Time of one exchange with a master.", []string{Master, "outcome"}, latencyBounds},
	up:          {"master_up", "master.up", Gauge, "1", "Whether a master answers.", []string{Master}, nil},
	quarantine:  {"master_quarantine_seconds", "master.quarantine", Gauge, "s", "For how long yet a master has no vote.", []string{Master}, nil},
	quarantines: {"master_quarantines_total", "master.quarantines", Counter, "{quarantine}", "How often a master came into quarantine.", []string{Master}, nil},
	failures:    {"master_failures_total", "master.failures", Counter, "{failure}", "How often a master stopped answering.", []string{Master, Reason}, nil},
	forgets:     {"master_forgets_total", "master.forgets", Counter, "{key}", "Keys of leases that a master had lost.", []string{Master}, nil},
	clockSteps:  {"master_clock_steps_total", "master.clock_steps", Counter, "{step}", "Steps of a master's clock.", []string{Master}, nil},
	warnings:    {"master_warnings_total", "master.warnings", Counter, "{warning}", "Warnings about a master.", []string{Master}, nil},
	standstill:  {"clock_standstill_seconds_total", "clock.standstill", Counter, "s", "Time for which the local clock stood still.", nil, nil},
	dropped:     {"events_dropped_total", "events.dropped", Counter, "{event}", "Events that are missing from these metrics.", nil, nil},
}

// Bounds of histograms, in seconds.
var (
	latencyBounds  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	waitBounds     = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBounds     = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	validityBounds = []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 1800, 7200}
)

// Sink keeps counters and histograms. It is safe for concurrent use. The values of labels are in the order of the
// table.
type Sink interface {
	Begin(m ID, labels ...string)             // makes a series without a value: a counter is 0
	Record(m ID, v float64, labels ...string) // adds to a counter, or observes for a histogram
}
