// Package redlockotel provides metrics and traces of package redlock for OpenTelemetry. It is a
// module of its own:
//
//	go get github.com/d0720281/redlock/redlockotel@latest
//
// An option and a tracer are given to the Locker:
//
//	metrics, err := redlockotel.Metrics()
//	if err != nil { ... }
//	locker, err := redlock.New(masters, metrics, redlock.WithTracer(redlockotel.Tracer()))
//
// Without options it uses the global providers of package otel.
//
// # Metrics
//
//	redlock.attempts             {attempt}     redlock.outcome                 attempts to get a lock; granted, or why not
//	redlock.wait.duration        s             redlock.outcome                 from the call of Lock or TryLock to its end
//	redlock.handovers            {lease}                                       passed on inside the process, without an attempt
//	redlock.leases               {lease}       redlock.mode                    gauge: held at the moment, exclusive or shared
//	redlock.leader               1             redlock.election                gauge: 1 while this process leads an election in which it campaigns, else 0
//	redlock.waiting              {call}                                        gauge: calls of Lock and Do without a lease yet
//	redlock.quorum               1                                             gauge: 0 while too few masters have a vote, as far as is known
//	redlock.abandoned            {lease}                                       leases that the program dropped without Unlock
//	redlock.hold.duration        s                                             how long leases were held
//	redlock.validity             s             redlock.at                      left at grant, after a renewal, at a failed renewal
//	redlock.renewals             {renewal}     redlock.outcome                 renewed, or why not
//	redlock.losses               {lease}       redlock.cause                   leases that ended without Unlock
//	redlock.master.duration      s             server.*, redlock.outcome       one exchange with a master; answered, or why not
//	redlock.master.up            1             server.*                        gauge: 0 while the master does not answer
//	redlock.master.quarantine    s             server.*                        gauge: time until the master has a vote, as it reported
//	redlock.master.failures      {failure}     server.*, error.type            how often it stopped answering
//	redlock.master.quarantines   {quarantine}  server.*                        how often it went into quarantine
//	redlock.master.forgets       {key}         server.*                        keys of leases that it had lost
//	redlock.master.clock_steps   {step}        server.*                        steps of its clock
//	redlock.master.warnings      {warning}     server.*                        reasons why locks are less safe; see the log
//	redlock.clock.standstill     s                                             for which the local clock stood still
//	redlock.events.dropped       {event}                                       missing from all metrics above
//
// Gauges are those of the Lockers that are open; they disappear with the last of these Lockers. Before
// the first event, counters are 0 for all outcomes that a rule of contrib/ asks for.
//
// Outcomes and causes are words of [redlock.Reason]; server.address and server.port are those of
// the master. The name of a resource is an attribute of a metric only if it is that of an election:
// the number of other resources is unbounded.
//
// # Traces
//
// Lock, LockAny, TryLock, Extend, Unlock and Downgrade are spans redlock.Lock and so on, of kind
// client, and children of the span in the context of the call. A [redlock.Locker.Do] is a Lock and an
// Unlock.
// Attributes are redlock.outcome, redlock.fence, redlock.validity in seconds, error.type if the
// call failed, and with [WithResource] redlock.resource. A failed call has an event redlock.master
// for the answer of each master. A TryLock of a resource that another holder has is no error.
package redlockotel
