// Package api serves the orchestrator's API: the gRPC service of proto/outbid/v1, the same service as REST/JSON, and
// the health and metrics pages, all on one listener. It authenticates callers, checks requests and passes them to
// Control, which makes the decisions.
package api
