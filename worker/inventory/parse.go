package inventory

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Item is one part of a list of devices.
type Item struct {
	// Type is a device type such as "v100", or "auto" or "gpu".
	Type string
	// Count is the number of declared devices; 0 for devices that have to be found.
	Count int
	// Speed is relative to full speed, above 0 and at most 1.
	Speed float64
}

// MaxDevices is how many devices one node may declare.
const MaxDevices = 4096

var typePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// Parse parses a list of devices, separated by commas:
//
//	auto           the GPUs of this machine, or its CPU cores if it has none; also the empty list
//	gpu            the GPUs of this machine
//	cpu            its CPU cores
//	TYPE:COUNT     declared devices, which need not exist; cpu:4 are four CPU slots
//	TYPE:COUNT@S   the same, slowed down to S of full speed (0 < S <= 1), for tests and demonstrations
//
// The error names the wrong part and valid values.
func Parse(spec string) ([]Item, error) {
	if strings.TrimSpace(spec) == "" {
		spec = "auto"
	}
	var items []Item
	total := 0
	for part := range strings.SplitSeq(spec, ",") {
		item, err := parseItem(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("devices %q: %w", spec, err)
		}
		for _, other := range items {
			if other.Count == 0 && item.Count == 0 {
				return nil, fmt.Errorf("devices %q: %q and %q would count devices twice; keep one of them",
					spec, other.Type, item.Type)
			}
		}
		if total += item.Count; total > MaxDevices {
			return nil, fmt.Errorf("devices %q: more than %d devices", spec, MaxDevices)
		}
		items = append(items, item)
	}
	return items, nil
}

func parseItem(part string) (Item, error) {
	const want = "want TYPE:COUNT or TYPE:COUNT@SPEED, such as v100:2 or k80:1@0.25, or auto, gpu or cpu"
	if part == "" {
		return Item{}, fmt.Errorf("an empty part; %s", want)
	}
	name, count, counted := strings.Cut(part, ":")
	item := Item{Type: name, Speed: 1}
	if !typePattern.MatchString(name) {
		return Item{}, fmt.Errorf("type %q: want lower-case letters and digits; %s", name, want)
	}
	found := name == "auto" || name == "gpu" || name == CPU
	if !counted {
		if !found {
			return Item{}, fmt.Errorf("%q has no count; %s", part, want)
		}
		return item, nil
	}
	if found && name != CPU {
		return Item{}, fmt.Errorf("%q: %s must not have a count, because it finds all devices; to declare devices give a type, such as v100:2", part, name)
	}
	count, speed, slowed := strings.Cut(count, "@")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > MaxDevices {
		return Item{}, fmt.Errorf("count %q of %q: want a whole number from 1 to %d", count, part, MaxDevices)
	}
	item.Count = n
	if slowed {
		s, err := strconv.ParseFloat(speed, 64)
		if err != nil || !(s > 0 && s <= 1) {
			return Item{}, fmt.Errorf("speed %q of %q: want a number above 0 and at most 1", speed, part)
		}
		item.Speed = s
	}
	return item, nil
}
