package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The limits of texts in answers, in bytes.
const (
	maxName  = 200
	maxLine  = 500
	maxError = 2000
	// maxValues limits the parameters, metrics and labels of one item.
	maxValues = 60
)

// cleanLine returns text of users on one line, without characters that are invisible or change the order of others.
func cleanLine(s string, limit int) string { return visible(sanitize.Line(s, limit)) }

// cleanText is cleanLine for text of several lines.
func cleanText(s string, limit int) string { return visible(sanitize.Text(s, limit)) }

// visible replaces format characters and private ones. People do not see them, but models read them.
func visible(s string) string {
	if sanitize.IsPlain(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Co) || unicode.Is(unicode.Variation_Selector, r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// number is a float64 in JSON: a number, or one of the strings "NaN", "Infinity" and "-Infinity", as in the API.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	switch {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	}
	return json.Marshal(f)
}

// numbers converts metrics, at most maxValues.
func numbers(from map[string]float64) map[string]number {
	if len(from) == 0 {
		return nil
	}
	to := map[string]number{}
	for _, name := range firstKeys(from) {
		to[cleanLine(name, maxName)] = number(from[name])
	}
	return to
}

// texts converts labels, at most maxValues.
func texts(from map[string]string) map[string]string {
	if len(from) == 0 {
		return nil
	}
	to := map[string]string{}
	for _, name := range firstKeys(from) {
		to[cleanLine(name, maxName)] = cleanLine(from[name], maxName)
	}
	return to
}

// firstKeys returns the first maxValues keys in order.
func firstKeys[V any](m map[string]V) []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[:min(len(keys), maxValues)]
}

// configOf returns a trial's configuration by dotted path, with clean and bounded values. Integers and floats differ.
func configOf(t *outbidv1.Trial) map[string]any {
	text := []byte(t.GetConfigJson())
	if len(text) == 0 {
		text, _ = t.GetConfig().MarshalJSON()
	}
	return configFrom(text)
}

func configFrom(text []byte) map[string]any {
	var root map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if dec.Decode(&root) != nil {
		return map[string]any{}
	}
	all := map[string]any{}
	flatten("", root, all)
	config := map[string]any{}
	for _, path := range firstKeys(all) {
		config[path] = all[path]
	}
	return config
}

// flatten adds the values of a group to all, under their dotted paths.
func flatten(prefix string, group, all map[string]any) {
	for name, value := range group {
		path := prefix + cleanLine(name, maxName)
		switch v := value.(type) {
		case map[string]any:
			flatten(path+".", v, all)
		case string:
			all[path] = cleanLine(v, maxName)
		case []any:
			list, _ := json.Marshal(v)
			all[path] = cleanLine(string(list), maxName)
		default:
			all[path] = v
		}
	}
}

func timeOf(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	return new(ts.AsTime())
}

// plural returns a count with its noun.
func plural[N int | int32 | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
