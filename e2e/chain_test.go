package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestATaskRunsThroughTwoGateways: one gateway runs a task at another one,
// which uses its demo adapter. A proxy between them sets Retry-After to ten
// minutes, so that only the callback of the second gateway can wake the first.
func TestATaskRunsThroughTwoGateways(t *testing.T) {
	t.Parallel()
	near, far := newGateway(t, demonstration), newGateway(t, demonstration)
	far.Site.Routes, near.Site.Routes = "modelgate_tasks", "modelgate_tasks"
	far.Site.Money = fmt.Sprintf(`
		family E demo-*
		price video-* {
			second 0.01
		}
		price image-* {
			image 0.02
		}
		backend demo {
			models demo-*
			adapter demo {
				takes 3s
			}
		}
		callback {
			url http://%[1]s/v1/notices/next
			secret %[2]s
			allow %[1]s
		}
	`, near.Address, receiverSecret)
	far.start()
	supplier := far.newGatewayUser("supplier")
	supplier.credit("10.00")

	link := slowPollProxy(t, far.url(""))
	r := newReceiver(t, new(checkpoints))
	near.Site.Money = fmt.Sprintf(`
		family E demo-*
		price video-* {
			second 0.02
		}
		price image-* {
			image 0.05
		}
		backend next {
			models demo-*
			adapter platform {
				url %s
				key %s
				callback_secret %s
			}
		}
		media {
			allow %s
		}
		%s
	`, link, supplier.key, receiverSecret, far.Address, r.option())
	near.backends = append(near.backends, r.backend)
	near.start()
	c := near.newGatewayUser("collector")
	c.credit("10.00")

	orders := []*generation{{number: 1, model: "image-demo-1", words: "a lighthouse"}, {number: 2, model: "video-demo-1", words: "waves"}}
	checks := []func(*testing.T, []byte){checkPicture, checkFilm}
	for i, o := range orders {
		o.submit(c)
		began := time.Now()
		end := c.outcome(o)
		if took := time.Since(began); took > waitLimit {
			t.Errorf("%s took %v: no callback woke the first gateway", o.prompt(), took)
		}
		if end.Status != "success" || !strings.HasPrefix(end.Result.URL, near.url("/v1/files/")) {
			t.Fatalf("%s ended as %s", o.prompt(), end.text)
		}
		checks[i](t, c.fetch(end.Result.URL))
		r.await(t, i+1)
		if ids, reported := r.of(o.task); len(ids) != 1 || reported.Type != "task.succeeded" || reported.Data.Result.URL != end.Result.URL || reported.Data.Session != o.session() {
			t.Errorf("the callbacks %q of %s are %s", ids, o.prompt(), reported.text)
		}
	}
	for _, side := range []struct {
		of     *gatewayUser
		charge nano
	}{{c, 5*unit/100 + 8*2*unit/100}, {supplier, 2*unit/100 + 8*unit/100}} {
		if w := side.of.g.wallet(side.of.name); w.Balance != 10*unit-side.charge || w.Held != 0 {
			t.Errorf("the wallet of the %s is %+v after a charge of %v", side.of.name, w, side.charge)
		}
		side.of.g.verify()
	}
}

// slowPollProxy returns a proxy for a gateway that sets Retry-After of
// unfinished tasks to ten minutes.
func slowPollProxy(t *testing.T, gateway string) string {
	t.Helper()
	to, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.Method == http.MethodGet {
				resp.Header.Set("Retry-After", "600")
			}
			return nil
		},
	})
	t.Cleanup(server.Close)
	return server.URL
}

// checkPicture checks that the file is a valid PNG.
func checkPicture(t *testing.T, file []byte) {
	t.Helper()
	if drawn, err := png.Decode(bytes.NewReader(file)); err != nil || drawn.Bounds().Dx() < 100 || drawn.Bounds().Dy() < 100 {
		t.Errorf("the picture of %d bytes cannot be opened: %v", len(file), err)
	}
}

// checkFilm checks that the file is a complete MP4, and that ffprobe can play
// it if it is installed.
func checkFilm(t *testing.T, file []byte) {
	t.Helper()
	if boxes := boxesOf(file); len(boxes) < 3 || boxes[0] != "ftyp" || !slices.Contains(boxes, "moov") || !slices.Contains(boxes, "mdat") || slices.Contains(boxes, "") {
		t.Errorf("the film of %d bytes has the boxes %q", len(file), boxes)
	}
	probe, err := exec.LookPath("ffprobe")
	if err != nil {
		t.Logf("the film is not played: %v", err)
		return
	}
	path := filepath.Join(t.TempDir(), "film.mp4")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	reported, err := exec.CommandContext(ctx, probe, "-v", "error", "-count_frames", "-show_entries", "stream=codec_name,nb_read_frames:format=duration", "-of", "csv=p=0", path).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(reported), "h264,") {
		t.Errorf("the result of the film: %v: %s", err, reported)
	}
	t.Logf("the film: %s", strings.Join(strings.Fields(string(reported)), " "))
}

// boxesOf returns the names of a file's boxes (ISO/IEC 14496-12, section 4.2);
// "" stands for invalid data.
func boxesOf(file []byte) (names []string) {
	for len(file) > 0 {
		if len(file) < 8 {
			return append(names, "")
		}
		size := int64(binary.BigEndian.Uint32(file))
		if size < 8 || size > int64(len(file)) {
			return append(names, "")
		}
		names = append(names, string(file[4:8]))
		file = file[size:]
	}
	return names
}
