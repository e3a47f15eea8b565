package claim

import "strings"

// address returns a name in the abstract namespace, in which slashes have no special meaning.
func address(what string) string { return "@outbid/" + strings.ReplaceAll(what, "\x00", "") }
