package objects

import "strings"

const (
	soupFolder = "/soups/"
	soupSuffix = "." + string(Safetensors)
)

// SoupKey returns the key of a soup: an average of a sweep's checkpoints that a user made. It is deleted with them.
func SoupKey(sweep, name string) string {
	return strings.TrimSuffix(CheckpointsOf(sweep), "/") + soupFolder + name + soupSuffix
}

// SoupAt returns the sweep of a soup's key, or false unless SoupKey would return the same key.
func SoupAt(key string) (sweep string, ok bool) {
	rest, under := strings.CutPrefix(key, Checkpoints)
	sweep, name, in := strings.Cut(rest, soupFolder)
	name, ends := strings.CutSuffix(name, soupSuffix)
	return sweep, under && in && ends && !strings.Contains(sweep+name, "/") && CheckKey(key) == nil
}
