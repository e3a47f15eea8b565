package checkpoint_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
)

// fileSources writes files and opens them.
func fileSources(t *testing.T, contents ...[]byte) []checkpoint.Source {
	t.Helper()
	var sources []checkpoint.Source
	for i, content := range contents {
		path := filepath.Join(t.TempDir(), "fork")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		sources = append(sources, checkpoint.Source{Name: path, Weight: float64(i + 1), File: f, Size: int64(len(content))})
	}
	return sources
}

// discard accepts writes at any offset.
type discard struct{}

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// TestAFileThatIsCutOffMeanwhile checks that a file truncated after its header was read ends the average with a
// one-line error that names it, regardless of the position. Mapped files report this by a signal.
func TestAFileThatIsCutOffMeanwhile(t *testing.T) {
	t.Parallel()
	const n = 1 << 20
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F64, safetensors.U8} {
		content := file(t, nil, tensor{"w", d, []int64{n / d.Size()}, make([]byte, n)})
		for _, left := range []int{0, 100_000, len(content) - 4096, len(content) - 1} {
			sources := fileSources(t, content, content, content)
			a, err := checkpoint.New(sources, nil)
			if err != nil {
				t.Fatal(err)
			}
			last := sources[2] // integers are copied from the largest weight
			if err := os.Truncate(last.Name, int64(left)); err != nil {
				t.Fatal(err)
			}
			if err := a.Write(t.Context(), discard{}, 3); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), last.Name) {
				t.Errorf("%s of which %d of %d bytes are left: %v", d, left, len(content), err)
			}
		}
	}
}

// TestFilesAreReadInPlace checks that files give the same average as other readers, with any order of tensors and for
// few and many files.
func TestFilesAreReadInPlace(t *testing.T) {
	t.Parallel()
	for files, most := range map[int]int{2: 5 << 20, 5: 300_000, 100: 1000} {
		var tensors []tensor
		for i, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16, safetensors.F64, safetensors.F8E4M3, safetensors.I32} {
			data := make([]byte, most/(i+1)/8*8+int(d.Size())*(i+1))
			for k := range data {
				data[k] = byte(k*(i+3)+k>>8) & 0x3b
			}
			tensors = append(tensors, tensor{string(d), d, []int64{int64(len(data)) / d.Size()}, data})
		}
		one, other := file(t, nil, tensors...), file(t, nil, tensors[3], tensors[1], tensors[5], tensors[0], tensors[2], tensors[4])
		contents := make([][]byte, files)
		for i := range contents {
			if contents[i] = one; i%2 == 1 {
				contents[i] = other
			}
		}
		sources := fileSources(t, contents...)
		a, err := checkpoint.New(sources, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.Create(filepath.Join(t.TempDir(), "mean"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(a.Write(t.Context(), got, 3), got.Close()); err != nil {
			t.Fatal(err)
		}
		for i := range sources {
			sources[i].File = bytes.NewReader(contents[i])
		}
		if b, err := os.ReadFile(got.Name()); err != nil || !bytes.Equal(b, average(t, nil, sources...)) {
			t.Errorf("%d files: another average (%v)", files, err)
		}
	}
}

// TestAFileThatTakesNoAverage checks that a write error ends the average and is returned.
func TestAFileThatTakesNoAverage(t *testing.T) {
	t.Parallel()
	sources := fileSources(t, file(t, nil, tensor{"w", safetensors.F32, []int64{3 << 20}, make([]byte, 12<<20)}))
	a, err := checkpoint.New(sources, nil)
	if err != nil {
		t.Fatal(err)
	}
	readOnly, _ := sources[0].File.(*os.File)
	if err := a.Write(t.Context(), readOnly, 2); !errors.Is(err, syscall.EBADF) {
		t.Errorf("written to a file that is open for reading: %v", err)
	}
}
