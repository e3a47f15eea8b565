package objects

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stored puts objects into a store in different ways, and returns all files in its directory.
func stored(t *testing.T, d *Dir) map[string]fs.FileInfo {
	t.Helper()
	if err := d.Put(t.Context(), "checkpoints/a-1/0/put", strings.NewReader("weights"), 7); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(d.root), "file")
	if err := os.WriteFile(file, []byte("weights"), 0o666); err != nil { //nolint:gosec // like a trial
		t.Fatal(err)
	}
	if _, _, err := PutFile(t.Context(), d, "checkpoints/a-1/0/file", file); err != nil {
		t.Fatal(err)
	}
	found := map[string]fs.FileInfo{}
	err := filepath.WalkDir(d.root, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			found[path], err = e.Info()
		}
		return err
	})
	if err != nil || len(found) != 7 {
		t.Fatalf("%d files and directories, %v", len(found), err)
	}
	return found
}

func modesAre(t *testing.T, found map[string]fs.FileInfo, dir, file fs.FileMode) {
	t.Helper()
	for path, info := range found {
		want := file
		if info.IsDir() {
			want = dir | fs.ModeDir
		}
		if info.Mode() != want {
			t.Errorf("%s is %v, want %v", path, info.Mode(), want)
		}
	}
}

// TestAStoreIsItsOwnersAlone (H1) checks that only the owner can access stored objects, even in a directory from an
// earlier version.
func TestAStoreIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]fs.FileMode{"new": 0, "of before": 0o755, "open to read": 0o750, "sticky": 0o755 | fs.ModeSticky} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "store")
			old := filepath.Join(root, "checkpoints", "old")
			if before != 0 {
				if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(old, []byte("weights"), 0o444); err != nil { //nolint:gosec // like an earlier version
					t.Fatal(err)
				}
				if err := os.Chmod(root, before); err != nil {
					t.Fatal(err)
				}
			}
			d, err := OpenDir(root)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if before == 0 {
				modesAre(t, stored(t, d), 0o700, 0o400)
				return
			}
			if out, ok := readAs(t, old, 65534, 65534); ok {
				t.Errorf("another user reads it: %s", out)
			}
		})
	}
}

// readAs makes another user read a file, if this process is allowed to.
func readAs(t *testing.T, path string, uid, gid uint32) (out string, ok bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can act as other users")
	}
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) { // make the test's own directories accessible
		if info, err := os.Stat(dir); err == nil && strings.Contains(dir, "/Test") && !strings.Contains(dir, "/store") {
			_ = os.Chmod(dir, info.Mode()|0o011)
		}
	}
	cmd := exec.Command("cat", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	text, err := cmd.CombinedOutput()
	return string(text), err == nil
}

// TestAStoreOfAGroup checks that a directory that was made for a group is accessible only to that group.
func TestAStoreOfAGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another group's")
	}
	const group = 54321
	root := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(root, -1, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o777); err != nil { //nolint:gosec // the store must remove this access
		t.Fatal(err)
	}
	d, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	found := stored(t, d)
	modesAre(t, found, 0o770|fs.ModeSetgid, 0o440)
	put := filepath.Join(root, "checkpoints", "a-1", "0", "put")
	if st, ok := found[put].Sys().(*syscall.Stat_t); !ok || st.Gid != group {
		t.Errorf("it is of group %d", st.Gid)
	}
	if out, ok := readAs(t, put, 65534, group); !ok {
		t.Errorf("a member of the group does not read it: %s", out)
	}
	if out, ok := readAs(t, put, 65534, 65534); ok {
		t.Errorf("another user reads it: %s", out)
	}
}

// TestAStoreOfAnotherUser checks that files stored by a worker run by root belong to the directory's owner, who can
// read and delete them.
func TestAStoreOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root stores for others")
	}
	const owner = 54321
	root := filepath.Join(t.TempDir(), "store")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chown(root, owner, owner); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	found := stored(t, d)
	modesAre(t, found, 0o700, 0o400)
	for path, info := range found {
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != owner {
			t.Errorf("%s is of user %d", path, st.Uid)
		}
	}
	if out, ok := readAs(t, filepath.Join(root, "checkpoints", "a-1", "0", "file"), owner, owner); !ok {
		t.Errorf("its owner does not read it: %s", out)
	}
}
