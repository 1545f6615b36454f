package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

const baseURL = "https://gateway.example.com"

// fixture is an archive over a store in memory and a place, with its own clock.
// Store and place remain when the archive is reopened.
type fixture struct {
	*Archive
	t       *testing.T
	disk    *memory.Engine
	faulty  *storagetest.Faulty
	store   *storage.Store
	written chan struct{} // has an element if something was written since the last receive
	place   Place
	config  Config
	clock   atomic.Int64 // Unix milliseconds

	damaged bool // the test has damaged the store, so it is not verified
}

// newFixture returns a fixture with this place.
func newFixture(t *testing.T, place Place) *fixture {
	t.Helper()
	w := &fixture{t: t, place: place, disk: memory.New(), written: make(chan struct{}, 1)}
	w.clock.Store(time.Now().UnixMilli())
	w.config = Config{Place: place, BaseURL: baseURL}
	w.start()
	t.Cleanup(func() {
		w.verify()
		_ = w.store.Close()
	})
	return w
}

// persistentEngine is an engine that remains when its store is closed, and
// signals writes.
type persistentEngine struct {
	storage.Engine
	written chan<- struct{}
}

// Sole implements [storage.Sole], as the engine of production does.
func (l persistentEngine) Sole() bool { return true }

func (l persistentEngine) Update(ctx context.Context, fn func(storage.Txn) error) error {
	err := l.Engine.Update(ctx, fn)
	select {
	case l.written <- struct{}{}:
	default:
	}
	return err
}

func (persistentEngine) Close() error { return nil }

// start opens the store and the archive, as another process would.
func (w *fixture) start() {
	w.t.Helper()
	if w.store != nil {
		_ = w.store.Close()
	}
	w.faulty = storagetest.NewFaulty(persistentEngine{w.disk, w.written})
	w.store = storage.New(w.faulty, storage.Options{Gather: -1, Clock: func() time.Time { return time.UnixMilli(w.clock.Load()) }})
	w.Archive = Open(w.store, Options{Logger: zaptest.NewLogger(w.t)})
	w.serve(func(*Config) {})
}

// serve changes the configuration, as a reload does.
func (w *fixture) serve(change func(c *Config)) {
	w.t.Helper()
	change(&w.config)
	if err := w.Serve(w.config); err != nil {
		w.t.Fatal(err)
	}
}

// advance advances the clock.
func (w *fixture) advance(d time.Duration) { w.clock.Add(d.Milliseconds()) }

// verify checks that the records are consistent.
func (w *fixture) verify() {
	w.t.Helper()
	if w.damaged || w.store.Err() != nil {
		return
	}
	for _, problem := range w.problems() {
		w.t.Error(problem)
	}
}

func (w *fixture) problems() (list []string) {
	w.t.Helper()
	err := w.store.View(context.Background(), func(r storage.Reader) error {
		list = nil
		return Verify(r, func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) })
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// keeping returns a task whose results have these URLs.
func keeping(task_ string, addresses ...string) task.Keeping {
	k := task.Keeping{Task: task_, Key: "key_ann", User: "user_ann"}
	for _, address := range addresses {
		k.Results = append(k.Results, backends.Result{URL: address, Type: backends.VideoFile})
	}
	return k
}

// keep calls Keep, which must succeed.
func (w *fixture) keep(k task.Keeping) []string {
	w.t.Helper()
	links, err := w.Keep(w.t.Context(), k)
	if err != nil {
		w.t.Fatalf("keeping %s: %v", k.Task, err)
	}
	return links
}

// mustFail calls Keep, which must return an error with this text.
func (w *fixture) mustFail(k task.Keeping, text string) error {
	w.t.Helper()
	links, err := w.Keep(w.t.Context(), k)
	if err == nil || !strings.Contains(err.Error(), text) {
		w.t.Fatalf("got %v, %v; want an error with %q", links, err, text)
	}
	return err
}

// parts splits a link.
func parts(t testing.TB, link string) (name, mediaName string) {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	rest, found := strings.CutPrefix(u.EscapedPath(), Path)
	name, last, two := strings.Cut(rest, "/")
	mediaName, err = url.PathUnescape(last)
	if !found || !two || err != nil || strings.Contains(last, "/") || !IsName(name) || u.RawQuery != "" || u.Fragment != "" {
		t.Fatalf("%q is not a link: %v", link, err)
	}
	return name, mediaName
}

// content returns the file of a link.
func (w *fixture) content(link string) []byte {
	w.t.Helper()
	name, mediaName := parts(w.t, link)
	file, err := w.Open(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	if err != nil || int64(len(content)) != file.Size || file.MediaName != mediaName {
		w.t.Fatalf("%d bytes of %+v: %v", len(content), file, err)
	}
	return content
}

// checkContent checks that the file of a link has this content.
func (w *fixture) checkContent(link string, want []byte) {
	w.t.Helper()
	if got := w.content(link); !bytes.Equal(got, want) {
		w.t.Fatalf("the file has %d bytes with hash %x, want %d bytes with hash %x", len(got), sha256.Sum256(got), len(want), sha256.Sum256(want))
	}
}

// film returns n bytes that begin like an MP4 and do not repeat.
func film(size int) []byte {
	content := make([]byte, size)
	source := rand.NewChaCha8(sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(size))))
	_, _ = source.Read(content)
	copy(content, "\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isommp42")
	return content
}

