// Package settings sets the flags of a command from a configuration file and from environment variables, and tells
// where each value comes from. The flags are the schema: their names, types and defaults.
package settings

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Setting is the effective value of a flag.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Source is flag, environment, file or default. Where is the variable or the line of the file.
	Source string `json:"source"`
	Where  string `json:"where,omitempty"`
}

// Problem is an invalid value. It implements error.
type Problem struct {
	// Where is the variable, or the line of the file.
	Where string
	// Name is the setting, with its section of the file.
	Name string
	// Value is the value, or "".
	Value string
	// Want describes valid values.
	Want string
}

// Error implements error.
func (p *Problem) Error() string {
	text := p.Where + ": "
	if !strings.HasPrefix(p.Where, envPrefix) {
		text += p.Name + ": "
	}
	if p.Want == "" {
		return text + "is not valid"
	}
	if p.Value == "" {
		return text + p.Want
	}
	return fmt.Sprintf("%s%s, got %q", text, p.Want, p.Value)
}

// Command is a command whose flags can be set.
type Command struct {
	// Name is the section of the file, and a part of the names of variables.
	Name  string
	Flags *pflag.FlagSet
	// Takes reports whether a flag is a setting.
	Takes func(*pflag.Flag) bool
}

// envPrefix starts the names of all variables.
const envPrefix = "OUTBID_"

// Variable returns the name of the environment variable of a setting.
func (c Command) Variable(flag string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(c.Name+"_"+flag))
}

// each calls f with every flag that is a setting, by name.
func (c Command) each(f func(*pflag.Flag)) {
	c.Flags.VisitAll(func(flag *pflag.Flag) {
		if c.Takes(flag) {
			f(flag)
		}
	})
}

// Apply sets each flag that was not given on the command line from its variable, or else from the file, which may be
// nil. It returns the settings by name. The error joins a *Problem for each invalid value.
func (c Command) Apply(file *File, getenv func(string) string) ([]Setting, error) {
	var errs []error
	entries, err := file.section(c)
	errs = append(errs, err)
	var all []Setting
	c.each(func(f *pflag.Flag) {
		s := Setting{Name: f.Name, Source: "default"}
		switch entry, inFile := entries[f.Name]; {
		case f.Changed:
			s.Source, s.Where = "flag", "--"+f.Name
		case getenv(c.Variable(f.Name)) != "":
			s.Source, s.Where = "environment", c.Variable(f.Name)
			errs = append(errs, c.set(f, s.Where, lines(f, getenv(s.Where))))
		case inFile:
			s.Source, s.Where = "file", entry.where
			errs = append(errs, c.set(f, s.Where, entry.values))
		}
		s.Value = Redact(f.Value.String())
		all = append(all, s)
	})
	return all, errors.Join(errs...)
}

// lines splits the value of a variable: each line is a value of a flag that can be repeated.
func lines(f *pflag.Flag, text string) []string {
	if !repeats(f) {
		return []string{text}
	}
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

func repeats(f *pflag.Flag) bool {
	return slices.Contains([]string{"stringArray", "stringSlice", "stringToString"}, f.Value.Type())
}

// set sets a flag as the command line does.
func (c Command) set(f *pflag.Flag, where string, values []string) error {
	for _, v := range values {
		if err := c.Flags.Set(f.Name, v); err != nil {
			p := &Problem{Where: where, Name: c.Name + "." + f.Name, Value: v, Want: want(f, err)}
			if strings.Contains(p.Want, strconv.Quote(v)) {
				p.Value = "" // it is in the text
			}
			return p
		}
	}
	return nil
}

// want describes a valid value of a flag.
func want(f *pflag.Flag, err error) string {
	texts := map[string]string{
		"bool": "true or false", "int": "a whole number", "int32": "a whole number", "int64": "a whole number", "float64": "a number",
		"duration": "a duration such as 15s", "stringToString": "NAME=VALUE",
	}
	if text, known := texts[f.Value.Type()]; known {
		return "must be " + text
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return "is not valid: " + err.Error()
}

// Redact replaces passwords in URLs, and the values of parameters that look like secrets.
func Redact(value string) string {
	value = regexp.MustCompile(`://[^/@\s,]+@`).ReplaceAllString(value, "://REDACTED@")
	return regexp.MustCompile(`(?i)([?&][^=&,\s]*(?:secret|password|token|key)[^=&,\s]*=)[^&,\s\]]+`).ReplaceAllString(value, "${1}REDACTED")
}
