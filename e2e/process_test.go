package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a child process of the test.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    *logBuffer
	exited chan struct{} // closed when it has ended
}

// launch starts this binary as Caddy.
func launch(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, log: newLogBuffer(), exited: make(chan struct{}), cmd: exec.Command(self, args...)}
	p.cmd.Env = append(os.Environ(), append(env, asCaddy+"=1")...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its state has the exit code
		close(p.exited)
		p.log.close()
	}()
	t.Cleanup(p.kill)
	return p
}

// await waits for a log line that contains text.
func (p *process) await(text string) {
	p.t.Helper()
	if !p.log.await(text) {
		p.t.Fatalf("the process never logged %q:\n%s", text, p.log.tail(40))
	}
}

// kill ends the process at once, as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// terminate sends SIGTERM.
func (p *process) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}

// code waits for the end of the process and returns its exit code.
func (p *process) code(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(within):
		p.t.Fatalf("the process has not ended within %s:\n%s", within, p.log.tail(40))
	}
	return p.cmd.ProcessState.ExitCode()
}

// checkLog checks for lines that no process may log.
func (p *process) checkLog() {
	p.t.Helper()
	wrong := p.log.lines("DATA RACE", "panic serving", "panic: ", "fatal error: ", "an account has less than was promised")
	if len(wrong) > 0 {
		p.t.Errorf("the log has %d lines about bugs, first: %.300s", len(wrong), wrong[0])
	}
}

// logBuffer keeps the output of a process and wakes goroutines that wait for a line.
type logBuffer struct {
	mu      sync.Mutex
	text    []byte
	ended   bool
	changed chan struct{} // closed and replaced at each change
}

func newLogBuffer() *logBuffer { return &logBuffer{changed: make(chan struct{})} }

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	close(l.changed)
	l.changed = make(chan struct{})
	return len(p), nil
}

func (l *logBuffer) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until text was written. It returns false if the process ends
// first.
func (l *logBuffer) await(text string) bool { return l.awaitCount(text, 1) }

// awaitCount waits until text was written n times.
func (l *logBuffer) awaitCount(text string, n int) bool {
	deadline := time.After(waitLimit)
	for {
		l.mu.Lock()
		found, ended, changed := bytes.Count(l.text, []byte(text)) >= n, l.ended, l.changed
		l.mu.Unlock()
		if found || ended {
			return found
		}
		select {
		case <-changed:
		case <-deadline:
			return false
		}
	}
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// lines returns the lines that contain one of the words.
func (l *logBuffer) lines(words ...string) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
			found = append(found, line)
		}
	}
	return found
}

// tail returns the last lines, for messages of failed tests.
func (l *logBuffer) tail(n int) string {
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	for i, line := range lines {
		if len(line) > 400 {
			lines[i] = line[:400] + "..."
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
