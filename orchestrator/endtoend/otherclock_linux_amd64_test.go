package endtoend

import (
	"bytes"
	"debug/elf"
	enc "encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// startWithClock starts the users' program in dir with a wall clock that is ahead of, or behind, that of this machine.
// Go reads the time from the kernel's shared library in each process (the vDSO). So the process is stopped before its
// first instruction, its private copy of that function is replaced, and it continues. Its monotonic clock is correct,
// as on a machine with a wrong wall clock.
func startWithClock(t testing.TB, dir string, ahead time.Duration, args ...string) *proc {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := newProc(t, dir, path, args...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	runtime.LockOSThread() // tracing is bound to a thread
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		t.Skipf("this machine does not permit tracing a process, which the test needs to change its clock: %v", err)
	}
	if err := setClock(p.cmd.Process.Pid, ahead); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		t.Fatalf("giving a process another clock: %v", err)
	}
	p.watch(args)
	p.minds(args)
	return p
}

// setClock changes the wall clock of a process that is stopped at its start, and continues it.
func setClock(pid int, ahead time.Duration) error {
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	if !status.Stopped() {
		return fmt.Errorf("it has not stopped: %x", status)
	}
	base, err := vdso(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	at, err := clockFunction(io.NewSectionReader(mem, base, 1<<16))
	if err != nil {
		return err
	}
	if _, err := mem.WriteAt(shiftedClock(int64(ahead/time.Second)), base+at); err != nil {
		return err
	}
	return syscall.PtraceDetach(pid)
}

// shiftedClock is clock_gettime(clock, *timespec): it calls the kernel, and adds seconds to the wall clock.
func shiftedClock(seconds int64) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: is it CLOCK_REALTIME?
		0x75, 13, // jnz to the end
		0x48, 0xb9, // mov rcx, seconds
	}
	code = enc.LittleEndian.AppendUint64(code, uint64(seconds))
	return append(code,
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3, // ret
	)
}

// vdso returns the address of the kernel's shared library in a process.
func vdso(pid int) (int64, error) {
	const sysinfoEhdr = 33 // AT_SYSINFO_EHDR
	aux, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	for ; len(aux) >= 16; aux = aux[16:] {
		if enc.LittleEndian.Uint64(aux) == sysinfoEhdr {
			return int64(enc.LittleEndian.Uint64(aux[8:])), nil
		}
	}
	return 0, fmt.Errorf("process %d has no vDSO", pid)
}

// clockFunction returns the offset of the clock function in the library.
func clockFunction(library *io.SectionReader) (int64, error) {
	image, err := io.ReadAll(library)
	if err != nil && len(image) == 0 { // memory after the library cannot be read
		return 0, err
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && s.Size > 32 {
			return int64(s.Value), nil
		}
	}
	return 0, fmt.Errorf("the vDSO does not have a clock function")
}
