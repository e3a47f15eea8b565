// Package limits bounds what comes in from outside and ends up in the ledger: every constant is in bytes of its encoded
// form unless it says otherwise. Whoever takes something in holds it against the limit, and names the field, its size
// and the limit where it is exceeded.
//
// A NATS server may take messages of no more than Message bytes. The limits of single items are below that, so that one
// that was accepted can be stored and sent whatever the server's max_payload is.
package limits

const (
	// Message is the smallest max_payload of a NATS server with which Outbid works.
	Message = 64 << 10
	// Config bounds the configuration of a trial, as JSON. Spec check computes the largest that a search space can give.
	Config = 60 << 10
	// Report bounds one report of a trial with its metrics and attributes.
	Report = 60 << 10
	// Note bounds a message to the user about a sweep or a trial; longer ones are cut.
	Note = 4 << 10
	// Detail bounds one line that says why something failed or was decided; longer ones are cut.
	Detail = 1000
	// Label bounds the value of one label.
	Label = 1024
	// LabelName bounds the name of a label.
	LabelName = 63
	// Labels bounds the names and values of all labels of a sweep together.
	Labels = 16 << 10
	// LabelCount is how many labels a sweep or a node may have.
	LabelCount = 64
	// Name bounds names that people give: clients, actors, metrics, functions.
	Name = 256
	// SecretName bounds the name of a secret.
	SecretName = 64
	// SecretValue bounds the value of a secret.
	SecretValue = 32 << 10
	// Secrets is how many secrets a tenant may have.
	Secrets = 100
	// SpecSecrets is how many variables of a sweep may be secrets.
	SpecSecrets = 32
	// spec is the largest spec of a sweep; see Spec.
	spec = 1 << 20
	// envelope is room for what surrounds an item in a message.
	envelope = 4 << 10
)

// Spec returns how many bytes the spec of a sweep may have, encoded, on a NATS server that takes messages of maxPayload
// bytes.
func Spec(maxPayload int) int { return min(spec, maxPayload-envelope) }
