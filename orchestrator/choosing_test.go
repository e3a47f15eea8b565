package orchestrator_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

// TestEveryPolicyCanBeChosen compares the pages on choosing a policy with the registries: each policy has exactly one
// row, without empty cells.
func TestEveryPolicyCanBeChosen(t *testing.T) {
	t.Parallel()
	product := registry.Product().Names()
	own := slices.DeleteFunc(lab.Policies().Names(), func(name string) bool { return slices.Contains(product, name) })
	for file, policies := range map[string][]string{"docs/choose-a-policy.md": product, "docs/reference/lab.md": own} {
		page, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		table, _, _ := strings.Cut(string(page), "<!--")
		columns := 0
		for line := range strings.SplitSeq(table, "\n") {
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
		}
		slices.Sort(rows)
		if diff := cmp.Diff(policies, rows); diff != "" {
			t.Errorf("%s: want a row for each policy: what it makes best, what it must know, what a decision costs, when not to use it "+
				"(-policies +rows):\n%s", file, diff)
		}
	}
}
