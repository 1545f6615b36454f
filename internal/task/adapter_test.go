package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

// withLog runs fn in a fixture with an observed log.
func withLog(t *testing.T, fn func(f *fixture, log *observer.ObservedLogs)) {
	t.Helper()
	withFixture(t, func(f *fixture) {
		core, log := observer.New(zapcore.DebugLevel)
		f.stop()
		f.logger = zap.New(core)
		f.start()
		fn(f, log)
	})
}

// refusingService implements all interfaces; Fetch fails.
type refusingService struct {
	*mockService
	cancelling cancelling
	finding    finding
	err        error
}

func (s refusingService) Cancel(ctx context.Context, ref backends.Ref) error {
	return s.cancelling.Cancel(ctx, ref)
}

func (s refusingService) Reconcile(ctx context.Context, job backends.Job) (backends.Ref, error) {
	return s.finding.Reconcile(ctx, job)
}

func (refusingService) OnlyBytes() bool { return false }

func (s refusingService) Fetch(context.Context, backends.Ref, int) (io.ReadCloser, backends.Content, error) {
	return nil, backends.Content{}, s.err
}

// fetching is a keeper that calls Fetch and fails.
type fetching struct{}

func (fetching) Keep(ctx context.Context, k Keeping) ([]string, error) {
	_, _, err := k.Fetch(ctx, 0)
	return nil, fmt.Errorf("result 1: %w", err)
}

// TestTextOfBackendErrorsIsLoggedAtDebugOnly checks errors of a service whose text may repeat the
// prompt.
func TestTextOfBackendErrorsIsLoggedAtDebugOnly(t *testing.T) {
	t.Parallel()
	const words = "your prompt was: my secret cat"
	refusal := func(kind backends.Kind) error {
		return &backends.Error{
			Kind: kind, Reason: backends.UpstreamError, Message: words, Detail: "422 E_7 " + words, Status: 422, Code: "E_7",
		}
	}
	const fields = `"kind":"refused","reason":"UPSTREAM_ERROR","status":422,"code":"E_7"`
	for name, row := range map[string]struct {
		err     error
		do      func(f *fixture, err error)
		message string // of the line at info level
		fields  string // of this line
	}{
		"a submission": {refusal(backends.Refused), func(f *fixture, err error) {
			f.service.set(func(s *mockService) { s.submit = func(backends.Job) error { return err } })
			_, _ = f.submit(video())
		}, "a backend did not accept a task", fields},
		"a poll": {refusal(backends.Refused), func(f *fixture, err error) {
			f.service.set(func(s *mockService) { s.poll = func(*work) (backends.Status, error) { return backends.Status{}, err } })
			f.mustSubmit(video())
		}, "cannot poll a task at its backend", fields},
		"a cancellation": {refusal(backends.Refused), func(f *fixture, err error) {
			f.service.set(func(s *mockService) { s.cancel = func(*work) error { return err } })
			_, _ = f.Cancel(context.Background(), record.OfUser(ann), f.mustSubmit(video()).ID)
		}, "a backend did not cancel a task", fields},
		"a search for an unconfirmed job": {refusal(backends.Refused), func(f *fixture, err error) {
			f.service.set(func(s *mockService) {
				s.afterAccept = func(backends.Job) error { return errors.New("cut") }
				s.find = func(*work) (backends.Ref, error) { return backends.Ref{}, err }
			})
			f.mustSubmit(video())
		}, "a task of unknown delivery cannot be searched for", fields},
		"a failed fetch": {refusal(backends.Refused), func(f *fixture, err error) {
			f.serve(func(c *Config) { c.Keeper = fetching{} })
			f.service.set(func(s *mockService) { s.poll = func(*work) (backends.Status, error) { return bytesOnly(1), nil } })
			f.mustSubmit(video())
		}, "cannot copy the results of a task yet", fields},
		"an error without a kind": {errors.New(words), func(f *fixture, err error) {
			f.service.set(func(s *mockService) { s.poll = func(*work) (backends.Status, error) { return backends.Status{}, err } })
			f.mustSubmit(video())
		}, "cannot poll a task at its backend", `"kind":"doubtful"`},
		"a code that is a sentence": {
			&backends.Error{Kind: backends.Busy, Status: 503, Code: words, Message: words},
			func(f *fixture, err error) {
				f.service.set(func(s *mockService) { s.poll = func(*work) (backends.Status, error) { return backends.Status{}, err } })
				f.mustSubmit(video())
			}, "cannot poll a task at its backend", `"kind":"busy","reason":"","status":503`,
		},
		"a panic": {nil, func(f *fixture, _ error) {
			f.service.set(func(s *mockService) { s.poll = func(*work) (backends.Status, error) { panic(words) } })
			f.mustSubmit(video())
		}, "cannot poll a task at its backend", `"kind":"doubtful","error":"the adapter panicked"`},
	} {
		t.Run(name, func(t *testing.T) {
			withLog(t, func(f *fixture, log *observer.ObservedLogs) {
				f.serve(func(c *Config) {
					c.Backends[0].Backend = refusingService{f.service, cancelling{f.service}, finding{f.service}, row.err}
				})
				row.do(f, row.err)
				f.sleep(5 * time.Second)
				encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"})
				atDebug, found := false, false
				for _, entry := range log.All() {
					line, err := encoder.EncodeEntry(entry.Entry, entry.Context)
					if err != nil {
						t.Fatal(err)
					}
					text := line.String()
					switch {
					case entry.Level == zapcore.DebugLevel:
						atDebug = atDebug || strings.Contains(text, words)
					case strings.Contains(text, words):
						t.Errorf("at %v: %s", entry.Level, text)
					case entry.Message == row.message:
						found = found || strings.Contains(text, `"task_id":"task_`) && strings.Contains(text, `"backend":"works",`+row.fields+"}")
					}
				}
				if !atDebug || !found {
					t.Errorf("text at debug: %t; fields at info: %t; log: %v", atDebug, found, log.All())
				}
			})
		})
	}
}

// TestContractViolationsOfAdaptersAreLogged checks errors that contain no data of callers.
func TestContractViolationsOfAdaptersAreLogged(t *testing.T) {
	t.Parallel()
	for want, poll := range map[string]func() (backends.Status, error){
		"the adapter returned a success without results": func() (backends.Status, error) { return succeeded(0), nil },
		"slice bounds out of range":                      func() (backends.Status, error) { return backends.Status{Results: succeeded(0).Results[:1]}, nil },
	} {
		t.Run(want, func(t *testing.T) {
			withLog(t, func(f *fixture, log *observer.ObservedLogs) {
				f.service.set(func(s *mockService) { s.poll = func(*work) (backends.Status, error) { return poll() } })
				f.mustSubmit(video())
				f.sleep(5 * time.Second)
				for _, entry := range log.FilterMessage("cannot poll a task at its backend").All() {
					if text, _ := entry.ContextMap()["error"].(string); strings.Contains(text, want) && entry.Level == zapcore.InfoLevel {
						return
					}
				}
				t.Errorf("the log has no %q: %v", want, log.All())
			})
		})
	}
}
