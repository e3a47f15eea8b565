package cli

import (
	"io"
)

// writeServerFile writes what other commands and scripts need to find a server.
func writeServerFile(path string, f serverFile) error {
	data, err := encodeJSON(f, true)
	if err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}
