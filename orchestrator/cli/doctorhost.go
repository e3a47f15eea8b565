package cli

import (
	"strings"

	"github.com/outbid-dev/outbid/worker/confine"
)

// checkConfined reports the limits that a worker started by this user on this machine would impose on trials. Missing
// limits are not failures, because a single user does not need them.
func checkConfined() []checkView {
	user := checkView{Name: "trial users", OK: true, Detail: "each trial of a server with tokens runs as a separate user"}
	if err := confine.CanSwitch(); err != nil {
		user.Detail = "trials run as the worker's user, and a worker refuses a server with tokens; " +
			"to change this, run it as root or with CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL, or see --trust-trials"
	}
	groups := checkView{Name: "trial limits", OK: true}
	version, controls, err := confine.Groups()
	switch {
	case err != nil:
		groups.Detail = "cpus and memory are not limited; a trial's daemons are ended through its user or a subreaper: " + clean(err.Error()) +
			"; systemd: Delegate=cpu memory pids"
	case len(controls) < 3:
		groups.Detail = "control groups of version " + version + " end all processes of a trial; they limit " +
			limitsText(controls) + "; the others are not delegated (systemd: Delegate=cpu memory pids)"
	default:
		groups.Detail = "control groups of version " + version + " end all processes of a trial and limit " + strings.Join(controls, " and ")
	}
	return []checkView{user, groups}
}

func limitsText(words []string) string {
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " and ")
}
