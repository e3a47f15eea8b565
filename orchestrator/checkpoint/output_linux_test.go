package checkpoint_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// memoryFile is a file that is on no disk.
func memoryFile(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("mean", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "mean")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// bigSources are files of some parts, whose last is cut off within a page.
func bigSources(t *testing.T) []checkpoint.Source {
	t.Helper()
	data := make([]byte, 9<<20+404)
	for k := range data {
		data[k] = byte(k*7+k>>8) & 0x3b
	}
	content := file(t, nil, tensor{"w", safetensors.F32, []int64{int64(len(data)) / 4}, data})
	return fileSources(t, content, content)
}

// Where files are in memory nobody waits for who writes, and the average is the same.
func TestPartsAreWrittenSideBySideInMemory(t *testing.T) {
	t.Parallel()
	sources := bigSources(t)
	a, err := checkpoint.New(sources, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := memoryFile(t)
	if err := a.WriteBesideAnother(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(out, 0, 1<<30))
	if err != nil || !bytes.Equal(got, average(t, nil, sources...)) {
		t.Errorf("another average of %d bytes (%v)", len(got), err)
	}
}

// A file in memory that cannot be mapped, or made longer, is written as others are, and what fails then is said.
func TestAFileInMemoryThatCannotBeMapped(t *testing.T) {
	t.Parallel()
	a, err := checkpoint.New(bigSources(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, seal := range []int{unix.F_SEAL_GROW, unix.F_SEAL_WRITE} {
		out := memoryFile(t)
		if _, err := unix.FcntlInt(out.Fd(), unix.F_ADD_SEALS, seal); err != nil {
			t.Fatal(err)
		}
		if err := a.Write(t.Context(), out); !errors.Is(err, unix.EPERM) {
			t.Errorf("sealed by %#x: %v", seal, err)
		}
	}
}
