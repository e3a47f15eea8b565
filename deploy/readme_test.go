package deploy

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const chartPage = "chart/README.md"

// page is a page of documentation whose blocks marked sh are run.
type page struct {
	// blocks are those marked sh, values those marked yaml, inline the commands within sentences.
	blocks, values, inline []string
	// marks are those of all blocks.
	marks []string
}

// readPage reads a page.
func readPage(t *testing.T, file string) page {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p page
	var text strings.Builder
	for i, part := range strings.Split("\n"+string(data), "\n```") {
		mark, body, _ := strings.Cut(part, "\n")
		switch {
		case i%2 == 0:
			text.WriteString(body + "\n")
			continue
		case mark == "sh":
			p.blocks = append(p.blocks, body)
		case mark == "yaml":
			p.values = append(p.values, body)
		}
		p.marks = append(p.marks, mark)
	}
	for _, m := range regexp.MustCompile("`((?:outbid|kubectl|helm|make) [^`]*)`").FindAllStringSubmatch(text.String(), -1) {
		p.inline = append(p.inline, strings.Join(strings.Fields(m[1]), " "))
	}
	if len(p.blocks) < 5 {
		t.Fatalf("%s has %d blocks", file, len(p.blocks))
	}
	return p
}

// commands returns the beginnings of the commands of all blocks, up to what the shell expands or redirects.
func (p page) commands() []string {
	text := strings.Join(p.blocks, "\n")
	text = regexp.MustCompile(`(?s)<<'END'\n.*?\nEND\n`).ReplaceAllString(text+"\n", "\n")
	text = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, " ")
	var found []string
	for _, c := range regexp.MustCompile(`[|;&\n]+`).Split(text, -1) {
		c = regexp.MustCompile(`^\s*(?:(?:until|while|if|then|do|done)\b\s*)*`).ReplaceAllString(c, "")
		c = strings.TrimSpace(regexp.MustCompile(`[<>$#].*`).ReplaceAllString(c, ""))
		if c = strings.Join(strings.Fields(c), " "); c != "true" && regexp.MustCompile(`^[a-zA-Z]`).MatchString(c) {
			found = append(found, c)
		}
	}
	return found
}

// notRun returns the commands that are not among those that a shell ran.
func notRun(commands, ran []string) []string {
	return slices.DeleteFunc(slices.Clone(commands), func(c string) bool {
		return slices.ContainsFunc(ran, func(r string) bool { return strings.HasPrefix(strings.Join(strings.Fields(r), " "), c) })
	})
}

// notForReaders are commands in sentences of the chart's README that are not in its blocks.
var notForReaders = map[string]string{ //nolint:gochecknoglobals // a table
	"make image":           "make test-kubernetes runs it first",
	"make image CA_BUNDLE": "another image",
	"make test-kubernetes": "the test itself",
	"outbid serve":         "the chart starts it",
	"outbid token create":  "a test runs it from docs/operate/security.md",
	"kubectl drain":        "the node of the test is the only one",
}

// Whoever adds a command to the README in such a way that TestKubernetes does not run it learns of it here.
func TestChartsReadmeIsRunnable(t *testing.T) {
	t.Parallel()
	p := readPage(t, chartPage)
	for _, mark := range p.marks {
		if mark != "sh" && mark != "yaml" {
			t.Errorf("a block is marked %q: mark commands sh, so that they are run, and values yaml", mark)
		}
	}
	used := map[string]bool{}
	for _, c := range p.inline {
		known := len(notRun([]string{c}, p.commands())) == 0
		for other := range notForReaders {
			if c == other || strings.HasPrefix(c, other+"=") {
				known, used[other] = true, true
			}
		}
		if !known {
			t.Errorf("%q is in a sentence, and so is not run: put it into a block", c)
		}
	}
	for c := range notForReaders {
		if !used[c] {
			t.Errorf("no sentence has %q", c)
		}
	}
}

// The chart accepts the values that its README prints. Those of TestKubernetes suit a small node.
func TestChartsReadmeValues(t *testing.T) {
	t.Parallel()
	p := readPage(t, chartPage)
	if len(p.values) != 1 {
		t.Fatalf("%d blocks of values", len(p.values))
	}
	cmd := exec.CommandContext(t.Context(), helm(t), "template", "outbid", "chart", "--namespace", "ml", "-f", "-")
	cmd.Stdin = strings.NewReader(p.values[0])
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "outbid-worker-h100") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The comparison of TestKubernetes finds a command that was not run, and no other.
func TestNotRun(t *testing.T) {
	t.Parallel()
	p := page{blocks: []string{`umask 077
kubectl -n ml create secret generic a $(for f in keys/*.nk; do echo --from-file=$f; done)
cat > b.yaml <<'END'
- {not: a command}
END
while sleep 1; do kubectl port-forward service/outbid 7700 || true; done > log 2>&1 &
until outbid --token-file root.token nodes; do sleep 1; done`, `outbid backup save x --nats tls://a:4222 \
  --store "$STORE"
kubectl get -o yaml |
  kubectl replace -f -
for n in 0 1; do
  until kubectl exec nats-$n; do sleep 5; done
done`}}
	ran := []string{
		"umask 077", "kubectl -n ml create secret generic a $(for f in keys/*.nk; do echo --from-file=$f; done)", "for f in keys/*.nk",
		"echo --from-file=$f", "cat > b.yaml <<'END'", "sleep 1", "kubectl port-forward service/outbid 7700", "outbid --token-file root.token nodes",
		`outbid backup save x --nats tls://a:4222 --store "$STORE"`, "kubectl get -o yaml", "kubectl replace -f -",
		"for n in 0 1", "kubectl exec nats-$n", "sleep 5",
	}
	if missing := notRun(p.commands(), ran); len(missing) > 0 {
		t.Errorf("these were run: %q", missing)
	}
	for _, gone := range []int{0, 1, 4, 6, 7, 8, 9, 10, 11, 12} {
		if missing := notRun(p.commands(), slices.Delete(slices.Clone(ran), gone, gone+1)); len(missing) != 1 || !strings.HasPrefix(ran[gone], missing[0]) {
			t.Errorf("without %q: %q", ran[gone], missing)
		}
	}
}
