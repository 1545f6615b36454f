package call_test

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// wavOf returns a WAV file with one channel of 16 bits at a sample rate, with a chunk of other bytes before
// the samples, which may be any bytes. It declares that it has declared bytes of samples.
func wavOf(rate uint32, other, samples string, declared int) string {
	var b bytes.Buffer
	b.WriteString("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00")
	_ = binary.Write(&b, binary.LittleEndian, []uint32{rate, 2 * rate})
	b.WriteString("\x02\x00\x10\x00")
	if other != "" {
		b.WriteString("junk")
		_ = binary.Write(&b, binary.LittleEndian, uint32(len(other)))
		b.WriteString(other)
	}
	b.WriteString("data")
	_ = binary.Write(&b, binary.LittleEndian, uint32(declared))
	return b.String() + samples
}

func TestTheHeaderOfAWAVFileMustAgreeWithTheFile(t *testing.T) {
	g, key := mediaCalls(t)
	mp3 := strings.Repeat("\xff\xf3\x20\xc4"+strings.Repeat("\x55", 48), 4000) // 16 kbit/s at 22,050 Hz: 104 s
	aac := strings.Repeat("\xff\xf1\x50\x40\x0d\x7f"+strings.Repeat("\x55", 101), 2000)
	pcm := strings.Repeat("\x10\x20\x30\xff", 40_000)
	with := func(file string, at int, bytes string) string { return file[:at] + bytes + file[at+len(bytes):] }
	honest := wavOf(16_000, "", pcm, len(pcm))
	for name, file := range map[string]string{
		"an MP3 as samples":          wavOf(96_000, "", mp3, len(mp3)),
		"an MP3 after some silence":  wavOf(96_000, "", strings.Repeat("\x00", 1001)+mp3, len(mp3)+1001),
		"an AAC as samples":          wavOf(96_000, "", aac, len(aac)),
		"an absurd rate":             wavOf(1<<30, "", pcm, len(pcm)),
		"a rate that differs":        with(honest, 28, "\x00\x00\x00\x7f"),
		"a frame that differs":       with(honest, 32, "\x40\x00"),
		"many channels":              with(with(honest, 22, "\x40\x00"), 32, "\x80\x00"),
		"fewer samples than bytes":   wavOf(96_000, "", pcm, 100),
		"another recording before":   wavOf(96_000, strings.Repeat(mp3, 2), pcm, len(pcm)),
		"less than a tenth behind":   wavOf(190_000, "", strings.Repeat("\x00", 9000)+mp3[:30_000], 100),
		"samples of another length":  with(honest, 34, "\x0c\x00"),
		"samples that are no PCM":    with(honest, 20, "\x55\x00"),
		"an MP3 with another name":   mp3,
		"a header without a meaning": "RIFF\x00\x00\x00\x00WAVE",
	} {
		got := sendForm(t, g, transcriptions, key.Secret, formOf("model=whisper-short", "file@"+file, "response_format=srt"))
		if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "UNPRICED_OPTION") && !strings.Contains(got.Body, "reports no seconds") {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	if n := len(g.Backend.Seen("whisper-short")); n != 0 {
		t.Errorf("the backend has seen %d calls", n)
	}
	g.Backend.On("whisper-honest", gatetest.Body(http.StatusOK, "text/plain", "hi"))
	wantMedia(t, g, sendForm(t, g, transcriptions, key.Secret, formOf("model=whisper-honest", "file@"+honest, "response_format=srt")), "transcriptions", "complete", "reported", "0.0005")

	// The length in the header does not limit what the backend reports.
	g.Backend.On("whisper-told", gatetest.JSON(http.StatusOK, `{"text":"hi","usage":{"seconds":600}}`))
	line := wantMedia(t, g, sendForm(t, g, transcriptions, key.Secret, formOf("model=whisper-told", "file@"+honest)), "transcriptions", "complete", "reported", "0.06")
	if line["usage_cut"] != nil || line["uncollected"] != nil {
		t.Errorf("the log line is %v", line)
	}
	g.Verify(t)
}
