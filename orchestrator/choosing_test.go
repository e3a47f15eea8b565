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

// TestEveryPolicyCanBeChosen compares the pages on choosing a policy with the registries. Each policy of the product has
// exactly one row in the table that rates them. So have the policies of the lab that were compared; the others are listed
// by TestGeneratedPartsAreFresh.
func TestEveryPolicyCanBeChosen(t *testing.T) {
	t.Parallel()
	product, every := registry.Product().Names(), lab.Policies().Names()
	if diff := cmp.Diff(product, ratings(t, "docs/choose-a-policy.md")); diff != "" {
		t.Errorf("docs/choose-a-policy.md: want a row for each policy: what it makes best, what it must know, what a decision costs, "+
			"when not to use it (-policies +rows):\n%s", diff)
	}
	rated := ratings(t, "docs/reference/lab.md")
	for i, name := range rated {
		if !slices.Contains(every, name) || slices.Contains(product, name) || i > 0 && rated[i-1] == name {
			t.Errorf("docs/reference/lab.md: the row of %s is twice there, or not that of a policy of the lab alone", name)
		}
	}
}

// ratings returns the policies with a row in the table of a page that rates them, sorted. No cell may be empty.
func ratings(t *testing.T, file string) []string {
	t.Helper()
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
	return rows
}
