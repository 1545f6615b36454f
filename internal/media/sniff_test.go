package media

import (
	"bytes"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
)

func box(brands string) string {
	return "\x00\x00\x00" + string(rune(16+4*((len(brands)-8)/4))) + "ftyp" + brands
}

func TestKindsByFirstBytes(t *testing.T) {
	t.Parallel()
	picture := image.NewGray(image.Rect(0, 0, 3, 3))
	draw := func(encode func(b *bytes.Buffer) error) string {
		var b bytes.Buffer
		if err := encode(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for _, row := range []struct{ content, want string }{
		{draw(func(b *bytes.Buffer) error { return png.Encode(b, picture) }), "image/png"},
		{draw(func(b *bytes.Buffer) error { return jpeg.Encode(b, picture, nil) }), "image/jpeg"},
		{draw(func(b *bytes.Buffer) error { return gif.Encode(b, picture, nil) }), "image/gif"},
		{"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"},
		{"RIFF\x10\x00\x00\x00WEBPVP8X", "image/webp"},
		{box("isom\x00\x00\x02\x00isomiso2avc1mp41"), "video/mp4"},
		{box("mp42\x00\x00\x00\x00mp42isom"), "video/mp4"},
		{box("XYZ1\x00\x00\x00\x00XYZ1mp42"), "video/mp4"},
		{box("qt  \x00\x00\x02\x00qt  "), "video/quicktime"},
		{"\x00\x00\x00\x08wide\x00\x00\x00\x00mdat", "video/quicktime"},
		{"\x00\x00\x10\x00moov", "video/quicktime"},
		{"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\xf7\x81\x01\x42\xf2\x81\x04\x42\xf3\x81\x08\x42\x82\x84webm\x42\x87", "video/webm"},

		{"\x1a\x45\xdf\xa3\xa3\x42\x86\x81\x01\x42\x82\x88matroska", ""},
		{box("avif\x00\x00\x00\x00avifmif1miaf"), ""},
		{box("avis\x00\x00\x00\x00avisiso8mp41"), ""},
		{box("heic\x00\x00\x00\x00mif1heic"), ""},
		{box("M4A \x00\x00\x00\x00M4A mp42isom"), ""},
		{box("XYZ1\x00\x00\x00\x00XYZ2"), ""},
		{"\x00\x00\x00\x10ftypXYZ1\x00\x00\x00\x00mp42", ""}, // after the box
		{"<html>", ""}, {"<!DOCTYPE html>", ""}, {"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'>", ""}, {"%PDF-1.7", ""}, {`{"error":"x"}`, ""},
		{"", ""}, {"\x89PNG", ""}, {"RIFF\x10\x00\x00\x00WAVEfmt ", ""}, {" \x89PNG\r\n\x1a\n", ""}, {"GIF88a", ""}, {"PK\x03\x04", ""}, {"\x00\x00\x00\x18ftyp", ""},
	} {
		got, err := sniff([]byte(row.content[:min(len(row.content), sniffBytes)]))
		if got.media != row.want || (err != nil) != (row.want == "") {
			t.Errorf("%.40q is %q, %v, want %q", row.content, got.media, err, row.want)
		}
	}
}

// FuzzSniff checks that a file that a browser could render as a page has no kind.
func FuzzSniff(f *testing.F) {
	for _, s := range []string{"", "<script>", "GIF89a<script>", box("isom\x00\x00\x02\x00mp42"), "\x1a\x45\xdf\xa3\x42\x82"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		k, err := sniff(head)
		if err != nil {
			return
		}
		if known, in := kindOf(k.media); !in || known != k || strings.HasPrefix(strings.TrimSpace(string(head)), "<") {
			t.Errorf("%q is %+v", head, k)
		}
	})
}
