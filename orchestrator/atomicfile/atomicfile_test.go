package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsThereWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, write := range map[string]func(string, os.FileMode, func(*os.File) error) error{
		"plain": Write, "synced": WriteSynced,
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		for _, text := range []string{"first", "second"} {
			err := write(path, 0o640, func(f *os.File) error {
				_, err := io.WriteString(f, text)
				return err
			})
			if got, readErr := os.ReadFile(path); err != nil || readErr != nil || string(got) != text {
				t.Errorf("%s: %q, %v, %v; want %q", name, got, err, readErr, text)
			}
		}
		err := write(path, 0o600, func(f *os.File) error {
			_, _ = io.WriteString(f, "half of it")
			return broken
		})
		if got, _ := os.ReadFile(path); !errors.Is(err, broken) || string(got) != "second" {
			t.Errorf("%s: after an error the file holds %q: %v", name, got, err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: mode %v: %v", name, info.Mode(), err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%s: %v are left", name, left)
		}
	}
}
