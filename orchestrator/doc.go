// Package orchestrator contains no code. Its folders are the parts of the orchestrator, and its tests check the
// dependencies between them. docs/internals/architecture.md has a diagram.
//
//   - cli is the command line; it connects the parts and is the only one that main imports.
//   - api serves gRPC and REST; it authenticates clients and passes commands to control. It makes no decisions.
//   - control is the loop: its inputs are commands, reports and ticks; its outputs are events and orders.
//   - ledger appends and reads events; it is the only source of truth.
//   - state folds events into sweeps, trials, leases and nodes.
//   - cluster matches the needs of a trial with the devices of nodes.
//   - tuner decides what is trained and for how long; policy decides which trial gets which device.
//   - bus carries messages over NATS; objects keeps checkpoints; checkpoint reads and writes safetensors.
//
// The packages state, cluster, tuner, curve, agent, policy and fork are deterministic: they take values and return
// values, and time and randomness are arguments. The same code therefore runs in production, in simulation and in
// replay.
package orchestrator
