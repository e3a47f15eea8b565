// Package outbidv1 holds the messages and services of Outbid's API, ledger, bus, sessions and plugins, generated from
// the .proto files of this folder.
package outbidv1
