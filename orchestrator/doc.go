// Package orchestrator contains no code. Its folders are the parts of the orchestrator, and its tests check the
// dependencies between them. docs/internals/architecture.md has a diagram and the purpose of each package.
//
// Most questions about the server's behaviour begin with one of these functions:
//
//   - which trials get devices in a round: policy/outbid/outbid.go Decide, the default policy
//   - which sweep wins an auction: policy/themis/auction/auction.go RunWithin
//   - what a winner of an auction pays: policy/themis/auction/payments.go payments
//   - when a lease ends: policy/themis/expire.go termEnd
//   - which devices of a node a trial gets: cluster/place.go Place
//   - how many steps each fork of a trial gets: fork/divide.go Divide
//   - which tuner a sweep has by default: spec/usual.go usualTuner
//   - when the default tuner stops a trial: tuner/auto/auto.go judge
//   - which configuration the default sampler tries next: tuner/sample/bayes.go propose
//   - why a sweep ends: control/sweeps/advance.go Advance
//   - whether a trial that failed runs again: control/trials/failures.go gaveUp
//   - which nodes a trial avoids: control/faults/avoid.go Avoids
//   - when a silent node is lost: control/nodes/nodes.go checkNode
//   - which checkpoints are deleted: state/checkpoints.go Droppable
//   - whether the checkpoints of forks are averaged: control/merging/consolidate.go consolidate
//   - whether an average is kept: control/merging/probation.go JudgeReport
//   - whether a tenant's quota allows a grant: control/tenants/quota.go BeyondQuota
//   - whether a token may make a call: api/access.go rules
//
// The pure packages, such as state, tuner and policy, take time and randomness as arguments. The same code therefore
// runs in production, in simulation and in replay.
package orchestrator