// origin is a server on loopback with one result.
type origin struct {
	*httptest.Server
	content  []byte
	modified time.Time

	mu     sync.Mutex
	etag   string
	served []*http.Request
	answer func(w http.ResponseWriter, r *http.Request, n int) bool // answers request n; false: with the content
}

func newOrigin(t testing.TB, content []byte) *origin {
	t.Helper()
	o := &origin{content: content, etag: `"one"`}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

// answerWith sets the answers of an origin.
func (o *origin) answerWith(answer func(w http.ResponseWriter, r *http.Request, n int) bool) *origin {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = answer
	return o
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	o.served = append(o.served, r.Clone(context.Background()))
	n, answer, etag := len(o.served), o.answer, o.etag
	o.mu.Unlock()
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	if answer == nil || !answer(w, r, n) {
		http.ServeContent(w, r, "", o.modified, bytes.NewReader(o.content))
	}
}

// requests returns all requests so far.
func (o *origin) requests() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.served
}

// cut sends the first n bytes of a complete answer and drops the connection.
func (o *origin) cut(w http.ResponseWriter, n int) {
	w.Header().Set("Content-Length", fmt.Sprint(len(o.content)))
	_, _ = w.Write(o.content[:n])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// allow permits connections to origins.
func (w *fixture) allow(origins ...*origin) *fixture {
	w.t.Helper()
	var entries []string
	for _, o := range origins {
		u, _ := url.Parse(o.URL)
		entries = append(entries, u.Host)
	}
	allowed, err := egress.ParseAllowed(entries)
	if err != nil {
		w.t.Fatal(err)
	}
	w.serve(func(c *Config) { c.Allow = allowed })
	return w
}

// forbiddenServer is a server on loopback that must not receive requests.
func forbiddenServer(t *testing.T) (address string) {
	t.Helper()
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if n := connections.Load(); n != 0 {
			t.Errorf("%s got %d connections, want 0", s.URL, n)
		}
	})
	return s.URL
}

// forEachPlace runs a test with each kind of place.
func forEachPlace(t *testing.T, test func(t *testing.T, w *fixture)) {
	t.Helper()
	t.Parallel()
	for name, place := range map[string]func(t *testing.T) Place{
		"a directory": func(t *testing.T) Place { return Dir(t.TempDir(), 1) },
		"a bucket":    func(t *testing.T) Place { return newBucket(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t, place(t)))
		})
	}
}

// recordOf returns the record of a result.
func (w *fixture) recordOf(task string, index int) *record {
	w.t.Helper()
	var list []*record
	err := w.store.View(context.Background(), func(r storage.Reader) (err error) {
		list, err = resultsOf(r, task)
		return err
	})
	if err != nil || len(list) <= index {
		w.t.Fatalf("%s has %d file records: %v", task, len(list), err)
	}
	return list[index]
}

// answering returns a resolver for which every name has one address.
func answering(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			for {
				if answerDNS(server, netip.MustParseAddr(address)) != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

// answerDNS answers one question over TCP (RFC 1035). It returns the address for an A
// record, and no record for other types.
func answerDNS(conn net.Conn, address netip.Addr) error {
	var length uint16
	if err := binary.Read(conn, binary.BigEndian, &length); err != nil {
		return err
	}
	query := make([]byte, length)
	if _, err := io.ReadFull(conn, query); err != nil {
		return err
	}
	var message dnsmessage.Message
	if err := message.Unpack(query); err != nil {
		return err
	}
	question := message.Questions[0]
	message.Response, message.Additionals = true, nil
	if question.Type == dnsmessage.TypeA {
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	reply, err := message.Pack()
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
	return err
}
