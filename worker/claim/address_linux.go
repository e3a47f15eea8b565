package claim

import "strings"

// address is a name in the abstract namespace; a slash is nothing special there.
func address(what string) string { return "@outbid/" + strings.ReplaceAll(what, "\x00", "") }
