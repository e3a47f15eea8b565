// Package identity manages identities on the bus: the keys of a cluster, the NATS user of each worker and its
// permissions, and the signatures of orders, uplinks and functions.
//
// All keys are ed25519 keys in NATS's format (nkeys). The operator's key signs the account, the account's key signs
// users, and a separate key signs orders and functions. A worker creates its key itself and stores it only on its own
// disk; the server knows only the public part.
package identity
