package film_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/caddy-modelgate/modelgate/backends/demo/film"
)

func newFilm(t *testing.T, seed string, width, height int, length float64) []byte {
	t.Helper()
	file, err := io.ReadAll(film.NewScene([]byte(seed), width, height).Film(length))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// containers are the boxes that contain other boxes, with the number of bytes
// before the first of them.
var containers = map[string]int{
	"moov": 0, "trak": 0, "mdia": 0, "minf": 0, "dinf": 0, "stbl": 0, "dref": 8, "stsd": 8, "avc1": 78,
}

// boxes returns the content of each box of a file by its path, and the paths in
// order.
func boxes(t *testing.T, path string, file []byte) (order []string, content map[string][]byte) {
	t.Helper()
	content = make(map[string][]byte)
	for len(file) > 0 {
		if len(file) < 8 || int(binary.BigEndian.Uint32(file)) > len(file) || binary.BigEndian.Uint32(file) < 8 {
			t.Fatalf("%s: a box of %d bytes does not fit", path, len(file))
		}
		size, kind := binary.BigEndian.Uint32(file), string(file[4:8])
		at := path + "/" + kind
		order = append(order, at)
		content[at] = file[8:size]
		if skip, ok := containers[kind]; ok {
			paths, inner := boxes(t, at, file[8+skip:size])
			order = append(order, paths...)
			for k, v := range inner {
				content[k] = v
			}
		}
		file = file[size:]
	}
	return order, content
}

func TestAFilmIsACompleteMP4File(t *testing.T) {
	t.Parallel()
	file := newFilm(t, "a prompt", 320, 176, 2)
	order, content := boxes(t, "", file)
	want := []string{
		"/ftyp", "/moov", "/moov/mvhd", "/moov/trak", "/moov/trak/tkhd", "/moov/trak/mdia", "/moov/trak/mdia/mdhd",
		"/moov/trak/mdia/hdlr", "/moov/trak/mdia/minf", "/moov/trak/mdia/minf/vmhd", "/moov/trak/mdia/minf/dinf",
		"/moov/trak/mdia/minf/dinf/dref", "/moov/trak/mdia/minf/dinf/dref/url ", "/moov/trak/mdia/minf/stbl",
		"/moov/trak/mdia/minf/stbl/stsd", "/moov/trak/mdia/minf/stbl/stsd/avc1", "/moov/trak/mdia/minf/stbl/stsd/avc1/avcC",
		"/moov/trak/mdia/minf/stbl/stts", "/moov/trak/mdia/minf/stbl/stss", "/moov/trak/mdia/minf/stbl/stsc",
		"/moov/trak/mdia/minf/stbl/stsz", "/moov/trak/mdia/minf/stbl/stco", "/mdat",
	}
	if !slices.Equal(order, want) {
		t.Fatalf("the boxes are\n%q, want\n%q", order, want)
	}

	const stbl = "/moov/trak/mdia/minf/stbl/"
	number := func(b []byte, at int) int { return int(binary.BigEndian.Uint32(b[at:])) }
	stsz := content[stbl+"stsz"]
	samples := number(stsz, 8)
	if samples != 2*film.Rate {
		t.Errorf("%d samples", samples)
	}
	at := number(content[stbl+"stco"], 8)
	if mdat := bytes.LastIndex(file, content["/mdat"]); at != mdat {
		t.Errorf("the samples are at %d, mdat is at %d", at, mdat)
	}
	for i := range samples {
		size := number(stsz, 12+4*i)
		sample := file[at : at+size]
		if length := number(sample, 0); length != size-4 {
			t.Errorf("sample %d: a unit of %d bytes in %d", i, length, size)
		}
		want := byte(0x61)
		if i == 0 {
			want = 0x65
		}
		if sample[4] != want {
			t.Errorf("sample %d begins with %#x", i, sample[4])
		}
		for j := 4; j+2 < len(sample); j++ {
			if sample[j] == 0 && sample[j+1] == 0 && sample[j+2] < 3 {
				t.Fatalf("sample %d contains a start code at %d", i, j)
			}
		}
		at += size
	}
	if at != len(file) {
		t.Errorf("the samples end at %d of %d", at, len(file))
	}
	avcC := content[stbl+"stsd/avc1/avcC"]
	if !bytes.Equal(avcC[:8], []byte{1, 66, 0xC0, 31, 0xFF, 0xE1, 0, avcC[7]}) || avcC[8] != 0x67 {
		t.Errorf("avcC is % x", avcC)
	}
}

func TestTheSamePromptGivesTheSamePicture(t *testing.T) {
	t.Parallel()
	first, same, other := newFilm(t, "a fox", 64, 64, 0.5), newFilm(t, "a fox", 64, 64, 0.5), newFilm(t, "a hare", 64, 64, 0.5)
	if !bytes.Equal(first, same) {
		t.Error("the same seed gives two different films")
	}
	if bytes.Equal(first, other) {
		t.Error("two seeds give the same film")
	}
}

func TestSizesAreLimited(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ width, height, wantWidth, wantHeight int }{
		{1280, 720, 1280, 720},
		{33, 35, 34, 36},
		{0, -5, film.MinEdge, film.MinEdge},
		{1 << 40, 4097, film.MaxEdge, film.MaxEdge},
	} {
		if w, h := film.NewScene(nil, row.width, row.height).Size(); w != row.wantWidth || h != row.wantHeight {
			t.Errorf("the size of a scene of %d × %d is %d × %d", row.width, row.height, w, h)
		}
	}
	for length, want := range map[float64]int{0: 1, -1: 1, 0.01: 1, 1: film.Rate, 1e9: film.MaxLength * film.Rate} {
		_, content := boxes(t, "", newFilm(t, "x", 32, 32, length))
		if got := int(binary.BigEndian.Uint32(content["/moov/trak/mdia/minf/stbl/stsz"][8:])); got != want {
			t.Errorf("a film of %g seconds has %d pictures, want %d", length, got, want)
		}
	}
}

