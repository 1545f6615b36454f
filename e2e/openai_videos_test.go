package e2e

import (
	"bytes"
	"image"
	"image/png"
	"io"
	"net/http"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// videoSite is a site whose operator serves the model of the vendor's examples with the demo backend.
func videoSite() site {
	s := demonstration
	s.Routes = "modelgate_tasks"
	s.Money = `
		family E sora-*
		price sora-* {
			second 0.01
		}
		backend demo {
			models sora-*
			adapter demo {
				takes 1s
			}
		}
	`
	return s
}

// finished polls a video to its end, with the SDK's own helper.
func finished(t *testing.T, client openai.Client, id string) *openai.Video {
	t.Helper()
	video, err := client.Videos.PollStatus(t.Context(), id, 100)
	if err != nil || video.Status != openai.VideoStatusCompleted || video.Progress != 100 || video.ExpiresAt < video.CompletedAt || video.CompletedAt < video.CreatedAt {
		t.Fatalf("the video is %+v (%v)", video, err)
	}
	return video
}

// content downloads a video.
func content(t *testing.T, client openai.Client, id string) []byte {
	t.Helper()
	resp, err := client.Videos.DownloadContent(t.Context(), id, openai.VideoDownloadContentParams{})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	file, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Content-Type") != "video/mp4" {
		t.Errorf("the content has the type %q (%v)", resp.Header.Get("Content-Type"), err)
	}
	checkFilm(t, file)
	return file
}

func TestTheOpenAISDKMakesVideos(t *testing.T) {
	t.Parallel()
	g := running(t, videoSite())
	c := g.newGatewayUser("director")
	c.credit("1.00")
	client := g.openaiClient(option.WithAPIKey(c.key))

	// The example of the SDK's repository.
	video, err := client.Videos.NewAndPoll(t.Context(), openai.VideoNewParams{
		Model:  openai.VideoModelSora2,
		Prompt: "A video of the words 'Thank you' in sparkling letters",
	}, 1000)
	if err != nil || video.Status != openai.VideoStatusCompleted || video.Model != "sora-2" || video.Seconds != "8" || video.Size != "1280x720" || video.Prompt == "" {
		t.Fatalf("the video is %+v (%v)", video, err)
	}
	first := content(t, client, video.ID)

	// A reference image, a length and a size.
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 64, 36))); err != nil {
		t.Fatal(err)
	}
	second, err := client.Videos.New(t.Context(), openai.VideoNewParams{
		Model: openai.VideoModelSora2, Prompt: "A boat", Seconds: openai.VideoSeconds4, Size: openai.VideoSize720x1280,
		InputReference: openai.VideoNewParamsInputReferenceUnion{OfFile: &picture},
	})
	if err != nil || second.Status != openai.VideoStatusQueued || second.Seconds != "4" || second.Size != "720x1280" {
		t.Fatalf("the video is %+v (%v)", second, err)
	}
	finished(t, client, second.ID)
	_, err = client.Videos.New(t.Context(), openai.VideoNewParams{
		Model: openai.VideoModelSora2, Prompt: "A boat", InputReference: openai.VideoNewParamsInputReferenceUnion{
			OfImageInputReference: &openai.ImageInputReferenceParam{FileID: openai.String("file-1")},
		},
	})
	checkOpenAIError(t, err, openai.Error{StatusCode: 400, Type: "invalid_request_error", Code: "INVALID_PARAMETER", Param: "input_reference.file_id"})

	remix, err := client.Videos.Remix(t.Context(), video.ID, openai.VideoRemixParams{Prompt: "The words in smoke"})
	if err != nil || remix.RemixedFromVideoID != video.ID || remix.Seconds != "8" {
		t.Fatalf("the remix is %+v (%v)", remix, err)
	}
	finished(t, client, remix.ID)
	if bytes.Equal(content(t, client, remix.ID), first) {
		t.Error("the remix is the same video")
	}

	for order, want := range map[openai.VideoListParamsOrder][]string{
		openai.VideoListParamsOrderAsc: {video.ID, second.ID, remix.ID}, openai.VideoListParamsOrderDesc: {remix.ID, second.ID, video.ID}, "": {remix.ID, second.ID, video.ID},
	} {
		var listed []string
		pages := client.Videos.ListAutoPaging(t.Context(), openai.VideoListParams{Limit: openai.Int(1), Order: order})
		for pages.Next() {
			listed = append(listed, pages.Current().ID)
		}
		if pages.Err() != nil || len(listed) != 3 || listed[0] != want[0] || listed[1] != want[1] || listed[2] != want[2] {
			t.Errorf("%q: listed %q, want %q (%v)", order, listed, want, pages.Err())
		}
	}

	deleted, err := client.Videos.Delete(t.Context(), second.ID)
	if err != nil || !deleted.Deleted || deleted.ID != second.ID {
		t.Errorf("the deletion is %+v (%v)", deleted, err)
	}
	_, err = client.Videos.Get(t.Context(), second.ID)
	checkOpenAIError(t, err, openai.Error{StatusCode: 404, Type: "invalid_request_error", Code: "TASK_NOT_FOUND"})
	_, err = client.Videos.DownloadContent(t.Context(), second.ID, openai.VideoDownloadContentParams{})
	checkOpenAIError(t, err, openai.Error{StatusCode: 404, Type: "invalid_request_error", Code: "TASK_NOT_FOUND"})
	_, err = client.Videos.DownloadContent(t.Context(), video.ID, openai.VideoDownloadContentParams{Variant: openai.VideoDownloadContentParamsVariantThumbnail})
	checkOpenAIError(t, err, openai.Error{StatusCode: 404, Type: "invalid_request_error", Code: "NOT_FOUND", Param: "variant"})

	// Twice eight seconds and once four, the deleted video too.
	if w := g.wallet(c.name); w.Balance != unit-20*unit/100 || w.Held != 0 {
		t.Errorf("the wallet is %+v", w)
	}
	g.verify()
}

