package endtoend

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/worker/confine"
)

// What startCopies tells its process: the directory of what it copies, how often a second it does, and the control group it works in.
const copiesOf, copiesPerSecond, copiesGroup = "COPIES_OF", "COPIES_PER_SECOND", "COPIES_GROUP"

// startCopies has a process read the files that an average reads and write one of an average's size, so often a second, until stop is called. It
// computes in between, so that it keeps a CPU as busy as averages do, and is in an idle group as they are.
func startCopies(b *testing.B, perSecond float64) (stop func() int) {
	b.Helper()
	dir := averagesDir(b)
	for i := range averagedFiles {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, averagedBytes), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	c, err := confine.Open(b.Context(), confine.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), copiesOf+"="+dir, copiesGroup+"="+c.IdleGroup(), fmt.Sprintf("%s=%g", copiesPerSecond, perSecond))
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() int {
		_ = cmd.Process.Kill()
		if state, err := cmd.Process.Wait(); err != nil || state.Exited() {
			b.Fatalf("copies ended by themselves: %s, %v", state, err)
		}
		if err := errors.Join(c.Close(), os.RemoveAll(dir)); err != nil {
			b.Error(err)
		}
		return 0
	}
}

// copyAll is that process.
func copyAll(dir string) error {
	perSecond, err := strconv.ParseFloat(os.Getenv(copiesPerSecond), 64)
	if err != nil {
		return err
	}
	anew := func() {}
	if group := os.Getenv(copiesGroup); group != "" {
		if anew, err = confine.EnterIdleGroup(group); err != nil {
			return err
		}
	}
	buf := make([]byte, 1<<20)
	for next := time.Now(); ; next = next.Add(time.Duration(float64(time.Second) / perSecond)) {
		anew() // as who averages begins anew with each average
		if err := copyOnce(dir, buf); err != nil {
			return err
		}
		for time.Now().Before(next) { // busy, as who averages is
		}
	}
}

// copyOnce reads all files and makes another of what the last one holds, at once for who looks.
func copyOnce(dir string, buf []byte) error {
	out, err := os.CreateTemp(dir, "copy-")
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // it is synced
	for i := range averagedFiles {
		in, err := os.Open(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		to := io.Discard
		if i == averagedFiles-1 {
			to = out
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{in}, buf)
		_ = in.Close()
		if err != nil {
			return err
		}
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return os.Rename(out.Name(), filepath.Join(dir, "copied"))
}
