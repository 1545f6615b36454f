package tasks_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// TestMembersThatChangeTheCostArePricedOrRefused submits a video of 4 seconds with another member
// that makes it more expensive. If the model has a price per second, the submission is refused
// before any hold, and the error names that member.
func TestMembersThatChangeTheCostArePricedOrRefused(t *testing.T) {
	const given = `"model":"video-e-1","duration":4,"n":1`
	w := start(t, "")
	key := w.fundedKey(t)
	for _, c := range []struct {
		path   string // empty: generations
		member string
		param  string
		code   fault.Code // empty: INVALID_PARAMETER
	}{
		{"", `"prompt":"a boat --dur 30"`, "prompt", ""},
		{"", `"prompt":"--duration=30 a boat"`, "prompt", ""},
		{"", `"prompt":"a boat\n--Dur 30 --rs 720p"`, "prompt", ""},
		{"", `"prompt":"a boat --frames 241"`, "prompt", ""},
		{"", `"prompt":"a boat --dur"`, "prompt", ""},
		{"", `"prompt":"a boat --rs 1080p","width":1280,"height":720`, "prompt", ""},
		{"", `"metadata":{"content":[{"type":"text","text":"a boat \u002d-dur 30"}]}`, "metadata.content[0].text", ""},
		{"", `"content":[{"type":"text","text":"a boat --dur 30"}]`, "content[0].text", ""},
		{"", `"extra_body":"{\"duration\":30}"`, "extra_body.duration", ""},
		{"", `"extra_body":" {\"model\":\"expensive\"}"`, "extra_body.model", ""},
		{"", `"extra_body":"{\"a\":1,\"a\":2,\"input\":\"{\\\"duration\\\":30}\"}"`, "extra_body.input.duration", ""},
		{"", `"metadata":{"a":"{\"b\":\"\\ud800 --dur 30\"}"}`, "metadata.a", ""},
		{"", `"extra_body":"{\"a\":NaN,\"duration\":30}"`, "extra_body", ""},
		{"", `"whatever":"{\"duration\":30}"`, "whatever.duration", ""},
		{"", `"end_time":30`, "end_time", ""},
		{"", `"metadata":{"endTime":"30"}`, "metadata.endTime", ""},
		{"", `"metadata":{"end_time":"00:00:30"}`, "metadata.end_time", ""},
		{"", `"metadata":{"a":{"b":{"duration":30}}}`, "metadata.a.b.duration", ""},
		{"", `"a":[[{"b":{"numFrames":1000}}]]`, "a[0][0].b.numFrames", ""},
		{"", `"timing":{"duration":{"seconds":30}}`, "timing.duration", ""},
		{"", `"shots":[{"duration":4},{"duration":4}]`, "shots[0].duration", ""},
		{"", `"outputs":4`, "outputs", ""},
		{"", `"metadata":{"samples":4}`, "metadata.samples", ""},
		{"", `"metadata":{"a":{"videos":"4"}}`, "metadata.a.videos", ""},
		{"", `"amount":4`, "amount", ""},
		{"", `"num":4`, "num", ""}, {"", `"takes":4`, "takes", ""}, {"", `"loops":4`, "loops", ""}, {"", `"generate_count":4`, "generate_count", ""},
		{"", `"metadata":{"batchCount":4}`, "metadata.batchCount", ""}, {"", `"n_iter":4`, "n_iter", ""}, {"", `"copies":"4"`, "copies", ""},
		{"", `"extend_by":30`, "extend_by", ""}, {"", `"runtime":30`, "runtime", ""}, {"", `"a":{"run_time":"30"}`, "a.run_time", ""},
		{"", `"minutes":1`, "minutes", ""}, {"", `"minutes":0.5`, "minutes", ""}, {"", `"metadata":{"duration_minutes":"1"}`, "metadata.duration_minutes", ""},
		{"", `"hours":1`, "hours", ""}, {"", `"msec":30000`, "msec", ""}, {"", `"prompt":"a boat --minutes 1"`, "prompt", ""}, {"", `"prompt":"a boat --loops 4"`, "prompt", ""},
		{videoPath, `"ext_info":{"takes":4}`, "ext_info.takes", ""}, {imagePath, `"ext_info":{"num":4}`, "ext_info.num", ""},
		{"", `"mode":"pro"`, "mode", fault.UnpricedOption},
		{"", `"metadata":{"a":{"quality":"high"}}`, "metadata.a.quality", fault.UnpricedOption},
		{videoPath, `"prompt":"a boat --dur 30"`, "prompt", ""},
		{videoPath, `"ext_info":{"a":{"duration":30}}`, "ext_info.a.duration", ""},
		{videoPath, `"ext_info":{"AdditionalParameters":"{\"duration\":30}"}`, "ext_info.AdditionalParameters.duration", ""},
		{videoPath, `"ext_info":{"mode":"pro"}`, "ext_info.mode", fault.UnpricedOption},
		{imagePath, `"ext_info":{"a":{"samples":4}}`, "ext_info.a.samples", ""},
		{imagePath, `"ext_info":{"sequential_image_generation_options":{"max_images":4}}`, "ext_info.sequential_image_generation_options.max_images", ""},
		{imagePath, `"ext_info":{"num_images":4}`, "ext_info.num_images", ""}, {imagePath, `"ext_info":{"num_images_per_prompt":4}`, "ext_info.num_images_per_prompt", ""},
		{imagePath, `"ext_info":{"numberOfImages":4}`, "ext_info.numberOfImages", ""},
		{imagePath, `"ext_info":{"quality":"hd"}`, "ext_info.quality", fault.UnpricedOption},
	} {
		path, body := generationsPath, fmt.Sprintf(`{%s,%s}`, given, c.member)
		switch c.path {
		case videoPath:
			path, body = videoPath, `{"model":"video-e-1","output":{"duration":4},`+c.member+`}`
		case imagePath:
			path, body = imagePath, `{"model":"image-e-1",`+c.member+`}`
		}
		if c.path != "" && c.param != "prompt" {
			body = `{"prompt":"a boat",` + body[1:]
		}
		if c.code == "" {
			c.code = fault.InvalidParameter
		}
		t.Run(c.path+c.member, func(t *testing.T) {
			refusal{http.StatusBadRequest, c.code, c.param, ""}.check(t, path, w.post(t, key, path, body))
		})
	}
	w.checkWallet(t, key, "100", "0")
	if jobs := w.service.submissions(); len(jobs) != 0 {
		t.Errorf("the backend received %d jobs, want 0", len(jobs))
	}
}

