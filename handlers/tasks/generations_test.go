package tasks_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestTheAnswerRepeatsTheFieldsOfAGeneration(t *testing.T) {
	w := start(t, "default_model sora-2")
	key := w.fundedKey(t)
	given := `"prompt":"a <boat>","image":"https://files.example/a.png?x=1&y=2","duration":2.50,"width":1280,"height":720,"fps":24,"seed":7,"n":2,` +
		`"response_format":"url","user":"u1","metadata":{"negative_prompt":"rain","style":{"a":[1,1.00]}}`
	got := w.post(t, key, generationsPath, `{"model":"sora-2",`+given+`,"look":"high"}`)
	task := decoded[resource](t, got)
	want := fmt.Sprintf(`{"id":%q,"task_id":%[1]q,"object":"video","model":"sora-2","status":"queued","progress":0,"created_at":%d,%s}`, task.Task_ID, task.Created_At, given)
	if got.Body != want {
		t.Errorf("answered %s, want %s", got.Body, want)
	}
	job := w.service.job(t, task.Task_ID)
	if job.Kind != backends.Generations || string(job.Fields["look"]) != `"high"` || job.Output.Duration != 2.5 || job.Output.Count != 2 ||
		job.Inputs[0].URL != "https://files.example/a.png?x=1&y=2" || job.NotifyURL != "https://gate.example/v1/notices/works" {
		t.Errorf("the job is %+v", job)
	}
	// Two videos of 2.5 seconds. look is an unknown field, so the highest price is held.
	w.checkWallet(t, key, "100", "1.00")

	// The answer has only the given fields and the default model.
	task = w.submit(t, key, generationsPath, `{"duration":1}`)
	if task.Model != "sora-2" || task.Status != "queued" {
		t.Errorf("answered %+v", task)
	}
}

func TestBase64ImagesAreNotRepeatedInTheAnswer(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	data := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a picture", 2000)))
	small := "data:image/png;base64,aGVsbG8="
	for _, body := range []string{
		`{"model":"sora-2","duration":1,"image":"` + data + `"}`,
		`{"model":"sora-2","duration":1,"image":"data:image/png;base64,` + data + `"}`,
		`{"model":"sora-2","duration":1,"image":"` + small + `","last_frame":"` + data + `"}`,
		`{"model":"sora-2","duration":1,"metadata":{"style":"film","image":"` + small + `","mask":"` + data + `","more":{"deep":["` + small + `"]}}}`,
	} {
		got := w.post(t, key, generationsPath, body)
		task := decoded[resource](t, got)
		if strings.Contains(got.Body, "base64") || strings.Contains(got.Body, data[:100]) || len(got.Body) > 500 {
			t.Errorf("answered %.600s", got.Body)
		}
		if strings.Contains(body, "style") && task.Metadata["style"] != "film" {
			t.Errorf("answered %s", got.Body)
		}
		if job := w.service.job(t, task.Task_ID); strings.Contains(body, `"image":"`+data) && (len(job.Inputs) != 1 || job.Inputs[0].URL != data) {
			t.Errorf("the inputs of the job are %.300v", job.Inputs)
		}
		if got := w.get(t, key, generationsPath+"/"+task.Task_ID); strings.Contains(got.Body, "base64") {
			t.Errorf("answered %.600s", got.Body)
		}
	}
}

