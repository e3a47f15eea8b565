package worker

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
)

// sparesAtMost bounds the directories that are kept.
const sparesAtMost = 16

// spares keeps the directories of trials that ended and left them empty for those that begin. On ext4 a directory that is made right
// after others were removed takes as long as all else that the worker does for a short trial. It keeps none if it is nil.
type spares struct {
	mu    sync.Mutex
	dir   string
	made  int
	paths []string
}

// take makes a directory of one that is kept; false if there is none.
func (s *spares) take(path string) bool {
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

// keep takes a directory that is as it was made, so that nothing is at its path any more; false if it is to be removed.
func (s *spares) keep(path string) bool {
	if s == nil || !untouched(path) {
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

// untouched says whether a directory is empty and open to its owner alone.
func untouched(path string) bool {
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
