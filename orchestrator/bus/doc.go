// Package bus is how the parts of Outbid reach each other: the embedded NATS server with JetStream, connections to it
// or to any other NATS, the subjects and what travels on them, the logs of trials, and the lease that says which
// orchestrator leads.
package bus
