package space

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"
)

const (
	// These limits bound the cost of checking one configuration.
	maxConstraints   = 100
	maxConstraintLen = 1000
	maxNodes         = 500
)

// A constraint is a compiled expression over a configuration.
type constraint struct {
	text    string
	program *vm.Program
	// needs are the parameters and groups that it mentions.
	needs [][]string
}

func compileConstraints(s *Space, texts []string) ([]*constraint, error) {
	if len(texts) > maxConstraints {
		return nil, wrong("constraints", "must be at most %d, got %d; join some with \"and\"",
			maxConstraints, len(texts))
	}
	env := s.types()
	var out []*constraint
	for i, text := range texts {
		c, err := s.compileConstraint(fmt.Sprintf("constraints[%d]", i), text, env)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func (s *Space) compileConstraint(field, text string, env types.Map) (*constraint, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, wrong(field, "is empty; write a condition such as \"lr * batch < 10\"")
	case len(text) > maxConstraintLen:
		return nil, wrong(field, "is longer than %d bytes", maxConstraintLen)
	}
	tree, err := parser.Parse(text)
	if err != nil {
		return nil, s.badConstraint(field, text, err)
	}
	m := mentions{space: s}
	ast.Walk(&tree.Node, &m)
	if m.refused != "" {
		return nil, wrong(field, "%q %s", short(text), m.refused)
	}
	options := []expr.Option{expr.Env(env), expr.AsBool(), expr.MaxNodes(maxNodes), expr.DisableAllBuiltins()}
	for _, name := range functions() {
		options = append(options, expr.EnableBuiltin(name))
	}
	program, err := expr.Compile(text, options...)
	if err != nil {
		return nil, s.badConstraint(field, text, err)
	}
	return &constraint{text: text, program: program, needs: m.needs}, nil
}

// functions lists the functions that a constraint may call. They do not read the clock, so that replays are the same,
// and do not build large values from small ones.
func functions() []string {
	return []string{
		"abs", "ceil", "floor", "round", "int", "float", "string", "lower", "upper", "len", "first", "last",
		"max", "min", "mean", "median", "sum", "count", "all", "any", "none", "one", "filter", "map",
	}
}

func (s *Space) badConstraint(field, text string, err error) error {
	where, message := "", err.Error()
	if fe, ok := errors.AsType[*file.Error](err); ok {
		message = fe.Message
		where = fmt.Sprintf(" (column %d)", fe.Column+1)
	}
	message, _, _ = strings.Cut(message, "\n")
	if got, ok := strings.CutPrefix(message, "expected bool, but got "); ok {
		message = "gives " + got + "; must be true or false, such as a comparison"
	}
	if strings.HasPrefix(message, "unknown name") {
		message += "; the parameters are " + s.nameList() + ", and functions such as abs, min and max exist"
	}
	return wrong(field, "%q: %s%s", short(text), message, where)
}

// types returns the types of the parameters for the expression checker.
func (s *Space) types() types.Map {
	root := types.Map{}
	for _, l := range s.leaves {
		at := root
		for _, k := range l.keys[:len(l.keys)-1] {
			inner, ok := at[k].(types.Map)
			if !ok {
				inner = types.Map{}
				at[k] = inner
			}
			at = inner
		}
		at[l.keys[len(l.keys)-1]] = typeOf(l.dist)
	}
	return root
}

func typeOf(d dist) types.Type {
	switch d := d.(type) {
	case floatDist, normalDist:
		return types.Float64
	case intDist:
		return types.Int64
	case constDist:
		return typeOfValues([]any{d.value})
	case choiceDist:
		return typeOfValues(d.values)
	default:
		return types.Any
	}
}

// typeOfValues returns the type that all values share, or types.Any if they differ.
func typeOfValues(values []any) types.Type {
	var shared types.Type
	for _, v := range values {
		var t types.Type
		switch v.(type) {
		case int64:
			t = types.Int64
		case float64:
			t = types.Float64
		case string:
			t = types.String
		case bool:
			t = types.Bool
		default:
			return types.Any
		}
		if shared != nil && shared != t {
			return types.Any
		}
		shared = t
	}
	return shared
}

// mentions collects the parameters and groups that an expression names. It also rejects constructs that could be slow,
// because constraints are evaluated for every configuration in the one loop that serves all sweeps.
type mentions struct {
	space      *Space
	needs      [][]string
	refused    string
	predicates int
}

// Visit is called by ast.Walk for every node.
func (m *mentions) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.BinaryNode:
		if n.Operator == ".." {
			m.refused = "makes a range with ..; compare with < and > instead"
		}
	case *ast.VariableDeclaratorNode, *ast.SequenceNode:
		m.refused = "is more than one expression; write it without let and ;"
	case *ast.PredicateNode:
		if m.predicates++; m.predicates > 1 {
			m.refused = "looks through more than one list; write two constraints"
		}
	}
	keys := path(*node)
	if len(keys) == 0 || slices.ContainsFunc(m.needs, func(k []string) bool { return slices.Equal(k, keys) }) {
		return
	}
	name := strings.Join(keys, ".")
	_, isLeaf := m.space.byPath[name]
	if isLeaf || slices.ContainsFunc(m.space.groups, func(g *group) bool { return g.path == name }) {
		m.needs = append(m.needs, keys)
	}
}

// path returns a, b, c for the nested member access a.b.c, or nil for any other node.
func path(node ast.Node) []string {
	switch n := node.(type) {
	case *ast.IdentifierNode:
		return []string{n.Value}
	case *ast.ChainNode:
		return path(n.Node)
	case *ast.MemberNode:
		property, ok := n.Property.(*ast.StringNode)
		if !ok {
			return nil
		}
		around := path(n.Node)
		switch {
		case len(around) == 0:
			return nil
		case len(around) == 1 && around[0] == "$env":
			return []string{property.Value}
		default:
			return append(around, property.Value)
		}
	default:
		return nil
	}
}

// Allowed reports whether a configuration meets every constraint. A constraint that mentions a parameter that is absent
// because of its condition is met. One whose evaluation fails, such as a division by 0, is not met.
func (s *Space) Allowed(cfg Config) bool { return s.Violated(cfg) == "" }

// Violated returns the text of the first constraint that a configuration does not meet, or "" if it meets all.
func (s *Space) Violated(cfg Config) string {
	for _, c := range s.constraints {
		if !c.holds(cfg) {
			return c.text
		}
	}
	return ""
}

func (c *constraint) holds(cfg Config) bool {
	for _, keys := range c.needs {
		if _, ok := lookup(cfg, keys); !ok {
			return true
		}
	}
	result, err := vm.Run(c.program, cfg)
	held, isBool := result.(bool)
	return err == nil && isBool && held
}
