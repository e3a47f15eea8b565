// Package identity says who is who on the bus: the keys of a cluster, the user that NATS knows each worker by, what
// that user may publish and read, and the signatures under orders, uplinks and functions.
//
// Everything rests on ed25519 keys in NATS's own form (nkeys). The operator's key signs the account, the account's key
// signs users, and a key of its own signs orders and functions. A worker makes its key itself and tells nobody but its
// own disk; the server knows the public half.
package identity
