package spec

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A part of a template is literal text or the dotted path of a parameter.
type part struct {
	text  string
	param bool
}

// parseTemplate splits a template: {name} and {group.name} are parameters, {{ and }} are literal braces.
func parseTemplate(text string) ([]part, error) {
	var parts []part
	var literal strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		doubled := i+1 < len(text) && text[i+1] == c
		switch {
		case c != '{' && c != '}':
			literal.WriteByte(c)
		case doubled:
			literal.WriteByte(c)
			i++
		case c == '}':
			return nil, badBrace(text[:i], "the } after %q has no matching {; write }} for a literal brace", tail(text[:i]))
		default:
			name, _, closed := strings.Cut(text[i+1:], "}")
			if !closed {
				return nil, badBrace(text[:i], "the { before %q is not closed; write {{ for a literal brace", head(text[i+1:]))
			}
			if literal.Len() > 0 {
				parts = append(parts, part{text: literal.String()})
				literal.Reset()
			}
			parts = append(parts, part{text: name, param: true})
			i += len(name) + 1
		}
	}
	if literal.Len() > 0 {
		parts = append(parts, part{text: literal.String()})
	}
	return parts, nil
}

// badBrace returns an error about a brace. before is the text up to the brace.
func badBrace(before, format string, args ...any) *Error {
	e := wrong("", format, args...)
	e.lines = 1 + strings.Count(before, "\n")
	return e
}

func head(s string) string {
	runes := []rune(s)
	return string(runes[:min(20, len(runes))])
}

func tail(s string) string {
	runes := []rune(s)
	return string(runes[max(0, len(runes)-20):])
}

// Render fills a configuration into a program's command line and environment. In the shell form, whose argv is that of
// /bin/sh -c, a value is quoted so that the shell passes it unchanged, whether it is unquoted, in ” or in "". Numbers
// are written as in the configuration's JSON, text unchanged, lists and objects as JSON. A parameter that is absent
// because of its condition is empty text. env holds only the variables in the spec.
func Render(p *outbidv1.Program, cfg space.Config) (argv []string, env map[string]string, err error) {
	if p.GetShell() != "" {
		text, err := renderShell(p.GetShell(), cfg)
		if err != nil {
			return nil, nil, wrong("program.shell", "%v", err)
		}
		argv = []string{"/bin/sh", "-c", text}
	}
	for i, arg := range p.GetCommand() {
		text, err := renderPlain(arg, cfg)
		if err != nil {
			return nil, nil, wrong("program.command["+itoa(i)+"]", "%v", err)
		}
		argv = append(argv, text)
	}
	env = make(map[string]string, len(p.GetEnv()))
	for _, name := range sortedKeys(p.GetEnv()) {
		text, err := renderPlain(p.GetEnv()[name], cfg)
		if err != nil {
			return nil, nil, wrong("program.env."+name, "%v", err)
		}
		env[name] = text
	}
	return argv, env, nil
}

func renderPlain(template string, cfg space.Config) (string, error) {
	parts, err := parseTemplate(template)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		if !p.param {
			b.WriteString(p.text)
			continue
		}
		v, err := value(cfg, p.text)
		if err != nil {
			return "", err
		}
		b.WriteString(v)
	}
	return b.String(), nil
}

func renderShell(template string, cfg space.Config) (string, error) {
	parts, err := parseTemplate(template)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	q := quoting{}
	for _, p := range parts {
		if !p.param {
			q.read(p.text)
			b.WriteString(p.text)
			continue
		}
		v, err := value(cfg, p.text)
		if err != nil {
			return "", err
		}
		b.WriteString(q.quote(v))
	}
	return b.String(), nil
}

// value returns a parameter's value as text.
func value(cfg space.Config, path string) (string, error) {
	var v any = cfg
	for key := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return "", nil
		}
		if v, ok = m[key]; !ok {
			return "", nil
		}
	}
	text, isText := v.(string)
	if !isText {
		wrapped, err := space.Canonical(space.Config{"": v})
		if err != nil {
			return "", fmt.Errorf("parameter %s: %w", path, err)
		}
		text = strings.TrimSuffix(strings.TrimPrefix(wrapped, `{"":`), "}")
	}
	if strings.Contains(text, "\x00") {
		return "", fmt.Errorf("parameter %s has a zero byte, which a command line cannot contain", path)
	}
	return text, nil
}

// quoting tracks the quotes of a shell command. The stack has an entry for each open $(.
type quoting struct {
	mode    byte // 0, ' or "
	stack   []byte
	comment bool
	escaped bool
	last    byte
}

// read advances over literal text.
func (q *quoting) read(text string) {
	for i := range len(text) {
		c := text[i]
		switch {
		case q.comment:
			q.comment = c != '\n'
		case q.escaped:
			q.escaped = false
		case q.mode == '\'':
			if c == '\'' {
				q.mode = 0
			}
		case c == '\\':
			q.escaped = true
		case q.mode == '"' && c == '"':
			q.mode = 0
		case c == '"', q.mode == 0 && c == '\'':
			q.mode = c
		case c == '(' && q.last == '$':
			q.stack = append(q.stack, q.mode)
			q.mode = 0
		case c == ')' && q.mode == 0 && len(q.stack) > 0:
			q.mode = q.stack[len(q.stack)-1]
			q.stack = q.stack[:len(q.stack)-1]
		case c == '#' && q.mode == 0 && (q.last == 0 || strings.IndexByte(" \t\n;&|(", q.last) >= 0):
			q.comment = true
		}
		q.last = c
	}
}

// quote escapes a value for the current position, so that the shell passes it unchanged.
func (q *quoting) quote(v string) string {
	q.last = 'x'
	switch q.mode {
	case '\'':
		return strings.ReplaceAll(v, `'`, `'\''`)
	case '"':
		return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(v)
	}
	safe := v != ""
	for _, r := range v {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_@%+=:,./-", r) {
			safe = false
		}
	}
	if safe {
		return v
	}
	return `'` + strings.ReplaceAll(v, `'`, `'\''`) + `'`
}

// checkTemplate checks the syntax of a template and that its names are parameters.
func checkTemplate(field, template string, s *space.Space) error {
	if strings.Contains(template, "\x00") {
		return wrong(field, "%s has a zero byte, which a command line cannot contain", strconv.Quote(template))
	}
	parts, err := parseTemplate(template)
	if bad, ok := errors.AsType[*Error](err); ok {
		bad.Field = field
		return bad
	}
	line := 1
	for _, p := range parts {
		if !p.param {
			line += strings.Count(p.text, "\n")
			continue
		}
		if _, exists := s.Always(p.text); !exists {
			bad := wrong(field, "{%s} is not a parameter; %s (write {{ or }} for a literal brace)", p.text,
				suggestion(p.text, s.Names()))
			bad.lines = line
			return bad
		}
	}
	return nil
}
