package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/outbid-dev/outbid/orchestrator/spec"
)

// File is a configuration file: YAML with a section for each command, whose keys are the names of flags.
type File struct {
	path     string
	sections map[string]*yaml.Node
}

// entry is a key of a section.
type entry struct {
	where  string
	values []string
}

// ReadFile reads a file with sections of the named commands. After an error about a section it also returns the others.
func ReadFile(path string, commands ...string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if err := spec.SyntaxError(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &File{path: path, sections: map[string]*yaml.Node{}}
	var root yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&root); errors.Is(err, io.EOF) {
		return f, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var errs []error
	errs = append(errs, f.pairs(root.Content[0], "", func(key, value *yaml.Node) error {
		if !slices.Contains(commands, key.Value) {
			return &Problem{Where: f.at(key), Name: key.Value, Want: "is not a section; must be " + strings.Join(commands, " or ")}
		}
		f.sections[key.Value] = value
		return nil
	}))
	if err := errors.Join(errs...); err != nil {
		return f, err
	}
	return f, nil
}

// Has reports whether the file has settings of a command.
func (f *File) Has(command string) bool { return f != nil && f.sections[command] != nil }

// Line returns the place of a command's setting: its line, or that of the command if it is not in the file.
func (f *File) Line(command, name string) string {
	section := f.sections[command]
	for i := 0; i+1 < len(section.Content); i += 2 {
		if section.Content[i].Value == name {
			return f.at(section.Content[i])
		}
	}
	return f.at(section)
}

func (f *File) at(n *yaml.Node) string { return fmt.Sprintf("%s:%d", f.path, n.Line) }

// pairs calls each with the keys of a mapping.
func (f *File) pairs(n *yaml.Node, name string, each func(key, value *yaml.Node) error) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return &Problem{Where: f.at(n), Name: name, Want: "must be a mapping of names to values"}
	}
	var errs []error
	for i := 0; i < len(n.Content); i += 2 {
		errs = append(errs, each(n.Content[i], n.Content[i+1]))
	}
	return errors.Join(errs...)
}

// section returns the entries of a command's section by the name of their flag.
func (f *File) section(c Command) (map[string]entry, error) {
	if f == nil || f.sections[c.Name] == nil {
		return nil, nil
	}
	entries := map[string]entry{}
	err := f.pairs(f.sections[c.Name], c.Name, func(key, value *yaml.Node) error {
		flag := c.Flags.Lookup(key.Value)
		if flag == nil || !c.Takes(flag) {
			return &Problem{Where: f.at(key), Name: c.Name + "." + key.Value, Want: "is not a setting; must be one of " + strings.Join(c.names(), ", ")}
		}
		values, problem := f.values(c, flag, value)
		if problem != nil {
			return problem
		}
		entries[flag.Name] = entry{f.at(key), values}
		return nil
	})
	return entries, err
}

func (c Command) names() []string {
	var names []string
	c.each(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// values returns the values of a flag: one, or those of a list or a mapping if the flag can be repeated.
func (f *File) values(c Command, flag *pflag.Flag, n *yaml.Node) ([]string, error) {
	scalar := func(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag != "!!null" }
	wrong := &Problem{Where: f.at(n), Name: c.Name + "." + flag.Name, Want: "must be a single value"}
	if repeats(flag) {
		wrong.Want = "must be a value, a list of values, or a mapping of names to values"
	}
	if scalar(n) {
		return []string{n.Value}, nil
	}
	if !repeats(flag) || n.Kind != yaml.SequenceNode && n.Kind != yaml.MappingNode {
		return nil, wrong
	}
	var values []string
	for i, v := range n.Content {
		switch {
		case !scalar(v):
			return nil, wrong
		case n.Kind == yaml.MappingNode && i%2 == 1:
			values[len(values)-1] += "=" + v.Value
		default:
			values = append(values, v.Value)
		}
	}
	return values, nil
}
