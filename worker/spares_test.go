package worker

import (
	"os"
	"path/filepath"
	"testing"
)

// A trial gets an empty directory, and finds no files of the trial that had its path before.
func TestSparesAreAsGoodAsNew(t *testing.T) {
	t.Parallel()
	s := &spares{dir: t.TempDir()}
	at := func(name string) string { return filepath.Join(s.dir, name) }
	make := func(name string) string {
		t.Helper()
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	if s.reuse(at("1")) {
		t.Fatal("got a directory that was never kept")
	}
	full := make("2")
	if err := os.WriteFile(filepath.Join(full, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := make("3")
	if err := os.Chmod(open, 0o755); err != nil { //nolint:gosec // the test needs it
		t.Fatal(err)
	}
	if s.keep(full) || s.keep(open) || s.keep(at("none")) {
		t.Fatal("kept a directory that was changed")
	}
	if !s.keep(make("4")) {
		t.Fatal("an empty directory is not kept")
	}
	if err := os.WriteFile(filepath.Join(at("4"), "late"), nil, 0o600); err == nil {
		t.Fatal("an ended trial can write into its directory")
	}
	if !s.reuse(at("5")) || !isUntouched(at("5")) || s.reuse(at("6")) {
		t.Fatal("want the kept directory, once")
	}
	for i := range sparesAtMost {
		if !s.keep(make("many-" + string(rune('a'+i)))) {
			t.Fatalf("the %dth is not kept", i)
		}
	}
	if s.keep(make("one too many")) {
		t.Fatal("kept more than the limit")
	}
}