// TestMembersThatDoNotChangeThePriceAreAccepted checks the members that are accepted.
func TestMembersThatDoNotChangeThePriceAreAccepted(t *testing.T) {
	w := start(t, `
		price video-f-flat {
			request 0.50
		}
		price video-e-pro {
			second     0.10
			second pro 0.25
		}
	`)
	key := w.fundedKey(t)
	hold := func(body string) string {
		t.Helper()
		answer := w.post(t, key, generationsPath+"?dry_run=true", body)
		return decoded[struct{ Hold string }](t, answer).Hold
	}
	for member, want := range map[string]string{
		`"prompt":"a boat --dur 4 --rs 720P --ratio 16:9 --seed 7, and -- a sail"`: "0.40",
		`"prompt":"{\"duration\": \"long\"} is a text"`:                            "0.40",
		`"outputs":1,"metadata":{"style":"{anime}","a":"[anime]"}`:                 "0.80", // "a" is an unknown member, so the highest price is held
		`"videos":["https://files.example/a.mp4"]`:                                 "0.80",
		`"loop":true,"takes":"first"`:                                              "0.80",
		`"extend_by":4,"runtime":"4","msec":4000,"num":1,"loops":1`:                "0.80",
		`"motion":{"amount":0.7}`:                                                  "0.80",
		`"shots":[{"duration":1,"prompt":"a"},{"duration":3,"prompt":"b"}]`:        "0.80",
		`"start_time":1,"end_time":4`:                                              "0.80",
		`"extra_body":"{\"duration\":4}"`:                                          "0.80",
		`"mode":"std","quality":"standard"`:                                        "0.40",
	} {
		if got := hold(`{"model":"video-e-1","duration":4,` + member + `}`); got != want {
			t.Errorf("%s holds %s, want %s", member, got, want)
		}
	}
	if got := hold(`{"model":"video-f-flat","mode":"pro","end_time":90,"metadata":{"a":{"duration":30}},"prompt":"--dur 30"}`); got != "0.50" {
		t.Errorf("a model with a price per request holds %s", got)
	}
	for member, want := range map[string]string{`"mode":"pro"`: "1.00", `"metadata":{"quality":"PRO"}`: "1.00", `"mode":"std"`: "0.40"} {
		if got := hold(`{"model":"video-e-pro","duration":4,` + member + `}`); got != want {
			t.Errorf("%s holds %s, want %s", member, got, want)
		}
	}
	// The price row of the mode also applies to a result of another size.
	pro := w.submit(t, key, generationsPath, `{"model":"video-e-pro","duration":4,"mode":"pro"}`)
	if got := w.finish(t, key, pro.ID, succeeded("https://files.example/a.mp4")); got.Status != "success" {
		t.Errorf("the task is %+v", got)
	}
	w.checkWallet(t, key, "99", "0")
}
