package spec

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const withSecret = `
name: digits
space: {lr: {float: {low: 0, high: 1}}}
metric: loss
mode: min
tuner: {random: {}}
limits: {trials: 1}
program:
  command: [train]
  env:
    PLAIN: "3"
    WANDB_API_KEY: {secret: wandb}
    HF_TOKEN:
      secret: hugging-face
`

func TestASecretInEnvIsReadAndWrittenAsOne(t *testing.T) {
	t.Parallel()
	s, err := Parse([]byte(withSecret))
	if err != nil {
		t.Fatal(err)
	}
	got := Secrets(s)
	if len(got) != 2 || got["WANDB_API_KEY"] != "wandb" || got["HF_TOKEN"] != "hugging-face" || len(s.GetProgram().GetEnv()) != 1 {
		t.Errorf("secrets %v, env %v", got, s.GetProgram().GetEnv())
	}
	text, err := Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil || !proto.Equal(again, s) {
		t.Errorf("%v:\n%s", err, text)
	}
}

func TestWrongSecretsNameTheirFieldAndLine(t *testing.T) {
	t.Parallel()
	for old, c := range map[string]struct{ now, want string }{
		"secret: wandb":      {"secret: 'a b'", "line 12, column 5: program.secrets.WANDB_API_KEY: the name of a secret must be a letter or _"},
		"PLAIN: \"3\"":       {"OUTBID_X: {secret: a}", "program.secrets.OUTBID_X: is set by Outbid itself"},
		"{secret: wandb}":    {"{secrte: wandb}", "program.env.WANDB_API_KEY: is a mapping"},
		"HF_TOKEN:\n":        {"hf token:\n", "program.secrets: \"hf token\" is not a valid name of a variable"},
		"command: [train]\n": {"command: [train]\n  secrets: {PLAIN: a}\n", "program.secrets.PLAIN: is also in env"},
	} {
		_, err := Parse([]byte(strings.Replace(withSecret, old, c.now, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v", c.now, old, err)
		}
	}
}

func TestLooksSecret(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]bool{
		"WANDB_API_KEY": true, "HF_TOKEN": true, "AWS_SECRET_ACCESS_KEY": true, "PASSWORD": true, "DB_PASSWD": true, "apikey": true,
		"MONKEY": false, "KEYBOARD": false, "TOKENIZERS_PARALLELISM": false, "OMP_NUM_THREADS": false, "KEY": true,
	} {
		if got := LooksSecret(variable); got != want {
			t.Errorf("%s: %t", variable, got)
		}
	}
}

func TestEnvOfFunctionsAndPrograms(t *testing.T) {
	t.Parallel()
	f := &outbidv1.SweepSpec{Workload: &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{
		Env: map[string]string{"A": "b"}, Secrets: map[string]string{"C": "d"},
	}}}
	field, env := Env(f)
	if field != "function.env" || env["A"] != "b" || Secrets(f)["C"] != "d" || len(Secrets(&outbidv1.SweepSpec{})) != 0 {
		t.Errorf("%s %v %v", field, env, Secrets(f))
	}
}