// TestLongFieldsAreNotRepeatedInTheAnswer checks that a client with a limit on the length of
// answers can read the id of the task.
func TestLongFieldsAreNotRepeatedInTheAnswer(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	long := strings.Repeat("<\u00e9", 4000)
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprintf(`"m%d":%q`, i, strings.Repeat("x", 8000))
	}
	for _, given := range []string{
		`"prompt":"` + long + `"`, `"prompt":"a boat","metadata":{"style":"film","negative_prompt":"` + long + `"}`,
		`"metadata":{` + strings.Join(many, ",") + `}`,
	} {
		got := w.post(t, key, generationsPath, `{"model":"sora-2","duration":1,`+given+`}`)
		task := decoded[resource](t, got)
		if task.Task_ID == "" || len(got.Body) > 1000 {
			t.Errorf("answered %d bytes: %.600s", len(got.Body), got.Body)
		}
		if strings.Contains(given, "a boat") && (!strings.Contains(got.Body, `"prompt":"a boat"`) || task.Metadata["style"] != "film") {
			t.Errorf("answered %s", got.Body)
		}
		if job := w.service.job(t, task.Task_ID); strings.Contains(given, `"prompt":"<`) && job.Prompt != long {
			t.Errorf("the prompt of the job has %d bytes", len(job.Prompt))
		}
	}
}

func TestAGenerationIsShownInTheFlatForm(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	task := w.submit(t, key, generationsPath, `{"model":"sora-2","duration":8,"n":2}`)
	path := generationsPath + "/" + task.Task_ID
	head := fmt.Sprintf(`{"id":%q,"task_id":%[1]q,"object":"video","model":"sora-2","status":`, task.Task_ID)
	if got, want := w.get(t, key, path).Body, head+fmt.Sprintf(`"queued","progress":0,"created_at":%d}`, task.Created_At); got != want {
		t.Errorf("answered %s, want %s", got, want)
	}
	const one, two = "https://cdn.example/1.mp4", "https://cdn.example/2.mp4"
	end := w.finish(t, key, task.Task_ID, succeeded(one, two))
	want := head + fmt.Sprintf(`"succeeded","progress":100,"created_at":%d,"completed_at":%d,"url":%q,"urls":[%[3]q,%q],"format":"mp4","metadata":{"duration":8,"width":1280,"height":720}}`,
		task.Created_At, *end.Completed_At, one, two)
	if got := w.get(t, key, path).Body; got != want {
		t.Errorf("answered %s, want %s", got, want)
	}
	// The platform returns the same task.
	if end.Object != "video_task" || end.Status != "success" || end.Result.Type != "video" || len(end.Result.URLs) != 2 {
		t.Errorf("the platform shows %+v", end)
	}

	task = w.submit(t, key, generationsPath, `{"model":"sora-2","duration":8}`)
	w.finish(t, key, task.Task_ID, failed(backends.ModelFailed, "no boat"))
	got := decoded[resource](t, w.get(t, key, generationsPath+"/"+task.Task_ID))
	if got.Status != "failed" || got.Progress != float64(0) || got.Error == nil || got.Error.Code != "TASK_FAILED" || got.Error.Message != "no boat" || got.URL != "" {
		t.Errorf("answered %+v", got)
	}

	// This route returns videos of the platform, but no images.
	clip := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	if got := decoded[resource](t, w.get(t, key, generationsPath+"/"+clip)); got.ID != clip || got.Object != "video" {
		t.Errorf("answered %+v", got)
	}
	picture := w.submit(t, key, imagePath, bodyFor(imagePath, nil)).Task_ID
	refusal{404, fault.TaskNotFound, "", "there is no such task"}.check(t, generationsPath, w.get(t, key, generationsPath+"/"+picture))
}

func TestATaskOfUnknownDeliveryIsPending(t *testing.T) {
	w := start(t, "")
	key := w.fundedKey(t)
	w.service.acceptBy(func(backends.Job) error {
		return &backends.Error{Kind: backends.Unconfirmed, Reason: backends.UpstreamError, Message: "cut off"}
	})
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil))
	if task.Status != "pending" {
		t.Errorf("answered %+v", task)
	}
	if got := decoded[resource](t, w.get(t, key, generationsPath+"/"+task.Task_ID)); got.Status != "queued" {
		t.Errorf("the flat form shows %+v", got)
	}
	if got := w.submit(t, key, generationsPath, `{"model":"sora-2","duration":1}`); got.Status != "queued" {
		t.Errorf("answered %+v", got)
	}
}
