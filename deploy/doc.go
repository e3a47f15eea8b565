// Package deploy contains deployment files for Outbid, and tests that keep them consistent with the code.
package deploy
