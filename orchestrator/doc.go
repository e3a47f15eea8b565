// Package orchestrator holds no code: its folders are the rooms of the orchestrator, and its tests hold the walls
// between them. docs/internals/architecture.md draws the picture.
//
//   - cli is the command line; it wires the rooms together and is the only one that main sees.
//   - api speaks gRPC and REST; it checks who asks and hands commands to control. It never decides.
//   - control is the loop: commands, reports and ticks in; events and orders out.
//   - ledger appends and reads events; it is the only truth.
//   - state folds events into sweeps, trials, leases and nodes.
//   - cluster matches what a trial needs with what nodes have.
//   - tuner decides what is trained and for how long; policy decides who gets which device.
//   - bus carries messages over NATS; objects keeps checkpoints; checkpoint reads and writes safetensors.
//
// The rooms state, cluster, tuner, curve, agent, policy and fork are pure: they take values and return values, time
// and randomness come in as arguments. So the same code runs live, in simulation and in replay.
package orchestrator
