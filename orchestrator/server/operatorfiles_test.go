package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Keys are warned about if everyone can read or replace them. A Secret's volume, which everyone may list, is none of these.
func TestOpenSecrets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dir, file os.FileMode
		want      []string
	}{
		"private":                           {0o700, 0o600, nil},
		"a private directory of open files": {0o700, 0o644, nil},
		"a Secret's volume":                 {0o777 | os.ModeSticky, 0o440, nil},
		"listed, but not read":              {0o755, 0o600, nil},
		"read":                              {0o755, 0o644, []string{"keys/orders.nk"}},
		"read in a Secret's volume":         {0o777 | os.ModeSticky, 0o444, []string{"keys/orders.nk"}},
		"replaced":                          {0o777, 0o600, []string{"keys"}},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "keys")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		// The kubelet makes the files in a directory that it replaces, and links to them.
		data := filepath.Join(dir, "..data")
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"orders.nk", "other"} {
			if err := os.WriteFile(filepath.Join(data, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(data, file), c.file); err != nil { // without the umask
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, c.dir); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, path := range openSecrets("", filepath.Join(root, "none"), dir) {
			relative, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, relative)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: warned about %v, want %v", name, got, c.want)
		}
		file := filepath.Join(dir, "orders.nk")
		if got := openSecrets(file); (len(got) > 0) != (c.file&0o007 != 0) {
			t.Errorf("%s: as a file: warned about %v", name, got)
		}
	}
}
