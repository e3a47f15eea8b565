package claim

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
)

// address returns the path of a file, because this system does not have an abstract namespace. A file that a killed
// process left is removed first.
func address(what string) string {
	sum := sha256.Sum256([]byte(what))
	path := filepath.Join(os.TempDir(), "outbid-"+hex.EncodeToString(sum[:8]))
	if conn, err := net.Dial("unix", path); err == nil {
		_ = conn.Close() // the holder is alive
	} else {
		_ = os.Remove(path)
	}
	return path
}
