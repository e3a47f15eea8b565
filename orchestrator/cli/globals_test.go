package cli

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/server"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// writeServerFile writes the address file of a server with that URL and process id.
func writeServerFile(t *testing.T, dir, url string, pid int) {
	t.Helper()
	mkdir(t, dir)
	data, err := json.Marshal(server.File{API: url, PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(server.FilePath(dir), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// gone is the id of a process that does not exist.
const gone = 1 << 30

func TestServerIsFoundByItsFile(t *testing.T) {
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	home := t.TempDir()
	t.Chdir(t.TempDir())
	app := newTestApp(nil, map[string]string{"HOME": home})
	wantURL := func(want string) {
		t.Helper()
		got, err := app.findServer()
		if err != nil || got.url != want {
			t.Fatalf("found %q (from %s), want %q: %v", got.url, got.from, want, err)
		}
	}
	wantURL(defaultServer)
	for _, dir := range []string{"workers/node", "worker", "tls"} { // a machine without a server
		mkdir(t, filepath.Join(defaultData, dir))
	}
	wantURL(defaultServer)
	writeServerFile(t, filepath.Join(home, defaultData), "http://127.0.0.1:1", os.Getpid())
	wantURL("http://127.0.0.1:1")
	writeServerFile(t, defaultData, url, os.Getpid())
	wantURL(url)
	wantExit(t, app, app.start(t.Context(), "ls"), exitOK)
}

// TestAFoldersServerThatIsDownIsNotReplacedByAnother runs only the server of the home folder.
func TestAFoldersServerThatIsDownIsNotReplacedByAnother(t *testing.T) {
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	down := map[string]func(t *testing.T){
		"killed":    func(t *testing.T) { writeServerFile(t, defaultData, url, gone) },
		"stopped":   func(t *testing.T) { mkdir(t, filepath.Join(defaultData, "history")) },
		"never up":  func(t *testing.T) { mkdir(t, filepath.Join(defaultData, "keys")) },
		"of Python": func(t *testing.T) { mkdir(t, filepath.Join(defaultData, "clients")) },
		"pid taken": func(t *testing.T) {
			file, err := json.Marshal(server.File{API: url, PID: os.Getpid(), Locked: true})
			mkdir(t, defaultData)
			if err = errors.Join(err, os.WriteFile(server.FilePath(defaultData), file, 0o600)); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(t *testing.T) {
			mkdir(t, defaultData)
			if err := os.WriteFile(server.FilePath(defaultData), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, prepare := range down {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Chdir(t.TempDir())
			writeServerFile(t, filepath.Join(home, defaultData), url, os.Getpid())
			prepare(t)
			for _, args := range serverCommandLines() {
				app := newTestApp(strings.NewReader(realSweep), map[string]string{"HOME": home})
				code := app.run(t.Context(), args)
				text := app.err.String()
				if args[0] == "doctor" {
					code, text = exitUnreachable, app.out.String()
				}
				folder, err := filepath.Abs(defaultData)
				if code != exitUnreachable || err != nil || !strings.Contains(text, folder) {
					t.Errorf("%v ended with %d and said nothing of %s:\n%s", args, code, folder, text)
				}
				if name != "damaged" && !strings.Contains(text, "outbid up") {
					t.Errorf("%v does not say how to start the server:\n%s", args, text)
				}
			}
		})
	}
}

// serverCommandLines returns commands that call a server, one for each way to find it.
func serverCommandLines() [][]string {
	return [][]string{
		{"ls"},
		{"run", "-"},
		{"submit", "-"},
		{"watch", "digits-1"},
		{"stop", "digits-1"},
		{"delete", "digits-1", "--force"},
		{"logs", "digits-1"},
		{"nodes"},
		{"tenant", "remove", "vision"},
		{"secret", "rm", "wandb"},
		{"worker", "remove", "gpu-7"},
		{"doctor"},
		{"worker"},
	}
}

func TestACommandThatChangesSomethingNamesItsServer(t *testing.T) {
	t.Chdir(t.TempDir())
	u := startServer(t, "up", "--api", "127.0.0.1:0", "--devices", "cpu:1")
	folder, err := filepath.Abs(defaultData)
	if err != nil {
		t.Fatal(err)
	}
	want := "on the server of " + folder + " (" + u.file.API + "):\n"
	for _, line := range []string{
		"tenant add vision", "tenant set vision --weight 2", "tenant remove vision", "secret set wandb", "secret rm wandb",
		"submit -", "pause real", "stop real", "delete real-1 --force", "ls",
	} {
		args := strings.Fields(line)
		app := newTestApp(strings.NewReader(realSweep), nil)
		app.now = time.Now
		wantExit(t, app, app.start(t.Context(), args...), exitOK)
		if got := app.err.String(); strings.Contains(got, want) == (args[0] == "submit" || args[0] == "ls") {
			t.Errorf("%s printed %q, want %q if it changes what exists", line, got, want)
		}
	}
}

func TestEveryMethodThatEndsSomethingNamesItsServer(t *testing.T) {
	t.Parallel()
	methods := outbidv1.File_outbid_v1_service_proto.Services().Get(0).Methods()
	found := 0
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		for _, verb := range []string{"Control", "Cordon", "Delete", "Drain", "Remove", "Revoke", "Set"} {
			if !strings.HasPrefix(name, verb) {
				continue
			}
			found++
			if !changesWhatExists("/outbid.v1.OutbidService/" + name) {
				t.Errorf("%s does not name its server", name)
			}
		}
	}
	if found < 7 || changesWhatExists("/outbid.v1.OutbidService/ListSweeps") {
		t.Errorf("%d methods end something, or reading a list does", found)
	}
}

// TestHelpShowsUsedFlags checks that a command's help shows the global flags that it uses and no others, and that it
// still accepts the others.
func TestHelpShowsUsedFlags(t *testing.T) {
	t.Parallel()
	const all = "server token token-file ca log-level log-format"
	for _, tc := range []struct{ command, want string }{
		{"ls", "server token token-file ca"},
		{"export", all},
		{"replay", "ca log-level log-format"},
		{"serve", "ca log-level log-format"},
		{"up", "log-level log-format"},
		{"worker", "server ca log-level log-format"},
		{"worker join", "server token token-file ca"},
		{"tenant add", "server token token-file ca"},
		{"token new", ""},
		{"init", ""},
		{"sim", ""},
		{"help", ""},
		{"", all},
	} {
		app := newTestApp(nil, nil)
		args := append(strings.Fields(tc.command), "--log-level", "warn", "--server", "http://127.0.0.1:1", "--help")
		wantExit(t, app, app.start(t.Context(), args...), exitOK)
		_, flags, _ := strings.Cut(app.out.String(), "Flags:")
		for _, name := range strings.Fields(all) {
			shown := regexp.MustCompile(`(?m)^ +--` + name + ` `).MatchString(flags)
			if want := slices.Contains(strings.Fields(tc.want), name); shown != want {
				t.Errorf("help of %q shows --%s: %t, want %t", tc.command, name, shown, want)
			}
		}
	}
}
