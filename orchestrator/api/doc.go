// Package api is the door of the orchestrator: the gRPC service of proto/outbid/v1, the same as REST/JSON, and the
// pages for machines (health, metrics), all on one listener. It knows who calls, checks what they ask, and hands it to
// Control; it never decides.
package api
