// Package redlockprom provides metrics of package redlock for Prometheus. It is a module of its
// own:
//
//	go get github.com/d0720281/redlock/redlockprom@latest
//
// One option gives the metrics all of a Locker, of any number of Lockers:
//
//	metrics := redlockprom.New()
//	prometheus.MustRegister(metrics)
//	locker, err := redlock.New(masters, metrics.Option())
//
// Gauges are those of the Lockers that are open; they disappear with the last of these Lockers.
//
// Labels have few values: outcomes and causes are words of [redlock.Reason], masters are the
// addresses of the masters. The name of a resource is a label only if it is that of an election:
// the number of other resources is unbounded.
//
//	redlock_attempts_total{outcome}                 attempts to get a lock; granted, or why not: taken, split_vote, no_quorum, quarantine ...
//	redlock_wait_seconds{outcome}                   from the call of Lock or TryLock to its end
//	redlock_handovers_total                         leases that another caller of the process passed on, without an attempt
//	redlock_leases{mode}                            gauge: held at the moment, exclusive or shared
//	redlock_leader{election}                        gauge: 1 while this process leads an election in which it campaigns, else 0
//	redlock_waiting_calls                           gauge: calls of Lock and Do without a lease yet
//	redlock_quorum                                  gauge: 0 while too few masters have a vote, as far as is known
//	redlock_abandoned_total                         leases that the program dropped without Unlock
//	redlock_hold_seconds                            how long leases were held, until Unlock or loss
//	redlock_validity_seconds{at}                    left of a lease: at grant, after a renewal, at a failed renewal
//	redlock_renewals_total{outcome}                 renewed, or why not; Extend counts, too
//	redlock_losses_total{cause}                     leases that ended without Unlock: expired, suspended, quorum_lost, broken, max_hold ...
//	redlock_master_latency_seconds{master,outcome}  of one exchange; answered, or why not
//	redlock_master_up{master}                       gauge: 0 while the master does not answer and is probed
//	redlock_master_quarantine_seconds{master}       gauge: time until the master has a vote, as it reported
//	redlock_master_quarantines_total{master}        how often it went into quarantine
//	redlock_master_failures_total{master,reason}    how often it stopped answering
//	redlock_master_forgets_total{master}            keys of leases that it had lost
//	redlock_master_clock_steps_total{master}        steps of its clock
//	redlock_master_warnings_total{master}           reasons why locks are less safe than they should be; see the log
//	redlock_clock_standstill_seconds_total          for which the local clock stood still
//	redlock_events_dropped_total                    missing from all metrics above, as too many came at a time
//
// A master appears in the gauges with the first request to it. Before the first event, counters are 0
// for all outcomes that a rule of contrib/ asks for. contrib/ has a dashboard for Grafana and rules
// for alerts.
package redlockprom
