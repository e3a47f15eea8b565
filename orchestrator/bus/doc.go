// Package bus connects the parts of Outbid: the embedded NATS server with JetStream, connections to it or another NATS,
// the subjects and messages, the logs of trials, and the lease that selects the leader.
package bus
