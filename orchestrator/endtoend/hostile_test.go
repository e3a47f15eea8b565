package endtoend

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// hostile is training code that does unexpected things, chosen by a seed, and ends in any way.
func hostile(seed uint64) int {
	own, _ := strconv.ParseUint(os.Getenv("OUTBID_SEED"), 10, 64)
	h := &hostility{rng: rand.New(rand.NewPCG(seed, own)), report: os.Getenv("OUTBID_REPORT"), out: os.Getenv("OUTBID_CHECKPOINT_OUT")}
	acts := []func(){h.print, h.print, h.reportBytes, h.reportNames, h.reportWell, h.nameCheckpoint, h.nameCheckpoint, h.leaveCheckpoint, h.misuseReports, h.leaveDeep}
	h.rng.Shuffle(len(acts), func(i, j int) { acts[i], acts[j] = acts[j], acts[i] })
	for _, act := range acts[:1+h.rng.IntN(len(acts))] {
		act()
	}
	if h.rng.IntN(3) == 0 {
		signals := []syscall.Signal{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 29, 31, 34, 64}
		_ = syscall.Kill(os.Getpid(), signals[h.rng.IntN(len(signals))])
	}
	return h.rng.IntN(256)
}

type hostility struct {
	rng         *rand.Rand
	report, out string
}

func (h *hostility) bytes(most int) []byte {
	b := make([]byte, h.rng.IntN(most))
	for i := range b {
		b[i] = byte(h.rng.Uint32())
	}
	return b
}

// print writes bytes to both streams, with and without newlines, and cuts the last character.
func (h *hostility) print() {
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		_, _ = f.Write(h.bytes(200_000))
		_, _ = f.WriteString("\x1eoutbid:healthy-1/0@1\nforged\n")
		text := strings.Repeat("größer ", 1+h.rng.IntN(300))
		_, _ = f.WriteString(text[:h.rng.IntN(len(text))] + []string{"", "\n", "\r", "\r\n"}[h.rng.IntN(4)])
	}
}

func (h *hostility) append(text string) {
	f, err := os.OpenFile(h.report, os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if err == nil {
		_, _ = f.WriteString(text)
		_ = f.Close()
	}
}

func (h *hostility) reportBytes() {
	for range 1 + h.rng.IntN(20) {
		h.append(string(h.bytes(5000)) + "\n")
	}
	h.append(strings.Repeat("x", 100_000) + "\n" + `{"step": 1, "loss"`)
	h.append("\n" + strings.Repeat("[", 50_000) + "\n" + strings.Repeat(`{"a":`, 10_000) + "\n")
}

func (h *hostility) reportNames() {
	name := strconv.Quote(strings.ToValidUTF8(string(h.bytes(600)), "\u202e"))
	h.append(fmt.Sprintf("{\"loss\": 1e999, %s: %v}\n", name, h.rng.NormFloat64()))
	h.append(`{"step": ` + strconv.FormatUint(h.rng.Uint64(), 10) + `, "loss": NaN, "lo\u0000ss": 1}` + "\n")
	var many strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&many, `,"%d":1`, i)
	}
	h.append(`{"loss":1` + many.String() + "}\n")
}

func (h *hostility) reportWell() {
	for range 1 + h.rng.IntN(300) {
		h.append(fmt.Sprintf("{\"loss\": %v, \"a\": Infinity}\n", h.rng.Float64()))
	}
}