func TestAnImageIsAPNG(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	scene := film.NewScene([]byte("a prompt"), 200, 100)
	if err := png.Encode(&file, film.Image{Scene: scene}); err != nil {
		t.Fatal(err)
	}
	got, err := png.Decode(&file)
	if err != nil || got.Bounds().Dx() != 200 || got.Bounds().Dy() != 100 {
		t.Fatalf("%v, %v", got.Bounds(), err)
	}
	colours := make(map[any]bool)
	for x := range 200 {
		colours[got.At(x, 50)] = true
	}
	if len(colours) < 10 {
		t.Errorf("%d colours in a row", len(colours))
	}
}

// TestFFmpegDecodesEveryPicture decodes films of several sizes with ffmpeg, if it
// is installed, and compares pixels of the last picture with the scene.
func TestFFmpegDecodesEveryPicture(t *testing.T) {
	t.Parallel()
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("ffmpeg is not installed")
	}
	ffprobe, err := exec.LookPath("ffprobe")
	if err != nil {
		t.Skip("ffprobe is not installed")
	}
	for _, row := range []struct {
		width, height int
		length        float64
	}{{1280, 720, 1}, {720, 1280, 0.5}, {1920, 1080, 0.5}, {1024, 768, 0.5}, {66, 98, 30}} {
		name := filepath.Join(t.TempDir(), "film.mp4")
		if err := os.WriteFile(name, newFilm(t, "a prompt", row.width, row.height, row.length), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(ffprobe, "-v", "error", "-count_frames", "-show_streams", "-of", "json", name).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var probed struct {
			Streams []struct {
				Codec    string `json:"codec_name"`
				Profile  string `json:"profile"`
				Width    int    `json:"width"`
				Height   int    `json:"height"`
				Frames   string `json:"nb_read_frames"`
				Duration string `json:"duration"`
			} `json:"streams"`
		}
		if err := json.Unmarshal(out, &probed); err != nil || len(probed.Streams) != 1 {
			t.Fatalf("%v\n%s", err, out)
		}
		s := probed.Streams[0]
		frames := int(row.length * film.Rate)
		if s.Codec != "h264" || s.Profile != "Constrained Baseline" || s.Width != row.width || s.Height != row.height ||
			s.Frames != strconv.Itoa(frames) || s.Duration != strconv.FormatFloat(row.length, 'f', 6, 64) {
			t.Errorf("%d × %d: %+v", row.width, row.height, s)
		}

		// The last picture depends on all earlier ones. The ball never covers a
		// corner.
		decode := exec.Command(ffmpeg, "-v", "error", "-xerror", "-i", name, "-vf", "select=eq(n\\,"+strconv.Itoa(frames-1)+")",
			"-frames:v", "1", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")
		decode.Stderr = os.Stderr
		pixels, err := decode.Output()
		if err != nil || len(pixels) != row.width*row.height*3 {
			t.Fatalf("%v: %d bytes", err, len(pixels))
		}
		scene := film.Image{Scene: film.NewScene([]byte("a prompt"), row.width, row.height)}
		for _, p := range [][2]int{{0, 0}, {row.width - 1, 0}, {0, row.height - 1}, {row.width - 1, row.height - 1}} {
			r, g, b, _ := scene.At(p[0], p[1]).RGBA()
			for i, want := range []uint32{r, g, b} {
				got := int(pixels[(p[1]*row.width+p[0])*3+i])
				if difference := got - int(want>>8); difference < -8 || difference > 8 {
					t.Errorf("%d × %d: colour %d at %v is %d, want %d", row.width, row.height, i, p, got, want>>8)
				}
			}
		}
	}
}
