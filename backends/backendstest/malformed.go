package backendstest

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
)

// huge is more than the bytes that an adapter reads of an answer, without the long
// strings.
const huge = 5 << 20

// malformed are bodies with status 200 that contain no usable answer.
var malformed = map[string]string{
	"nothing":          "",
	"white space":      " \n",
	"HTML":             "<!doctype html><title>502</title>",
	"an event stream":  "event: completed\ndata: {\"status\":\"succeeded\"}\n\n",
	"text":             "ok",
	"null":             "null",
	"a string":         `"task_1"`,
	"an array":         `[{"id":"x","status":"succeeded"}]`,
	"an empty object":  `{}`,
	"half an object":   `{"id":"x","task_id":"x","status":"succ`,
	"two objects":      `{"id":"x","task_id":"x"}{"id":"y"}`,
	"bad UTF-8":        "{\"id\":\"\xff\xfe\",\"task_id\":\"\xff\",\"request_id\":\"\xff\",\"status\":\"\xff\"}",
	"an invalid id":    `{"id":"a\u0000b","task_id":"a\nb","request_id":"a b"}`,
	"an id too long":   `{"id":"` + strings.Repeat("x", 256) + `","task_id":"` + strings.Repeat("x", 256) + `","request_id":"` + strings.Repeat("x", 256) + `"}`,
	"wrong types":      `{"id":{},"task_id":[],"request_id":true,"status":7,"data":"x","Response":[]}`,
	"a huge object":    `{"id":"x","task_id":"x","request_id":"x","pad":[` + strings.Repeat("1,", huge/2) + `1]}`,
	"huge white space": strings.Repeat(" ", huge),
	"deep nesting":     `{"id":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
}

func testMalformedSubmission(t *testing.T, f *fixture) {
	for name, body := range malformed {
		before := f.requests(Submit)
		f.override(Submit, answer(http.StatusOK, nil, body))
		_, err := f.backend.Submit(t.Context(), f.job())
		f.wantError(t, name, err, backends.Unconfirmed)
		if n := f.requests(Submit) - before; n != 1 {
			t.Errorf("%s: one submission sent %d requests", name, n)
		}
	}
}

func testMalformedPoll(t *testing.T, f *fixture) {
	ref := f.submit(t)
	for name, body := range malformed {
		f.override(Poll, answer(http.StatusOK, nil, body))
		status, err := f.backend.Poll(t.Context(), ref)
		if err != nil {
			f.wantError(t, name, err, backends.Busy)
			continue
		}
		CheckStatus(t, status, f.Secret)
		if status.State != backends.Unknown {
			t.Errorf("%s: the status is %+v", name, status)
		}
	}
}

// echoRequest adds a prompt and an image to the answer of the mock. It simulates
// services that repeat the request in their answer.
func echoRequest(w http.ResponseWriter, r *http.Request, mock http.Handler) {
	recorder := httptest.NewRecorder()
	mock.ServeHTTP(recorder, r)
	body := recorder.Body.Bytes()
	var members map[string]any
	if json.Unmarshal(body, &members) == nil {
		members["aaa_input"] = map[string]any{"prompt": strings.Repeat("<\u00e9", 1<<15), "images": []string{strings.Repeat("A", huge)}}
		body, _ = json.Marshal(members)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(body)
}

func testEchoedRequest(t *testing.T, f *fixture) {
	f.override(Submit, echoRequest)
	f.override(Poll, echoRequest)
	ref, err := f.backend.Submit(t.Context(), f.job())
	if err != nil {
		t.Fatalf("submit: %v", err)
	}
	for _, state := range []backends.State{backends.Running, backends.Succeeded} {
		f.mock.SetState(state)
		if status, err := f.backend.Poll(t.Context(), ref); err != nil || status.State != state {
			t.Errorf("the job is %s, Poll returns %+v, %v", state, status, err)
		}
	}
}

// replacements are the values that replace each member in turn.
var replacements = []any{nil, true, -1.5, 1e300, "", "x", "a\u0000\n\u202eb", []any{}, []any{nil, 1.0, "x"}, map[string]any{}}

// mutations returns copies of a JSON value. In each of them one inner value is
// removed, or replaced by an element of with.
func mutations(value any, with []any) []any {
	var list []any
	switch value := value.(type) {
	case map[string]any:
		for name := range value {
			add := func(change func(map[string]any)) {
				c := maps.Clone(value)
				change(c)
				list = append(list, c)
			}
			add(func(m map[string]any) { delete(m, name) })
			for _, other := range append(mutations(value[name], with), with...) {
				add(func(m map[string]any) { m[name] = other })
			}
		}
	case []any:
		for i := range value {
			for _, other := range append(mutations(value[i], with), with...) {
				c := append([]any(nil), value...)
				c[i] = other
				list = append(list, c)
			}
		}
	}
	return list
}

// mutate returns an override that applies the mutation with this number to the
// answer of the mock. It sets more if there is such a mutation.
func mutate(number int, with []any, more *bool) overrideFunc {
	return func(w http.ResponseWriter, r *http.Request, mock http.Handler) {
		recorder := httptest.NewRecorder()
		mock.ServeHTTP(recorder, r)
		body := recorder.Body.Bytes()
		var value any
		if json.Unmarshal(body, &value) == nil {
			if list := mutations(value, with); number < len(list) {
				*more = true
				body, _ = json.Marshal(list[number])
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(body)
	}
}

func testMutatedSubmission(t *testing.T, f *fixture) {
	for number := 0; ; number++ {
		more := false
		f.override(Submit, mutate(number, replacements, &more))
		job := f.Job
		job.Token = backends.Token(string(rune(number)))
		ref, err := f.backend.Submit(t.Context(), job)
		switch {
		case err != nil:
			f.wantError(t, "submit", err, backends.Unconfirmed, backends.Refused, backends.Busy)
		case !backends.IsID(ref.ID):
			t.Errorf("the reference %+v has an invalid id", ref)
		}
		if !more {
			return
		}
	}
}

func testMutatedPoll(t *testing.T, f *fixture) {
	ref := f.submit(t)
	for _, state := range []backends.State{backends.Queued, backends.Running, backends.Succeeded, backends.Failed} {
		f.mock.SetState(state)
		for number := 0; ; number++ {
			more := false
			f.override(Poll, mutate(number, replacements, &more))
			status, err := f.backend.Poll(t.Context(), ref)
			if err != nil {
				f.wantError(t, string(state), err, backends.Busy, backends.Refused, backends.Gone)
			} else {
				CheckStatus(t, status, f.Secret)
				ended := status.State == backends.Succeeded || status.State == backends.Failed
				if ended && (state == backends.Queued || state == backends.Running) {
					t.Errorf("the status of a job that is %s is %+v", state, status)
				}
			}
			if !more {
				break
			}
		}
	}
}

func testSecretNotRevealed(t *testing.T, f *fixture) {
	ref := f.submit(t)
	text, _ := json.Marshal(strings.Repeat(".", 1000) + f.Secret + " was the key, " + f.Secret)
	body := string(bytes.ReplaceAll([]byte(
		`{"code":S,"type":S,"message":S,"param":S,"title":S,"detail":S,"status":S,
		"error":{"code":S,"type":S,"message":S,"param":S},"Response":{"Error":{"Code":S,"Message":S}}}`), []byte("S"), text))
	for _, status := range []int{200, 302, 400, 401, 402, 403, 404, 409, 422, 429, 500, 503} {
		for _, op := range []Op{Submit, Poll, Cancel, Fetch} {
			f.override(op, answer(status, nil, body))
		}
		if _, err := f.backend.Submit(t.Context(), f.job()); err != nil {
			CheckError(t, err, f.Secret)
		}
		if status, err := f.backend.Poll(t.Context(), ref); err != nil {
			CheckError(t, err, f.Secret)
		} else {
			CheckStatus(t, status, f.Secret)
		}
		if b, ok := f.backend.(backends.Canceler); ok {
			CheckError(t, b.Cancel(t.Context(), ref), f.Secret)
		}
	}
	for _, state := range []backends.State{backends.Running, backends.Succeeded, backends.Failed} {
		f.mock.SetState(state)
		for number := 0; ; number++ {
			more := false
			f.override(Poll, mutate(number, []any{"the key " + f.Secret}, &more))
			if status, err := f.backend.Poll(t.Context(), ref); err != nil {
				CheckError(t, err, f.Secret)
			} else {
				CheckStatus(t, status, f.Secret)
			}
			if !more {
				break
			}
		}
	}
}
