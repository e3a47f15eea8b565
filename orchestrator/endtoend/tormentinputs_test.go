package endtoend

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// hostileInput is an input from the reviews that a tenant can send.
type hostileInput struct {
	name string
	send func(ctx context.Context, m *torment, c outbidv1.OutbidServiceClient) error
}

// hostileInputs returns all of them.
func hostileInputs() []hostileInput {
	inputs := []hostileInput{
		{"B1: values of 2.5 MB", submits(func(m *torment) *outbidv1.SweepSpec { return bigSweep(40, 2_500_000) })},
		{"B1: configurations of 55 KB", submits(func(m *torment) *outbidv1.SweepSpec { return bigSweep(40, 55_000) })},
		{"B1: submits of 1.9 MB", func(ctx context.Context, m *torment, c outbidv1.OutbidServiceClient) (err error) {
			for range 8 {
				err = submits(func(m *torment) *outbidv1.SweepSpec { return bigSweep(40, 47_500, 40) })(ctx, m, c)
			}
			return err
		}},
		{"H3: labels of 60 KB", submits(func(m *torment) *outbidv1.SweepSpec {
			spec := bigSweep(1, 10)
			spec.Labels = map[string]string{}
			for i := range 60 {
				spec.Labels[fmt.Sprint("label", i)] = strings.Repeat("x", 1000)
			}
			return spec
		})},
		{"low: names with bidirectional overrides", submits(func(m *torment) *outbidv1.SweepSpec {
			spec := bigSweep(1, 10)
			spec.Name, spec.Labels = "bidi", map[string]string{"note": "abc\u202edef"}
			return spec
		})},
		{"hostile programs", submits(func(m *torment) *outbidv1.SweepSpec {
			return m.program(m.trainer, map[string]string{"HOSTILE": fmt.Sprint(m.rng.Uint64())})
		})},
		{"H3: streams", followLogs},
		{"deletes", deleteOne},
	}
	for name, script := range hostileScripts() {
		inputs = append(inputs, hostileInput{name, submits(func(m *torment) *outbidv1.SweepSpec {
			escaped := strings.NewReplacer("{", "{{", "}", "}}").Replace(script)
			return m.program("sh", nil, "-c", escaped)
		})})
	}
	return inputs
}

// hostileScripts returns shell scripts of hostile programs. Each ends by itself within some seconds.
func hostileScripts() map[string]string {
	many := make(map[string]any, 900)
	for i := range 900 {
		many[fmt.Sprintf("m%045d", i)] = i // encoded they take 55 KB of the 60 that a report may have
	}
	const again = `i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo '{"step": 1, "loss": 1, "checkpoint": "'$PWD/ckpt'"}' >> $OUTBID_REPORT; sleep .05; done`
	return map[string]string{
		"B1: reports of 900 metrics": "for i in 1 2 3 4 5 6 7 8; do echo '" + strings.Replace(lineOf(many), "{", `{"loss":1,`, 1) +
			"' >> $OUTBID_REPORT; sleep .3; done",
		"B2: a last line that is not UTF-8": `printf 'K\366nnte nicht lesen\n' >&2; exit 3`,
		"B2: a last line that is cut":       `i=0; while [ $i -lt 999 ]; do printf a; i=$((i+1)); done >&2; printf 'ä more\n' >&2; exit 3`,
		"B3: a program that is missing":     `exec /no/such/program`,
		"B4: the worker's files": `for n in $(seq 0 60); do printf '{"step": %d, "loss": 1, "checkpoint": "/proc/self/fd/%d"}\n' $((n+1)) $n >> $OUTBID_REPORT; done; ` +
			`printf '{"step": 99, "loss": 1, "checkpoint": "/proc/self/root"}\n' >> $OUTBID_REPORT; sleep 1`,
		"H3: reports without a pause": `timeout 4 sh -c 'while :; do echo "{\"loss\": 1}"; done' >> $OUTBID_REPORT`,
		"H4: shared memory":           `ipcmk -M 50000000; ipcmk -S 10; ipcmk -Q; sleep 1`,
		"H5: a FIFO that is swapped":  `mkdir ckpt; echo x > ckpt/a; mkfifo b; (while :; do mv ckpt/a t; mv b ckpt/a; mv ckpt/a b; mv t ckpt/a; done) & ` + again + `; kill $!`,
		"M8: a sparse checkpoint":     `truncate -s 3G ckpt; echo '{"step": 1, "loss": 1, "checkpoint": "'$PWD/ckpt'"}' >> $OUTBID_REPORT; sleep 1`,
		"a full scratch disk":         `timeout 3 head -c 3G /dev/zero > filler; exit 1`,
		"processes without end":       `timeout 3 sh -c 'f() { f | f & }; f; sleep 3'; exit 1`,
	}
}

// submits returns an input that submits a sweep of the hostile tenant.
func submits(make func(m *torment) *outbidv1.SweepSpec) func(context.Context, *torment, outbidv1.OutbidServiceClient) error {
	return func(ctx context.Context, m *torment, c outbidv1.OutbidServiceClient) error {
		spec := make(m)
		spec.Tenant = "bad"
		r, err := c.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{Spec: spec})
		if err == nil {
			m.bad = append(m.bad, r.GetSweep().GetId())
		}
		return err
	}
}

// program returns a sweep of two trials of a program.
func (m *torment) program(path string, env map[string]string, args ...string) *outbidv1.SweepSpec {
	spec := job{name: "bad", tuner: random(0), trials: 2}.bare()
	spec.MaxRestarts = new(int32(0))
	spec.Limits.WallTime = "60s"
	if env == nil {
		env = map[string]string{}
	}
	env["TORMENT"] = m.dir
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: append([]string{path}, args...), Env: env, Grace: "1s"}}
	return spec
}

// bigSweep returns a sweep with the given number of trials, and the given bytes of text in each configuration, in one
// or more values.
func bigSweep(trials int32, bytes int, values ...int) *outbidv1.SweepSpec {
	spec := job{name: "big", tuner: random(1), trials: trials}.bare()
	spec.Limits.WallTime, spec.MaxRestarts = "60s", new(int32(0))
	choice := &outbidv1.Choice{}
	for i := range append(values, 1)[0] {
		choice.Values = append(choice.Values, structpb.NewStringValue(strings.Repeat("v", bytes)+fmt.Sprint(i)))
	}
	spec.Space["text"] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Choice{Choice: choice}}
	spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{"sh", "-c", `echo '{{"loss": 1}}' >> $OUTBID_REPORT`}}}
	return spec
}

// followLogs opens log streams and abandons them.
func followLogs(ctx context.Context, m *torment, c outbidv1.OutbidServiceClient) error {
	if len(m.bad) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var last error
	for range 200 {
		stream, err := c.StreamLogs(ctx, &outbidv1.StreamLogsRequest{Sweep: m.bad[m.rng.IntN(len(m.bad))], Follow: true})
		if err != nil {
			return err
		}
		last = stream.CloseSend()
	}
	return last
}

// deleteOne stops and deletes a sweep of the hostile tenant.
func deleteOne(ctx context.Context, m *torment, c outbidv1.OutbidServiceClient) error {
	if len(m.bad) == 0 {
		return nil
	}
	id := m.bad[m.rng.IntN(len(m.bad))]
	_, err := c.ControlSweep(ctx, &outbidv1.ControlSweepRequest{Sweep: id, Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP})
	if err == nil {
		_, err = c.DeleteSweep(ctx, &outbidv1.DeleteSweepRequest{Sweep: id})
	}
	return err
}
