package orchestrator_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

// TestEveryPolicyCanBeChosen compares the page on choosing a policy with the registry: each policy has exactly one row,
// without empty cells.
func TestEveryPolicyCanBeChosen(t *testing.T) {
	t.Parallel()
	const file = "docs/choose-a-policy.md"
	page, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	columns := 0
	for line := range strings.SplitSeq(string(page), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if strings.HasPrefix(line, "| policy |") {
			columns = len(cells)
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		name := strings.Trim(cells[0], "`")
		rows = append(rows, name)
		if len(cells) != columns || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("%s: the row of %s has %d cells, or empty ones; the table has %d columns", file, name, len(cells), columns)
		}
		if !slices.Contains(registry.Names(), name) {
			t.Errorf("%s has a row for %s, which is no policy", file, name)
		}
	}
	for _, name := range registry.Names() {
		if n := len(slices.DeleteFunc(slices.Clone(rows), func(row string) bool { return row != name })); n != 1 {
			t.Errorf("%s has %d rows for the policy %s, want one: what it makes best, what it must be told, what a decision costs, when not to use it",
				file, n, name)
		}
	}
}
