package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cores are the numbers of processor cores.
type cores []int

// allowedCores returns the cores that this process may run on.
func allowedCores() (cores, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("reading the cores of this process: %w", err)
	}
	var list cores
	for core := 0; len(list) < set.Count(); core++ {
		if set.IsSet(core) {
			list = append(list, core)
		}
	}
	return list, nil
}

func (c cores) set() *unix.CPUSet {
	var set unix.CPUSet
	for _, core := range c {
		set.Set(core)
	}
	return &set
}

// startPinned starts a child process that runs only on these cores from its
// first instruction, so that its Go runtime counts no others. The child is
// killed when this process ends.
func startPinned(cmd *exec.Cmd, on cores) error {
	// A child inherits the affinity of the thread that forks it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, on.set()); err != nil {
		return fmt.Errorf("pinning to cores %v: %w", on, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Start()
}

// cpuTime returns the processor time that a process has used, in user and
// kernel mode, to the nanosecond. It reads the clock that clock_getcpuclockid(3)
// names.
func cpuTime(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED of the kernel
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return 0, fmt.Errorf("reading the processor clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// resident returns the memory of a process that is in RAM, in bytes: VmRSS.
func resident(pid int) (int64, error) { return statusOf(pid, "VmRSS:") }

// mapped returns how much of that are pages of mapped files in bytes: RssFile.
// The kernel reclaims them when it needs memory.
func mapped(pid int) (int64, error) { return statusOf(pid, "RssFile:") }

// statusOf returns a size from the status file of a process, in bytes.
func statusOf(pid int, name string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the status of process %d has no %s", pid, strings.TrimSuffix(name, ":"))
}

// sleepUntil waits until t with a precision of some microseconds. The runtime's
// own timers have a precision of a millisecond on an idle process.
func sleepUntil(t time.Time) {
	for {
		left := time.Until(t)
		if left <= 0 {
			return
		}
		span := unix.NsecToTimespec(int64(left))
		_ = unix.Nanosleep(&span, nil) // a signal interrupts it; the loop continues
	}
}

// takeThread locks the goroutine to a thread whose sleeps the kernel does not
// prolong.
func takeThread() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// busyTime returns the total time that the machine's cores were busy since
// boot.
func busyTime() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := strings.Fields(string(line))
	var ticks int64
	for i, field := range fields[1:min(len(fields), 9)] {
		if i == 3 || i == 4 { // idle and iowait
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	const tick = 10 * time.Millisecond // 1/USER_HZ, which is 100 on Linux
	return time.Duration(ticks) * tick, nil
}

// ownTime returns the CPU time of this process and of its ended children.
func ownTime() (time.Duration, error) {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var usage unix.Rusage
		if err := unix.Getrusage(who, &usage); err != nil {
			return 0, err
		}
		sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return sum, nil
}

// machine describes the machine.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel := "Linux"
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel += " " + strings.TrimSpace(string(release))
	}
	return fmt.Sprintf("%s, %d cores, %s, %s", model, runtime.NumCPU(), kernel, runtime.Version())
}

// loadAverage returns the load of the last minute.
func loadAverage() string {
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	return first
}
