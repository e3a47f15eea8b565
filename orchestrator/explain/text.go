package explain

import (
	"fmt"
	"strings"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// anothers stands for sweeps whose names the caller may not see.
const anothers = "another tenant's sweep"

func sweepName(id string) string {
	if id == "" {
		return anothers
	}
	return id
}

// because returns ": REASON", or "" without a reason.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// inBrackets returns " (REASON)", or "" without a reason.
func inBrackets(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// list joins names as in "a, b and c".
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// trials returns a number of the sweep's trials with its verb, such as "1 trial of digits-1 waits".
func (f *Facts) trials(n int32, one, many string) string {
	verb := many
	if n == 1 {
		verb = one
	}
	return fmt.Sprintf("%s of %s %s", count(int(n), "trial"), f.name(), verb)
}

// ago returns the time since a round, such as " 42 s ago", or "" if it is unknown.
func (f *Facts) ago(r *outbidv1.Round) string {
	if r.GetTime() == nil {
		return ""
	}
	return " " + duration(max(0, f.Now.Sub(r.GetTime().AsTime()).Seconds())) + " ago"
}

// duration returns a time in its two largest units, such as "42 s", "3 min 5 s" or "2 h 10 min".
func duration(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.2g s", seconds)
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", seconds)
	case d < time.Hour:
		return units(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d < 48*time.Hour:
		return units(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
	default:
		return units(d.Round(time.Hour), 24*time.Hour, "d", time.Hour, "h")
	}
}

func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}
