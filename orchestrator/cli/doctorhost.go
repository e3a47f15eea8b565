package cli

import (
	"strings"

	"github.com/outbid-dev/outbid/worker/confine"
)

// checkConfined says what a worker that the same user starts on this machine would confine. It is no failure that
// something is not confined: a single user need not care.
func checkConfined() []checkView {
	user := checkView{Name: "trial users", OK: true, Detail: "each trial of a server with tokens gets a user of its own"}
	if err := confine.CanSwitch(); err != nil {
		user.Detail = "trials run as the worker's own user, and a worker refuses a server that asks for tokens; " +
			"to change that run it as root or with CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL, or see --trust-trials"
	}
	groups := checkView{Name: "trial limits", OK: true}
	version, controls, err := confine.Groups()
	switch {
	case err != nil:
		groups.Detail = "cpus and memory are not limits; daemons end with their trial, by its user or a subreaper: " + clean(err.Error()) +
			"; systemd: Delegate=cpu memory pids"
	case len(controls) < 3:
		groups.Detail = "control groups of version " + version + " end trials whole; they limit " +
			limitsText(controls) + ", as the others are not delegated (systemd: Delegate=cpu memory pids)"
	default:
		groups.Detail = "control groups of version " + version + " end trials whole and limit " + strings.Join(controls, " and ")
	}
	return []checkView{user, groups}
}

func limitsText(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " and ")
}
