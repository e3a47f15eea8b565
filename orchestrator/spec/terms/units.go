package terms

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// ParseDuration reads a duration above 0 such as "90s", "1h30m" or "2d"; days must come first.
func ParseDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration above 0; write a number and a unit, such as 90s, 10m, 36h or 2d", text)
	days, rest := time.Duration(0), text
	if number, after, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, bad
		}
		days, rest = time.Duration(n)*24*time.Hour, after
	}
	d := time.Duration(0)
	if rest != "" || days == 0 {
		var err error
		if d, err = time.ParseDuration(rest); err != nil || d < 0 {
			return 0, bad
		}
	}
	if d > math.MaxInt64-days || d+days <= 0 {
		return 0, bad
	}
	return d + days, nil
}

// ParseBytes reads an amount of memory above 0 such as "4GiB" (1024^3 bytes each) or "500MB" (1000^2 each).
func ParseBytes(text string) (int64, error) {
	bad := fmt.Errorf("%q is not an amount of memory above 0; write a number and a unit, such as 4GiB or 512MiB", text)
	if !strings.HasSuffix(strings.ToLower(text), "b") {
		return 0, bad
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n == 0 || n > 1<<60 {
		return 0, bad
	}
	return int64(n), nil
}

// anyForks is the maximum number of forks for "auto", which uses all nodes.
const anyForks = 1 << 20

// ParseForks reads the number of forks of a trial: "auto", or the least and the most, such as "2-5"; "" for no forks.
func ParseForks(text string) (least, most int, err error) {
	switch text {
	case "":
		return 0, 0, nil
	case "auto":
		return 1, anyForks, nil
	}
	bad := fmt.Errorf("%q is not a number of forks; write auto, or the least and the most, such as 1-5", text)
	first, last, both := strings.Cut(text, "-")
	if !both {
		return 0, 0, bad
	}
	a, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return 0, 0, bad
	}
	b, err := strconv.ParseUint(last, 10, 16)
	if err != nil || a < 1 || b < max(a, 2) {
		return 0, 0, bad
	}
	return int(a), int(b), nil
}
