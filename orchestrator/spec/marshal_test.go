package spec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// genValue draws any JSON value, including texts that YAML could read as another type.
func genValue(t *rapid.T, depth int) any {
	kinds := 5
	if depth == 0 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 0:
		return genText(t)
	case 1:
		return rapid.Float64().Draw(t, "number")
	case 2:
		return float64(rapid.Int64Range(-1<<53, 1<<53).Draw(t, "whole"))
	case 3:
		return rapid.SampledFrom([]any{nil, true, false}).Draw(t, "plain")
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, genValue(t, depth-1))
		}
		return list
	default:
		object := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			object[genText(t)] = genValue(t, depth-1)
		}
		return object
	}
}

func genText(t *rapid.T) string {
	odd := []string{
		"", "1", "1.0", "1e3", "0x1F", "0o7", "1_000", "yes", "no", "on", "true", "null", "~", "<<", "=", "2020-01-01",
		".inf", ".nan", "- a", "a: b", "# c", "*a", "&a", "!t", "|", ">", "%", "@", "`", "{a}", "[a]", "'", "\"", "\\",
		" a ", "a\n", "\na", "a\n\nb\n", "\ta", "\x01", "\u0085", "\u2028", "\ufeff", "é😀", "---", "...", "?", ":", "-",
		"1:30", "a\r\nb", "\u007f",
	}
	if rapid.Bool().Draw(t, "odd") {
		return rapid.SampledFrom(odd).Draw(t, "text")
	}
	return rapid.String().Draw(t, "text")
}

// The YAML of any spec is read back as the same spec.
func TestMarshalLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := mustParse(t, good)
		v, err := structpb.NewValue(genValue(rt, 2))
		if err != nil {
			rt.Skip("not a value that a spec can hold")
		}
		s.Space["lr"].Kind = &outbidv1.Parameter_Constant{Constant: v}
		s.Labels = map[string]string{"note": genText(rt), "x" + genText(rt): "v"}
		s.GetProgram().Workdir = genText(rt)
		if Check(s) != nil {
			rt.Skip("not a valid spec")
		}
		text, err := Marshal(s)
		if err != nil {
			rt.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil {
			rt.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(s, again, protocmp.Transform()); diff != "" {
			rt.Fatalf("(-want +got):\n%s\n%s", diff, text)
		}
	})
}
