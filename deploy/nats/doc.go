// Package nats holds the settings of a NATS server for Outbid, and the test that keeps them right.
package nats
