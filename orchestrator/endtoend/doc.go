// Package endtoend contains only tests: of the built binary, with real NATS and real processes, and with their
// failures.
package endtoend
