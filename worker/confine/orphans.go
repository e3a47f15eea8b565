package confine

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// treeName is how the directory of a worker's control groups is called, the one that it moves to, and the one behind: with its process's
// number, the namespace that the number is of, and a mark that no other of that number has.
var treeName = regexp.MustCompile(`^outbid-([0-9]+)\.([0-9]+)-[0-9a-z]{8}(` + asideSuffix + `|` + behindSuffix + `)?$`)

// pidNamespace is the number of the namespace that process numbers are of here; 0 where there are none to tell apart.
func pidNamespace() string {
	link, err := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	if number := strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]"); err == nil && number != "" {
		return number
	}
	return "0"
}

// removeOrphans ends the trials in the control groups beside a worker's own that belong to no process any more, and removes those groups:
// they are of workers that were killed and had another directory, or lost theirs, whose record nobody reads. Their trials nobody else
// ends, and what they hold nobody gets back. A number that another process has by now keeps
// its group until that has ended: it may be a worker without a trial. Whether one of another namespace lives cannot be told from here.
func removeOrphans(own []string, log *slog.Logger) {
	var removed, ended []string
	namespace := pidNamespace()
	for _, dir := range own {
		home := filepath.Dir(dir)
		entries, err := os.ReadDir(home)
		if err != nil {
			log.Warn("control groups of killed workers cannot be looked for", "error", err)
			continue
		}
		for _, entry := range entries {
			name := treeName.FindStringSubmatch(entry.Name())
			if name == nil || name[2] != namespace || lives(name[1]) {
				continue
			}
			path := filepath.Join(home, entry.Name())
			if removeEmpty(path) {
				removed = append(removed, path)
				continue
			}
			if name[3] != "" {
				continue // no trials are inside: those are ended, and then it is empty
			}
			if err := endGroups(path); err != nil {
				log.Warn("the trials of a killed worker cannot be ended", "group", path, "error", err)
				continue
			}
			ended = append(ended, path)
		}
	}
	if len(ended) > 0 {
		log.Warn("ended the trials that workers left which were killed and had other directories", "groups", ended)
	}
	if len(removed) > 0 {
		log.Info("removed empty control groups of workers that were killed", "groups", removed)
	}
}

// lives says whether a process has a number; one that cannot be is nobody's to remove.
func lives(number string) bool {
	pid, err := strconv.Atoi(number)
	return err != nil || pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// removeEmpty removes a control group and those below it, and says whether it is gone. The kernel refuses where a process is inside.
func removeEmpty(dir string) bool {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return false
	}
	for _, dir := range slices.Backward(dirs) {
		if unix.Rmdir(dir) != nil {
			return false
		}
	}
	return true
}