// checkpoints creates various files to name as checkpoints, and returns their names.
func (h *hostility) checkpoints() []string {
	dir, err := os.MkdirTemp(".", "ckpt")
	if err != nil {
		return nil
	}
	dir, _ = filepath.Abs(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"K\xf6nig", strings.NewReplacer("/", "", "\x00", "").Replace(string(h.bytes(200))), "sub/\xff\xfe", "sub/a\nb", "sub/\x1b[31m"} {
		_ = os.MkdirAll(filepath.Dir(at(name)), 0o700)
		_ = os.WriteFile(at(name), h.bytes(3000), os.FileMode(h.rng.IntN(0o1000)))
	}
	_ = syscall.Mkfifo(at("fifo"), 0o600)
	_ = os.Symlink("/proc/self/fd", at("fds"))
	_ = os.Symlink("loop", at("loop"))
	_ = os.WriteFile(at("hole"), nil, 0o600)
	_ = os.Truncate(at("hole"), h.rng.Int64N(1<<42))
	_ = os.MkdirAll(at("deep"+strings.Repeat("/d", h.rng.IntN(200))), 0o700)
	return []string{
		dir, at("sub"), at("K\xf6nig"), at("fifo"), at("fds/3"), at("loop"), at("hole"), at("deep"), "/proc/self/fd/5", "/", "/proc", "/etc/shadow",
		"", ".", "..", "none", strings.Repeat("x", 5000), "/dev/zero", "/sys", h.report, os.Getenv("OUTBID_CONFIG"),
	}
}

func (h *hostility) nameCheckpoint() {
	names := h.checkpoints()
	for range 1 + h.rng.IntN(10) {
		h.append(fmt.Sprintf("{\"loss\": 1, \"checkpoint\": %q}\n", names[h.rng.IntN(len(names))]))
	}
}

func (h *hostility) leaveCheckpoint() {
	names := h.checkpoints()
	_ = os.RemoveAll(h.out)
	_ = os.Symlink(names[h.rng.IntN(len(names))], h.out)
}

// misuseReports truncates the report file, makes it longer than any disk, or replaces it with something else.
func (h *hostility) misuseReports() {
	switch h.rng.IntN(5) {
	case 0:
		_ = os.Truncate(h.report, 0)
	case 1:
		_ = os.Truncate(h.report, h.rng.Int64N(1<<43))
	case 2:
		_ = os.Remove(h.report)
		_ = syscall.Mkfifo(h.report, 0o600)
	case 3:
		_ = os.Remove(h.report)
		_ = os.Symlink("/dev/zero", h.report)
	default:
		_ = os.RemoveAll(filepath.Dir(h.report))
	}
}

func (h *hostility) leaveDeep() {
	for range 500 + h.rng.IntN(3000) {
		if os.Mkdir("d", 0o700) != nil || os.Chdir("d") != nil {
			return
		}
	}
}

// fromEnvironment returns the number in a variable, or another one if it is not set.
func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAHostileTenantStopsNobodyElse runs hostile trials of a tenant while a trial of another tenant reports on the same
// worker. OUTBID_HOSTILE_SWEEPS is the number of hostile sweeps, OUTBID_HOSTILE_SEED the seed of their actions.
func TestAHostileTenantStopsNobodyElse(t *testing.T) {
	t.Parallel()
	c := contain(t, 2, "--checkpoint-bytes", "64MiB")
	seed, n := fromEnvironment(t, "OUTBID_HOSTILE_SEED", rand.Uint64()), fromEnvironment(t, "OUTBID_HOSTILE_SWEEPS", 5)
	t.Logf("OUTBID_HOSTILE_SEED=%d", seed)
	program := trojan(t, openDir(t))
	var sweeps []string
	for i := range n {
		sweeps = append(sweeps, c.run(fmt.Sprint("hostile", i), "", func(sp *outbidv1.SweepSpec) {
			sp.Limits.Trials, sp.MaxRestarts, sp.Tuner = 2, new(int32(1)), random(0)
			sp.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{
				Command: []string{program}, Env: map[string]string{"HOSTILE": fmt.Sprint(seed + i)}, Grace: "1s",
			}}
		}))
	}
	ended := map[string]int{}
	for _, id := range sweeps {
		if sw := c.wait(id); sw != nil {
			ended[sw.GetState().String()]++
		}
	}
	t.Logf("the sweeps have ended: %v", ended)
	for _, line := range c.printed(c.healthy, 0) {
		if strings.Contains(line, "forged") {
			t.Error("it prints into the log of another tenant's trial")
		}
	}
	c.stillTrains()
	c.stop()
}
