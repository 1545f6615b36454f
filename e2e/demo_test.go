package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// demoCallback matches the line of a callback with a valid signature.
const demoCallback = "  callback  verified  task.succeeded  task_"

// TestTheCommandsOfTheDemoWorkInAShell runs the demo and executes the commands that it
// prints in a shell, unchanged. It omits the commands of the operator, which call `go run`;
// package demo tests those.
func TestTheCommandsOfTheDemoWorkInAShell(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"sh", "curl", "sed", "tee", "grep"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	p := launch(t, []string{"HOME=" + dir, "TMPDIR=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}, "modelgate", "demo")
	p.await("Stop with Ctrl-C")

	var script []string
	reported := p.log.String()
	if !strings.HasPrefix(reported, "modelgate demo\n") || strings.Contains(reported, "\x1b") {
		t.Errorf("the output begins with\n%.200q", reported)
	}
	for block := range strings.SplitSeq(reported, "\n\n") {
		heading, commands, _ := strings.Cut(block, "\n")
		if strings.HasPrefix(heading, "# ") && !strings.Contains(commands, "<<'END'") && heading != "# The operator's side" {
			script = append(script, commands)
		}
	}
	if len(script) != 11 {
		t.Fatalf("the demo prints %d blocks of commands:\n%s", len(script), strings.Join(script, "\n"))
	}
	workDir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), leaseLength)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-e")
	shell.Dir, shell.Stdin = workDir, strings.NewReader(strings.Join(script, "\n"))
	if out, err := shell.CombinedOutput(); err != nil || strings.Count(string(out), `"status":"success"`) != 4 {
		t.Fatalf("%v\n%s\nof\n%s", err, out, strings.Join(script, "\n"))
	}
	for name, check := range map[string]func(*testing.T, []byte){"modelgate-demo.png": checkPicture, "modelgate-demo.mp4": checkFilm} {
		file, err := os.ReadFile(filepath.Join(workDir, name))
		if err != nil {
			t.Error(err)
		}
		check(t, file)
	}
	if !p.log.awaitCount(demoCallback, 2) || len(p.log.lines("  callback  ")) != 2 {
		t.Errorf("the callbacks are logged as %q", p.log.lines("  callback  "))
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"  POST /v1/messages  ", "  POST /v1/platform/image  "} {
		times := regexp.MustCompile(`\d\d:\d\d:\d\d|\d+ ms`)
		if got := p.log.lines(line); len(got) != 1 || len(got[0]) > 80 || !strings.Contains(times.ReplaceAllString(string(readme), ""), times.ReplaceAllString(got[0], "")) {
			t.Errorf("the lines %q are not in the README", got)
		}
	}
	p.checkLog()

	p.terminate()
	if code := p.code(waitLimit); code != 0 {
		t.Errorf("exit code %d:\n%s", code, p.log.tail(10))
	}
	if left, err := filepath.Glob(filepath.Join(dir, "modelgate-demo-*")); err != nil || len(left) > 0 {
		t.Errorf("the demo did not delete %q (%v)", left, err)
	}
}

// TestTheDemoContinuesItsTasksAfterARestart stops the demo while it makes a video and
// starts it again. The video is completed, and its callback is sent to the new
// destination.
func TestTheDemoContinuesItsTasksAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func() (p *process, run struct {
		URL string `json:"base_url"`
		Key string `json:"api_key"`
	}) {
		t.Helper()
		p = launch(t, []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}, "modelgate", "demo", "--json", "--data", filepath.Join(dir, "data"))
		p.await(`"api_key"`)
		for line := range strings.Lines(p.log.String()) {
			if strings.Contains(line, `"api_key"`) && json.Unmarshal([]byte(line), &run) == nil {
				return p, run
			}
		}
		t.Fatalf("the demo printed no JSON:\n%s", p.log.tail(10))
		return p, run
	}
	p, run := start()
	body := strings.NewReader(`{"model":"video-demo-1","prompt":"waves, demo:slow=4s","output":{"duration":4}}`)
	req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, run.URL+"/v1/platform/video", body))
	req.Header.Set("Authorization", "Bearer "+run.Key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var task struct {
		ID string `json:"task_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&task); err != nil || task.ID == "" {
		t.Fatalf("%s: %+v, %v", resp.Status, task, err)
	}
	p.terminate()
	p.code(waitLimit)
	if reported := p.log.lines("  callback  "); len(reported) > 0 {
		t.Fatalf("the video was made before the end: %q", reported)
	}

	p, _ = start()
	p.await("  callback  verified  task.succeeded  " + task.ID)
	p.terminate()
	p.code(waitLimit)
}