// TestAVideoSurvivesAKill kills the gateway between the calls of an SDK.
func TestAVideoSurvivesAKill(t *testing.T) {
	t.Parallel()
	g := running(t, videoSite())
	c := g.newGatewayUser("director")
	c.credit("1.00")
	client := g.openaiClient(option.WithAPIKey(c.key))
	params := openai.VideoNewParams{Model: openai.VideoModelSora2, Prompt: "A boat", Seconds: openai.VideoSeconds4}
	once := option.WithHeader("Idempotency-Key", "one boat")
	restart := func() {
		g.process.kill()
		g.process.checkLog()
		g.start()
	}

	video, err := client.Videos.New(t.Context(), params, once)
	if err != nil {
		t.Fatal(err)
	}
	restart()
	var resp *http.Response
	again, err := client.Videos.New(t.Context(), params, once, option.WithResponseInto(&resp))
	if err != nil || again.ID != video.ID || resp.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the repeated submission is %+v (%v)", again, err)
	}
	finished(t, client, video.ID)
	file := content(t, client, video.ID)
	restart()
	if !bytes.Equal(content(t, client, video.ID), file) {
		t.Error("the content has changed")
	}
	remix, err := client.Videos.Remix(t.Context(), video.ID, openai.VideoRemixParams{Prompt: "A ship"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Videos.Delete(t.Context(), video.ID); err != nil {
		t.Fatal(err)
	}
	restart()
	_, err = client.Videos.Get(t.Context(), video.ID)
	checkOpenAIError(t, err, openai.Error{StatusCode: 404, Type: "invalid_request_error", Code: "TASK_NOT_FOUND"})
	if remix = finished(t, client, remix.ID); remix.RemixedFromVideoID != video.ID || remix.Prompt != "A ship" {
		t.Errorf("the remix is %+v", remix)
	}
	g.verify()
	if w := g.wallet(c.name); w.Balance != unit-8*unit/100 || w.Held != 0 {
		t.Errorf("the wallet is %+v", w)
	}
}
