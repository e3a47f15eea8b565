// Package limits defines limits for data from outside that ends up in the ledger. Every constant is in bytes of the
// encoded form unless it says otherwise. Code that accepts data checks it, and names the field, its size and the limit
// in the error.
//
// A NATS server may accept messages of only Message bytes. The limits of single items are lower, so that every accepted
// item can be stored and sent with any max_payload of the server.
package limits

import "time"

const (
	// Message is the smallest max_payload of a NATS server that Outbid supports.
	Message = 64 << 10
	// Config limits the configuration of a trial, as JSON. The check of a spec computes the largest one of a search
	// space.
	Config = 60 << 10
	// Report limits one report of a trial with its metrics and attributes.
	Report = 60 << 10
	// Note limits a message to the user about a sweep or a trial; longer ones are truncated.
	Note = 4 << 10
	// Detail limits a line with the reason of a failure or decision; longer ones are truncated.
	Detail = 1000
	// Label limits the value of a label.
	Label = 1024
	// LabelName limits the name of a label.
	LabelName = 63
	// Labels limits the names and values of all labels of a sweep together.
	Labels = 16 << 10
	// LabelCount is the maximum number of labels of a sweep or a node.
	LabelCount = 64
	// Description limits the description of a sweep.
	Description = 2000
	// Tag limits a tag of a sweep.
	Tag = 64
	// TagCount is the maximum number of tags of a sweep.
	TagCount = 20
	// Name limits names that users choose: clients, actors, metrics, functions.
	Name = 256
	// SecretName limits the name of a secret.
	SecretName = 64
	// SecretValue limits the value of a secret.
	SecretValue = 32 << 10
	// Secrets is the maximum number of secrets of a tenant.
	Secrets = 100
	// SpecSecrets is the maximum number of a sweep's variables that may be secrets.
	SpecSecrets = 32
	// Tokens is the maximum number of API tokens of a tenant.
	Tokens = 100
	// AuditBytes limits the stream of the audit; the oldest records are deleted first.
	AuditBytes = 256 << 20
	// AuditAge is how long records of the audit are kept.
	AuditAge = 365 * 24 * time.Hour
	// AuditPage is the maximum number of records on a page of the audit.
	AuditPage = 1000
	// spec is the largest spec of a sweep; see Spec.
	spec = 1 << 20
	// envelope is the space for the rest of a message around an item.
	envelope = 4 << 10
)

// Spec returns the maximum size of a sweep's encoded spec for a NATS server that accepts messages of maxPayload bytes.
func Spec(maxPayload int) int { return min(spec, maxPayload-envelope) }
