package objects

import "strings"

const (
	soupFolder = "/soups/"
	soupSuffix = "." + string(Safetensors)
)

// SoupKey is the key of a soup of a sweep's, an average of its checkpoints that somebody chose. It lies beside these, and goes with
// them.
func SoupKey(sweep, name string) string {
	return strings.TrimSuffix(CheckpointsOf(sweep), "/") + soupFolder + name + soupSuffix
}

// SoupAt says of which sweep the soup of a key is; false if it is not what SoupKey writes.
func SoupAt(key string) (sweep string, ok bool) {
	rest, under := strings.CutPrefix(key, Checkpoints)
	sweep, name, in := strings.Cut(rest, soupFolder)
	name, ends := strings.CutSuffix(name, soupSuffix)
	return sweep, under && in && ends && !strings.Contains(sweep+name, "/") && CheckKey(key) == nil
}
