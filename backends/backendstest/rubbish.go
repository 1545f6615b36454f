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

// huge is more than any service answers with, but for what it repeats of what it
// was sent.
const huge = 5 << 20

// rubbish are answers with status 200 that say nothing.
var rubbish = map[string]string{
	"nothing":               "",
	"white space":           " \n",
	"HTML":                  "<!doctype html><title>502</title>",
	"an event stream":       "event: completed\ndata: {\"status\":\"succeeded\"}\n\n",
	"text":                  "ok",
	"null":                  "null",
	"a string":              `"task_1"`,
	"an array":              `[{"id":"x","status":"succeeded"}]`,
	"an empty object":       `{}`,
	"half an object":        `{"id":"x","task_id":"x","status":"succ`,
	"two objects":           `{"id":"x","task_id":"x"}{"id":"y"}`,
	"bad UTF-8":             "{\"id\":\"\xff\xfe\",\"task_id\":\"\xff\",\"request_id\":\"\xff\",\"status\":\"\xff\"}",
	"an id of control":      `{"id":"a\u0000b","task_id":"a\nb","request_id":"a b"}`,
	"an id too long":        `{"id":"` + strings.Repeat("x", 256) + `","task_id":"` + strings.Repeat("x", 256) + `","request_id":"` + strings.Repeat("x", 256) + `"}`,
	"wrong types":           `{"id":{},"task_id":[],"request_id":true,"status":7,"data":"x","Response":[]}`,
	"a huge object":         `{"id":"x","task_id":"x","request_id":"x","pad":[` + strings.Repeat("1,", huge/2) + `1]}`,
	"a huge lot of nothing": strings.Repeat(" ", huge),
	"deep":                  `{"id":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
}

func rubbishSubmission(t *testing.T, g *stage) {
	for name, body := range rubbish {
		before := g.requests(Submit)
		g.on(Submit, answer(http.StatusOK, nil, body))
		_, err := g.backend.Submit(t.Context(), g.job())
		g.refusedAs(t, name, err, backends.Doubtful)
		if n := g.requests(Submit) - before; n != 1 {
			t.Errorf("%s: %d requests for one submission", name, n)
		}
	}
}

func rubbishPoll(t *testing.T, g *stage) {
	ref := g.submitted(t)
	for name, body := range rubbish {
		g.on(Poll, answer(http.StatusOK, nil, body))
		status, err := g.backend.Poll(t.Context(), ref)
		if err != nil {
			g.refusedAs(t, name, err, backends.Busy)
			continue
		}
		Sound(t, status, g.Secret)
		if status.State != backends.Unknown {
			t.Errorf("%s: the job is %+v", name, status)
		}
	}
}

// repeating is an act that answers in the double's place with its answer, and
// with a prompt and a picture in it, as some services repeat what they were sent.
func repeating(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	recorder := httptest.NewRecorder()
	pass.ServeHTTP(recorder, r)
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

func repetition(t *testing.T, g *stage) {
	g.on(Submit, repeating)
	g.on(Poll, repeating)
	ref, err := g.backend.Submit(t.Context(), g.job())
	if err != nil {
		t.Fatalf("a job is lost: %v", err)
	}
	for _, state := range []backends.State{backends.Running, backends.Succeeded} {
		g.double.Turn(state)
		if status, err := g.backend.Poll(t.Context(), ref); err != nil || status.State != state {
			t.Errorf("the job is %s, told is %+v, %v", state, status, err)
		}
	}
}

// instead are the values that are put in the place of each member in turn.
var instead = []any{nil, true, -1.5, 1e300, "", "x", "a\u0000\n\u202eb", []any{}, []any{nil, 1.0, "x"}, map[string]any{}}

// mutilations returns a JSON value with each of its parts, itself left out,
// taken away and replaced in turn.
func mutilations(value any, with []any) []any {
	var list []any
	switch value := value.(type) {
	case map[string]any:
		for name := range value {
			copied := func(set func(map[string]any)) {
				c := maps.Clone(value)
				set(c)
				list = append(list, c)
			}
			copied(func(m map[string]any) { delete(m, name) })
			for _, other := range append(mutilations(value[name], with), with...) {
				copied(func(m map[string]any) { m[name] = other })
			}
		}
	case []any:
		for i := range value {
			for _, other := range append(mutilations(value[i], with), with...) {
				c := append([]any(nil), value...)
				c[i] = other
				list = append(list, c)
			}
		}
	}
	return list
}

// mutilated is an act that answers in the double's place with its answer
// mutilated in the way of this number. more tells whether there is such a way.
func mutilated(number int, with []any, more *bool) act {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		recorder := httptest.NewRecorder()
		pass.ServeHTTP(recorder, r)
		body := recorder.Body.Bytes()
		var value any
		if json.Unmarshal(body, &value) == nil {
			if ways := mutilations(value, with); number < len(ways) {
				*more = true
				body, _ = json.Marshal(ways[number])
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(recorder.Code)
		_, _ = w.Write(body)
	}
}

func mutilatedSubmission(t *testing.T, g *stage) {
	for number := 0; ; number++ {
		more := false
		g.on(Submit, mutilated(number, instead, &more))
		job := g.Job
		job.Token = backends.Token(string(rune(number)))
		ref, err := g.backend.Submit(t.Context(), job)
		switch {
		case err != nil:
			g.refusedAs(t, "submit", err, backends.Doubtful, backends.Refused, backends.Busy)
		case !backends.IsID(ref.ID):
			t.Errorf("the reference %+v", ref)
		}
		if !more {
			return
		}
	}
}

func mutilatedPoll(t *testing.T, g *stage) {
	ref := g.submitted(t)
	for _, state := range []backends.State{backends.Queued, backends.Running, backends.Succeeded, backends.Failed} {
		g.double.Turn(state)
		for number := 0; ; number++ {
			more := false
			g.on(Poll, mutilated(number, instead, &more))
			status, err := g.backend.Poll(t.Context(), ref)
			if err != nil {
				g.refusedAs(t, string(state), err, backends.Busy, backends.Refused, backends.Gone)
			} else {
				Sound(t, status, g.Secret)
				over := status.State == backends.Succeeded || status.State == backends.Failed
				if over && (state == backends.Queued || state == backends.Running) {
					t.Errorf("a job that is %s has ended: %+v", state, status)
				}
			}
			if !more {
				break
			}
		}
	}
}

func discretion(t *testing.T, g *stage) {
	ref := g.submitted(t)
	said, _ := json.Marshal(strings.Repeat(".", 1000) + g.Secret + " was the key, " + g.Secret)
	body := string(bytes.ReplaceAll([]byte(
		`{"code":S,"type":S,"message":S,"param":S,"title":S,"detail":S,"status":S,
		"error":{"code":S,"type":S,"message":S,"param":S},"Response":{"Error":{"Code":S,"Message":S}}}`), []byte("S"), said))
	for _, status := range []int{200, 302, 400, 401, 402, 403, 404, 409, 422, 429, 500, 503} {
		for _, op := range []Op{Submit, Poll, Cancel, Fetch} {
			g.on(op, answer(status, nil, body))
		}
		if _, err := g.backend.Submit(t.Context(), g.job()); err != nil {
			SoundError(t, err, g.Secret)
		}
		if told, err := g.backend.Poll(t.Context(), ref); err != nil {
			SoundError(t, err, g.Secret)
		} else {
			Sound(t, told, g.Secret)
		}
		if b, ok := g.backend.(backends.Canceler); ok {
			SoundError(t, b.Cancel(t.Context(), ref), g.Secret)
		}
	}
	for _, state := range []backends.State{backends.Running, backends.Succeeded, backends.Failed} {
		g.double.Turn(state)
		for number := 0; ; number++ {
			more := false
			g.on(Poll, mutilated(number, []any{"the key " + g.Secret}, &more))
			if told, err := g.backend.Poll(t.Context(), ref); err != nil {
				SoundError(t, err, g.Secret)
			} else {
				Sound(t, told, g.Secret)
			}
			if !more {
				break
			}
		}
	}
}
