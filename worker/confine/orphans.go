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

// treeName matches the directory of a worker's control groups, of the group that the worker moves to, and of its idle
// group. The name has the worker's pid, the number of its pid namespace, and a random mark.
var treeName = regexp.MustCompile(`^outbid-([0-9]+)\.([0-9]+)-[0-9a-z]{8}(` + asideSuffix + `|` + idleSuffix + `)?$`)

// pidNamespace returns the number of this process's pid namespace, or 0 if the system has no namespaces.
func pidNamespace() string {
	link, err := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	if number := strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]"); err == nil && number != "" {
		return number
	}
	return "0"
}

// removeOrphans ends the trials in control groups of processes that no longer exist, among the groups next to a
// worker's own, and removes those groups. They belong to killed workers with another directory, or with a lost one,
// so that no other worker reads their record and ends their trials. If another process has the worker's pid by now,
// the group stays until that process has ended, because it may be a worker without trials. Groups of other pid
// namespaces stay, because their workers' state cannot be determined.
func removeOrphans(own []string, log *slog.Logger) {
	var removed, trials, ended []string
	for _, path := range orphans(own, log) {
		switch {
		case removeEmpty(path):
			removed = append(removed, path)
		case treeName.FindStringSubmatch(filepath.Base(path))[3] == "":
			trials = append(trials, path)
		} // other groups have no trials: once the processes are ended, they are empty
	}
	thawAll(trials)
	for _, path := range trials {
		if err := endGroups(path); err != nil {
			log.Warn("cannot end the trials of a killed worker", "group", path, "error", err)
			continue
		}
		ended = append(ended, path)
	}
	if len(ended) > 0 {
		log.Warn("ended trials of killed workers with other directories", "groups", ended)
	}
	if len(removed) > 0 {
		log.Info("removed empty control groups of workers that were killed", "groups", removed)
	}
}

// orphans returns the control groups next to a worker's own whose worker no longer exists.
func orphans(own []string, log *slog.Logger) (paths []string) {
	namespace := pidNamespace()
	for _, dir := range own {
		home := filepath.Dir(dir)
		entries, err := os.ReadDir(home)
		if err != nil {
			log.Warn("cannot look for control groups of killed workers", "error", err)
			continue
		}
		for _, entry := range entries {
			if name := treeName.FindStringSubmatch(entry.Name()); name != nil && name[2] == namespace && !isAlive(name[1]) {
				paths = append(paths, filepath.Join(home, entry.Name()))
			}
		}
	}
	return paths
}

// isAlive reports whether a process with this pid exists. An unparsable pid counts as alive.
func isAlive(number string) bool {
	pid, err := strconv.Atoi(number)
	return err != nil || pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

// removeEmpty removes a control group and those below it, and reports whether it is gone. The kernel refuses if a
// process is inside.
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
