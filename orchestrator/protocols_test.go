package orchestrator_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// orderExceptions are results of studies whose history does not prove that their protocol precedes them, with the
// reason. New ones are not accepted: a protocol is merged before its runs (docs/develop/studies.md).
func orderExceptions() map[string]string {
	return map[string]string{
		"docs/research/hadar/hadar-uniform.jsonl.gz": "its study and its results are one commit",
		"docs/research/outbid/outbid.jsonl.gz":       "the seeds of its study and its results are one commit",
	}
}

// TestProtocolsPrecedeResults requires that the commit that added a study's protocol is an earlier one than the commit
// that added its results, and that the study's seeds were not set in a commit that changed the results.
func TestProtocolsPrecedeResults(t *testing.T) {
	t.Parallel()
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil || shallow != "false" {
		t.Skip("git does not have the history of the repository")
	}
	checked, exceptions := 0, orderExceptions()
	for _, results := range studyFiles(t, "*.jsonl.gz") {
		protocol := protocolOf(t, results)
		why := disorder(t, protocol, results)
		_, excepted := exceptions[results]
		switch {
		case why != "" && !excepted:
			t.Errorf("%s and its protocol %s: %s", results, protocol, why)
		case why == "" && excepted:
			t.Errorf("%s is an exception, but its order is right", results)
		}
		delete(exceptions, results)
		checked++
	}
	for results := range exceptions {
		t.Errorf("the exception %s does not exist", results)
	}
	if checked == 0 {
		t.Error("no results of studies were found")
	}
}

// studyFiles returns the files of the studies with a pattern, relative to the root.
func studyFiles(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "research", "*", pattern))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range found {
		found[i] = filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
	}
	return found
}

// protocolOf returns the protocol of results: protocol-NAME.md for NAME.jsonl.gz and FOLDER-NAME.jsonl.gz, or else
// protocol.md.
func protocolOf(t *testing.T, results string) string {
	t.Helper()
	folder, file := filepath.ToSlash(filepath.Dir(results)), filepath.Base(results)
	for _, protocol := range studyFiles(t, "protocol-*.md") {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(protocol), "protocol-"), ".md") + ".jsonl.gz"
		if filepath.ToSlash(filepath.Dir(protocol)) == folder && (file == name || file == filepath.Base(folder)+"-"+name) {
			return protocol
		}
	}
	return folder + "/protocol.md"
}

// disorder returns why a protocol does not precede results, or "".
func disorder(t *testing.T, protocol, results string) string {
	t.Helper()
	planned := lines(t, "log", "--follow", "--diff-filter=A", "--format=%H", "--", protocol)
	run := lines(t, append([]string{"log", "--format=%H", "--"}, earlierNames(results)...)...)
	if len(planned) == 0 {
		return "the protocol was never committed"
	}
	if len(run) == 0 {
		return "" // not committed yet
	}
	first, added := planned[len(planned)-1], run[len(run)-1]
	if first == added {
		return "commit " + added + " added both"
	}
	if _, err := git("merge-base", "--is-ancestor", first, added); err != nil {
		return "the protocol's commit " + first + " is not an ancestor of the results' commit " + added
	}
	study := strings.TrimSuffix(results, ".jsonl.gz") + ".yaml"
	seeds := lines(t, append([]string{"log", "--format=%H", "-G^(first|last)_seed", "--"}, earlierNames(study)...)...)
	if len(seeds) > 0 && slices.Contains(run, seeds[0]) {
		return "commit " + seeds[0] + " set the study's seeds and changed the results"
	}
	return ""
}

// earlierNames returns a file of a study with its path before the folder docs/research existed.
func earlierNames(path string) []string {
	return []string{path, "docs/comparison/" + strings.TrimSuffix(filepath.Base(path), ".gz")}
}

// git returns the output of a command of git.
func git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

func lines(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := git(args...)
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return strings.Fields(out)
}
