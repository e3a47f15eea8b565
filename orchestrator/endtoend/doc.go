// Package endtoend holds no code but tests: the built binary, real NATS, real processes, and what goes wrong with them.
package endtoend
