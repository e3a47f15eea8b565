package space

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Canonical returns a configuration as JSON in the canonical form that the ledger, workers and training code see: no
// spaces, keys sorted by bytes, integers without and floats always with a decimal point or an exponent. Equal
// configurations give equal texts, and Parse is its inverse. NaN, infinities, invalid UTF-8 and types that a Config
// does not have are errors.
func Canonical(cfg Config) (string, error) {
	if cfg == nil {
		cfg = Config{}
	}
	return canonical(cfg)
}

func canonical(v any) (string, error) {
	var b strings.Builder
	if err := write(&b, "", v, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

// maxNesting limits the nesting of a configuration: groups, and lists and objects as values in them.
const maxNesting = 2*maxDepth + 2

func write(b *strings.Builder, path string, v any, depth int) error {
	if depth > maxNesting {
		return wrong(path, "is nested deeper than %d", maxNesting)
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case int:
		b.WriteString(strconv.Itoa(v))
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		return writeFloat(b, path, v)
	case string:
		return writeString(b, path, v)
	case []any:
		b.WriteByte('[')
		for i := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := write(b, fmt.Sprintf("%s[%d]", path, i), v[i], depth+1); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case map[string]any:
		return writeObject(b, path, v, depth)
	default:
		return wrong(path, "%T is not a type of a configuration", v)
	}
	return nil
}

func writeObject(b *strings.Builder, path string, v map[string]any, depth int) error {
	b.WriteByte('{')
	for i, k := range slices.Sorted(maps.Keys(v)) {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeString(b, path, k); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := write(b, strings.TrimPrefix(path+"."+k, "."), v[k], depth+1); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func writeFloat(b *strings.Builder, path string, f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return wrong(path, "%v is not a finite number", f)
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	b.WriteString(text)
	if !strings.ContainsAny(text, ".e") {
		b.WriteString(".0")
	}
	return nil
}

func writeString(b *strings.Builder, path, s string) error {
	if !utf8.ValidString(s) {
		return wrong(path, "%q is not UTF-8", s)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return wrong(path, "%q cannot be written as JSON: %v", s, err)
	}
	b.Write(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
	return nil
}

// Parse reads a configuration from JSON. A number with a decimal point or an exponent becomes a float64, any other an
// int64.
func Parse(text string) (Config, error) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var raw any
	if err := dec.Decode(&raw); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, wrong("configuration", "has text after the end of its JSON object")
	}
	v, err := fromJSON("", raw, 0)
	if err != nil {
		return nil, err
	}
	cfg, ok := v.(map[string]any)
	if !ok {
		return nil, wrong("configuration", "%s is not an object", short(text))
	}
	return cfg, nil
}

func fromJSON(path string, raw any, depth int) (any, error) {
	if depth > maxNesting {
		return nil, wrong(path, "is nested deeper than %d", maxNesting)
	}
	switch v := raw.(type) {
	case json.Number:
		return fromJSONNumber(path, v.String())
	case []any:
		for i := range v {
			var err error
			if v[i], err = fromJSON(fmt.Sprintf("%s[%d]", path, i), v[i], depth+1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			var err error
			if v[k], err = fromJSON(strings.TrimPrefix(path+"."+k, "."), v[k], depth+1); err != nil {
				return nil, err
			}
		}
	}
	return raw, nil
}

func fromJSONNumber(path, text string) (any, error) {
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, wrong(path, "%s is beyond the range of a float64", short(text))
		}
		return f, nil
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, wrong(path, "%s is beyond the range of an int64", short(text))
	}
	return i, nil
}
