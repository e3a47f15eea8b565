package tsgen

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// TypesFile is where the types are, below web/.
	TypesFile = "src/lib/api.gen.ts"
	// SourcesFile is the file of dist/ that names what it was built from.
	SourcesFile = "sources.sha256"
)

// Sources returns a line with the SHA-256 of all files that the pages are built from: those of the directory web, except for tests,
// installed packages, and the types of the API: the compiler removes types, so a new message changes no page.
func Sources(web string) (string, error) {
	var names []string
	err := filepath.WalkDir(web, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case d.IsDir(), strings.HasPrefix(d.Name(), "."), d.Name() == filepath.Base(TypesFile),
			strings.HasSuffix(d.Name(), ".test.ts"), d.Name() == "eslint.config.js":
			return nil
		}
		names = append(names, path)
		return nil
	})
	if err != nil {
		return "", err
	}
	slices.Sort(names)
	all := sha256.New()
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(web, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s %x\n", filepath.ToSlash(rel), sha256.Sum256(data))
	}
	return fmt.Sprintf("%x\n", all.Sum(nil)), nil
}
