package trace

import (
	"errors"
	"strings"
	"testing"
)

// The error about a bad value has its file, line, field and value, as fields and in its text.
func TestABadValueIsNamed(t *testing.T) {
	t.Parallel()
	const head = "job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\na,0,1,5,,,,,\n"
	const jsonHead = `{"kind":"trace","version":1,"name":"t"}` + "\n"
	for _, c := range []struct {
		file, text, column, value, message string
		line                               int
	}{
		{"a.csv", head + "b,0,1.5,5,,,,,\n", "num_gpus", "1.5", `a.csv:3: column num_gpus: "1.5": want a whole number, 0 to 1048576`, 3},
		{"a.csv", head + "b,,1,5,,,,,\n", "submit_s", "", `a.csv:3: column submit_s: "": want a number, 0 or more`, 3},
		{"a.csv", head + "a,0,1,5,,,,,\n", "job id", "a", `a.csv:3: column job id: "a": is a duplicate: want unique ids`, 3},
		{
			"a.jsonl", jsonHead + `{"kind":"job","id":"x","min_gpus":3,"max_gpus":2,"share":1}` + "\n", "gpus", "3-2",
			`a.jsonl:2: column gpus: "3-2": want 0 <= min <= max <= 1048576`, 2,
		},
		{"a.jsonl", jsonHead + `{"kind":"tree"}` + "\n", "kind", "tree", `a.jsonl:2: column kind: "tree": want trace, app or job`, 2},
	} {
		_, err := Read(strings.NewReader(c.text), c.file, Options{})
		bad, ok := errors.AsType[*RowError](err)
		if !ok || bad.Value == nil {
			t.Errorf("%s: %v is no RowError with a value", c.message, err)
			continue
		}
		if bad.File != c.file || bad.Line != c.line || bad.Column != c.column || *bad.Value != c.value || err.Error() != c.message {
			t.Errorf("got %+v (%s), want %s", *bad, err, c.message)
		}
	}
}

func TestAJobsBadFieldIsNamed(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Job){
		"gpus 0-1: want at least 1 of a job that uses GPUs": func(j *Job) { j.MinGPUs = 0 },
		"share 2: want more than 0 and at most 1":           func(j *Job) { j.Share = 2 },
		"nodes -1: want 0 or more":                          func(j *Job) { j.Nodes = -1 },
		"weight -1: want 0 to 1e+12":                        func(j *Job) { j.Weight = -1 },
		"id is empty: want a name":                          func(j *Job) { j.ID = "" },
	} {
		j := Job{ID: "a", MinGPUs: 1, MaxGPUs: 1, Share: 1, Duration: 1, Weight: 1}
		if err := j.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&j)
		bad, ok := errors.AsType[*FieldError](j.Validate())
		if !ok || bad.Error() != want || !strings.HasPrefix(want, bad.Field) {
			t.Errorf("got %v, want %s", bad, want)
		}
	}
}
