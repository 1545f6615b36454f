package media

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
)

// keeperEnv is the environment variable that makes a test binary keep results:
// its value is a keepJob.
const keeperEnv = "MEDIA_AS_KEEPER"

func TestMain(m *testing.M) {
	if text := os.Getenv(keeperEnv); text != "" {
		var e keepJob
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			panic(err)
		}
		if err := e.run(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// keepJob is the work of another process: to keep the results of a task.
type keepJob struct {
	Dir       string    // of the store and the files
	S3        S3Options // stores the files, if it has an endpoint
	Task      string
	Addresses []string
}

func (e keepJob) run() error {
	store, err := openBadger(filepath.Join(e.Dir, "store"))
	if err != nil {
		return err
	}
	defer store.Close()
	a, err := e.archive(store)
	if err != nil {
		return err
	}
	links, err := a.Keep(context.Background(), keeping(e.Task, e.Addresses...))
	if err != nil {
		return err
	}
	for _, link := range links {
		fmt.Println("link:", link)
	}
	return nil
}

func (e keepJob) archive(store *storage.Store) (*Archive, error) {
	var entries []string
	for _, address := range e.Addresses {
		host := strings.TrimPrefix(address, "http://")
		if len(entries) == 0 || entries[len(entries)-1] != host {
			entries = append(entries, host)
		}
	}
	allowed, err := egress.ParseAllowed(entries)
	if err != nil {
		return nil, err
	}
	place := Dir(filepath.Join(e.Dir, "files"), 1)
	if e.S3.Endpoint != "" {
		if place, err = S3(e.S3); err != nil {
			return nil, err
		}
	}
	a := Open(store, Options{})
	a.draftStep = 4 << 20
	return a, a.Serve(Config{Place: place, BaseURL: baseURL, Allow: allowed})
}

func openBadger(dir string) (*storage.Store, error) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	module := &badger.Badger{Path: dir}
	if err := module.Provision(ctx); err != nil {
		return nil, err
	}
	engine, err := module.Open(ctx)
	if err != nil {
		return nil, err
	}
	return storage.New(engine, storage.Options{Gather: -1}), nil
}

// start starts a process with the job. Its links are sent when it is done.
func (e keepJob) start(t *testing.T) (process *exec.Cmd, links func() []string) {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process = exec.CommandContext(t.Context(), binary)
	process.Env = append(os.Environ(), keeperEnv+"="+string(text))
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	return process, func() (list []string) {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			word, rest, _ := strings.Cut(lines.Text(), ": ")
			if word == "error" {
				t.Error(rest)
			}
			if word == "link" {
				list = append(list, rest)
			}
		}
		return list
	}
}

// kill kills a process as kill -9 does, and waits for its end.
func kill(process *exec.Cmd) {
	_ = process.Process.Kill()
	_ = process.Wait()
}

// TestKillsDuringCopies kills a process at different times of a copy. The next process
// must return the same links to complete files, and leave no other file.
func TestKillsDuringCopies(t *testing.T) {
	t.Parallel()
	const size = 22 << 20
	var resumed sync.Map // places in which a copy was continued
	t.Cleanup(func() {
		for _, where := range []string{"a directory", "a bucket"} {
			if _, found := resumed.Load(where); !found && !t.Failed() {
				t.Errorf("%s: no copy was continued", where)
			}
		}
	})
	for i, at := range []int{0, 1, 100, 5 << 20, 9<<20 + 5, 15 << 20, size - 1, size, size} {
		for _, where := range []string{"a directory", "a bucket"} {
			t.Run(fmt.Sprintf("in %s after %d bytes (%d)", where, at, i), func(t *testing.T) {
				t.Parallel()
				if killedAt(t, size, at, time.Duration(i)*time.Millisecond, where == "a bucket") {
					resumed.Store(where, true)
				}
			})
		}
	}
}

func killedAt(t *testing.T, size, at int, after time.Duration, bucket bool) (resumed bool) {
	sent := make(chan struct{}, 8)
	o := newOrigin(t, film(size))
	o.answerWith(func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n > 1 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = w.Write(o.content[:at])
		_ = http.NewResponseController(w).Flush()
		sent <- struct{}{}
		if at < size {
			<-r.Context().Done()
		}
		return true
	})
	first := newOrigin(t, film(100_000)) // usually kept before the kill
	e := keepJob{Dir: t.TempDir(), Task: "task_a", Addresses: []string{first.URL, o.URL}}
	if bucket {
		e.S3 = newS3(t).options()
	}
	process, _ := e.start(t)
	select {
	case <-sent:
		if at == size {
			time.Sleep(after) // there is no event between the last byte and the commit to wait for
		}
	case <-time.After(30 * time.Second):
		t.Error("the copy does not begin")
	}
	kill(process)

	store, err := openBadger(filepath.Join(e.Dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{t: t, store: store}
	names := []string{w.nameOf("task_a", 0), w.nameOf("task_a", 1)}
	left := w.recordOf("task_a", 1).Draft.Durable
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	process, wait := e.start(t)
	links := wait()
	if err := process.Wait(); err != nil || len(links) != 2 {
		t.Fatalf("the next process: %v, %v", links, err)
	}
	if store, err = openBadger(filepath.Join(e.Dir, "store")); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	a, err := e.archive(store)
	if err != nil {
		t.Fatal(err)
	}
	w = &fixture{t: t, store: store, Archive: a}
	w.checkContent(links[0], first.content)
	w.checkContent(links[1], o.content)
	for i, link := range links {
		if name, _ := parts(t, link); name != names[i] {
			t.Errorf("result %d has another link after the kill", i+1)
		}
	}
	list, _, err := a.config.Load().Place.List(t.Context(), "", 100)
	if err != nil || len(list) != 2 {
		t.Errorf("the place has %v, want 2 files: %v", list, err)
	}
	w.verify()
	if want := fmt.Sprintf("bytes=%d-", left); left > 0 && at < size && o.lastRange() != want {
		t.Errorf("after the kill the request has the range %q, want %q", o.lastRange(), want)
	}
	return left > 0
}

// lastRange returns the last requested range.
func (o *origin) lastRange() string {
	all := o.requests()
	return all[len(all)-1].Header.Get("Range")
}
