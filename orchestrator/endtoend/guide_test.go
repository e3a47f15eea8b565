package endtoend

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shellBlock is a block of commands in a page.
type shellBlock struct {
	line int
	text string
}

// shellBlocks returns the blocks of a page that are marked as sh.
func shellBlocks(t *testing.T, page string) []shellBlock {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []shellBlock
	var open *shellBlock
	for i, line := range strings.Split(string(data), "\n") {
		switch {
		case open == nil && line == "```sh":
			open = &shellBlock{line: i + 2}
		case open != nil && line == "```":
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return blocks
}

// elsewhere replaces the ports in a guide with free ones, because other tests and servers run on this machine.
func elsewhere(t *testing.T, text string) func(string) string {
	t.Helper()
	port := regexp.MustCompile(`127\.0\.0\.1:(\d{4})\b`)
	var printed []string
	for _, m := range port.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(printed, m[1]) {
			printed = append(printed, m[1])
		}
	}
	// The cluster's ports are built from a number in a loop, so their last digit must stay.
	base := freeTens(t, 3)
	tens := map[string]int{"422": base[0], "822": base[1], "622": base[2]}
	others := freePorts(t, len(printed))
	to := map[string]string{}
	for i, p := range printed {
		if ten, ok := tens[p[:3]]; ok {
			to[p] = fmt.Sprint(ten) + p[3:]
		} else {
			to[p] = strconv.Itoa(others[i])
		}
	}
	loop := regexp.MustCompile(`127\.0\.0\.1:(422|822|622)\$n\b`)
	return func(s string) string {
		s = loop.ReplaceAllStringFunc(s, func(m string) string { return fmt.Sprintf("127.0.0.1:%d$n", tens[m[10:13]]) })
		return port.ReplaceAllStringFunc(s, func(m string) string {
			if moved, ok := to[m[10:]]; ok {
				return "127.0.0.1:" + moved
			}
			return m // it was replaced with the loop
		})
	}
}

// freeTens returns numbers such that the ten ports with each number as prefix are free now.
func freeTens(t *testing.T, n int) []int {
	t.Helper()
	var tens []int
	for ten := 1100 + os.Getpid()%1500; len(tens) < n && ten < 3000; ten++ {
		if tenIsFree(ten) {
			tens = append(tens, ten)
		}
	}
	if len(tens) < n {
		t.Fatal("no ports are free")
	}
	return tens
}

func tenIsFree(ten int) bool {
	for digit := range 10 {
		if !portIsFree(10*ten + digit) {
			return false
		}
	}
	return true
}

// TestThePlatformGuide runs every command of the guide for platform engineers as printed, one after another, in a
// checkout. It replaces the ports, because this machine may use those of the guide, and skips the build in the first
// block.
func TestThePlatformGuide(t *testing.T) {
	t.Parallel()
	minio := os.Getenv("OUTBID_TEST_MINIO")
	if minio == "" {
		t.Skip("no MinIO: OUTBID_TEST_MINIO does not name one, as make test does")
	}
	nats, root := natsServer(t), repository(t)
	outbid, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"outbid": outbid, "minio": minio, "nats-server": nats} {
		if err := os.Symlink(path, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	var blocks []shellBlock
	for _, page := range []string{"deploy", "security", "monitor", "upgrade-and-backup", "three-nats-servers"} {
		blocks = append(blocks, shellBlocks(t, filepath.Join(root, "docs", "operate", page+".md"))...)
	}
	if len(blocks) < 10 || !strings.Contains(blocks[0].text, "go build -o bin/outbid .") {
		t.Fatalf("%d blocks, the first is %v", len(blocks), blocks)
	}
	files := []string{"deploy/nats/nats.conf", "deploy/nats/cluster.conf"}
	all := ""
	for _, file := range files {
		all += readText(t, filepath.Join(root, file))
	}
	for _, b := range blocks {
		all += b.text
	}
	move := elsewhere(t, all)
	for _, file := range files {
		to := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(move(readText(t, filepath.Join(root, file)))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runGuide(t, dir, blocks[1:], move)
}

// runGuide runs blocks in one shell, which ends at the first command that fails.
func runGuide(t *testing.T, dir string, blocks []shellBlock, move func(string) string) {
	t.Helper()
	script := "set -eu\nexport PATH=\"$PWD/bin:$PATH\" HOME=\"$PWD\"\nunset OUTBID_URL OUTBID_CA_FILE OUTBID_TOKEN\n"
	for _, b := range blocks {
		script += fmt.Sprintf("echo '=== line %d'\n%s", b.line, move(b.text))
	}
	path := filepath.Join(dir, "guide.sh")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newProc(t, dir, "bash", path)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what it leaves behind ends with the test
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.watch([]string{path})
	t.Cleanup(func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
	select {
	case <-p.ended:
	case <-time.After(3 * patience):
		t.Error("the guide takes too long")
		p.kill()
	}
	text, _ := p.out.text()
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		at := text[max(0, strings.LastIndex(text, "=== line ")):]
		t.Errorf("the block of the guide that begins with %.600s ended with code %d", at, code)
		logs, _ := filepath.Glob(filepath.Join(dir, "cluster", "*.log"))
		three, _ := filepath.Glob(filepath.Join(dir, "cluster", "three", "*.log"))
		for _, log := range append(logs, three...) {
			said := readText(t, log)
			t.Logf("%s ends with:\n%s", log, said[max(0, len(said)-1500):])
		}
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// repository returns the root of the checkout.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}
