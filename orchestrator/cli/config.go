package cli

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// setting is one value of a configuration with its dotted path.
type setting struct {
	path string
	// value is a json.Number, string, bool, nil, or a list.
	value any
}

// flatten returns a configuration's values, ordered by dotted path.
func flatten(config json.RawMessage) []setting {
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.UseNumber()
	var root map[string]any
	if err := dec.Decode(&root); err != nil {
		return nil
	}
	return flattenInto(nil, "", root)
}

func flattenInto(list []setting, prefix string, m map[string]any) []setting {
	for _, key := range sortedKeys(m) {
		if nested, ok := m[key].(map[string]any); ok && len(nested) > 0 {
			list = flattenInto(list, prefix+key+".", nested)
			continue
		}
		list = append(list, setting{prefix + key, m[key]})
	}
	return list
}

// text returns the value for display: floats with four significant digits.
func (s setting) text() string {
	switch v := s.value.(type) {
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			return v.String()
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return strconv.FormatFloat(f, 'g', 4, 64)
	case string:
		return clean(v)
	default:
		data, err := encodeJSON(v, false)
		if err != nil {
			return "?"
		}
		return string(data)
	}
}

// exact returns the full value, for files.
func (s setting) exact() string {
	switch v := s.value.(type) {
	case nil:
		return ""
	case json.Number:
		return v.String()
	case string:
		return v
	default:
		data, err := encodeJSON(v, false)
		if err != nil {
			return ""
		}
		return string(data)
	}
}

// configLines returns the configurations of trials, each on one line: values that all share come last, because a line may be cut.
func configLines(trials []*outbidv1.Trial) []string {
	count, lists := map[string]int{}, make([][]setting, len(trials))
	for i, t := range trials {
		lists[i] = flatten(configOf(t))
		for _, s := range lists[i] {
			count[s.path+"="+s.exact()]++
		}
	}
	lines := make([]string, len(trials))
	for i, list := range lists {
		slices.SortStableFunc(list, func(a, b setting) int {
			alike := func(s setting) int { return count[s.path+"="+s.exact()] / len(trials) }
			return alike(a) - alike(b)
		})
		lines[i] = settingsLine(list)
	}
	return lines
}

// configLine returns a configuration on one line.
func configLine(config json.RawMessage) string { return settingsLine(flatten(config)) }

func settingsLine(settings []setting) string {
	parts := make([]string, len(settings))
	for i, s := range settings {
		parts[i] = clean(s.path) + "=" + s.text()
	}
	return strings.Join(parts, " ")
}
