package endtoend

import (
	enc "encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/worker/confine"
)

// startPlain's process gets these variables: the directory of the files, the number of averages per second, and its
// control group.
const plainOf, plainPerSecond, plainGroup = "PLAIN_OF", "PLAIN_PER_SECOND", "PLAIN_GROUP"

// startPlain makes a program without Outbid average the same files at a rate, until stop is called. It spins in
// between, so that it keeps a CPU as busy as Outbid's averages do. It is in an idle group like them.
func startPlain(b *testing.B, perSecond float64) (stop func() int) {
	b.Helper()
	dir := averagesDir(b)
	for i := range averagedFiles {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, averagedBytes()), 0o600); err != nil {
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
	cmd.Env = append(os.Environ(), plainOf+"="+dir, plainGroup+"="+c.IdleGroup(), fmt.Sprintf("%s=%g", plainPerSecond, perSecond))
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return func() int {
		_ = cmd.Process.Kill()
		if state, err := cmd.Process.Wait(); err != nil || state.Exited() {
			b.Fatalf("plain averages ended by themselves: %s, %v", state, err)
		}
		if err := errors.Join(c.Close(), os.RemoveAll(dir)); err != nil {
			b.Error(err)
		}
		return 0
	}
}

// averagePlainly is that process.
func averagePlainly(dir string) error {
	perSecond, err := strconv.ParseFloat(os.Getenv(plainPerSecond), 64)
	if err != nil {
		return err
	}
	if group := os.Getenv(plainGroup); group != "" {
		if err := confine.EnterIdleGroup(group); err != nil {
			return err
		}
	}
	sums, piece := make([]float32, 1<<18), make([]byte, 1<<20)
	for next := time.Now(); ; next = next.Add(time.Duration(float64(time.Second) / perSecond)) {
		if err := averageFiles(dir, sums, piece); err != nil {
			return err
		}
		for time.Now().Before(next) { // busy, like an averager of a worker
			addFloats(sums, piece)
		}
	}
}

// averageFiles writes the average of all files atomically.
func averageFiles(dir string, sums []float32, piece []byte) error {
	out, err := os.CreateTemp(dir, "average-")
	if err != nil {
		return err
	}
	defer out.Close() //nolint:errcheck // it is synced
	var files [averagedFiles]*os.File
	for i := range files {
		if files[i], err = os.Open(filepath.Join(dir, strconv.Itoa(i))); err != nil {
			return err
		}
		defer files[i].Close() //nolint:errcheck // read only
	}
	for range averagedBytes() / int64(len(piece)) {
		clear(sums)
		for _, f := range files {
			if _, err := io.ReadFull(f, piece); err != nil {
				return err
			}
			addFloats(sums, piece)
		}
		for i, sum := range sums {
			enc.LittleEndian.PutUint32(piece[4*i:], math.Float32bits(sum/averagedFiles))
		}
		if _, err := out.Write(piece); err != nil {
			return err
		}
	}
	if err := out.Sync(); err != nil {
		return err
	}
	return os.Rename(out.Name(), filepath.Join(dir, "average"))
}

func addFloats(sums []float32, piece []byte) {
	for i := range sums {
		sums[i] += math.Float32frombits(enc.LittleEndian.Uint32(piece[4*i:]))
	}
}
