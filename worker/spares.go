package worker

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// sparesAtMost is how many directories are kept.
const sparesAtMost = 16

// spares keeps the directories that ended trials left empty for new trials. On ext4, creating a directory right after
// others were removed takes as long as everything else that the worker does for a short trial. A nil spares keeps
// none.
type spares struct {
	mu    sync.Mutex
	dir   string
	made  int
	paths []string
}

// reuse moves a spare directory to path. It returns false if no directory is kept.
func (s *spares) reuse(path string) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.paths) == 0 {
		return false
	}
	spare := s.paths[len(s.paths)-1]
	s.paths = s.paths[:len(s.paths)-1]
	return os.Rename(spare, path) == nil
}

// keep takes the directory at path if it is empty, so that nothing is at path any more. It returns false if the
// caller has to remove it.
func (s *spares) keep(path string) bool {
	if s == nil || !isUntouched(path) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.paths) >= sparesAtMost {
		return false
	}
	spare := filepath.Join(s.dir, "spare-"+strconv.Itoa(s.made))
	if os.Rename(path, spare) != nil {
		return false
	}
	s.made++
	s.paths = append(s.paths, spare)
	return true
}

// isUntouched reports whether a directory is empty and accessible only to its owner.
func isUntouched(path string) bool {
	dir, err := os.Open(path)
	if err != nil {
		return false
	}
	defer dir.Close() //nolint:errcheck // only read
	info, err := dir.Stat()
	if err != nil || info.Mode() != os.ModeDir|0o700 {
		return false
	}
	_, err = dir.Readdirnames(1)
	return errors.Is(err, io.EOF)
}
