// Package deploy holds what runs Outbid on machines, and the tests that keep it in step with the code.
package deploy
