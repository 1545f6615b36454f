package demo

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"image"
	"image/color"
	"image/png"
	"time"
)

// This file has the endpoints of images. The pictures are tiny.

const (
	imageTokens   = 272 // of an image, in both directions
	partialTokens = 100 // of a partial image
	maxImages     = 10
)

// answerImages answers /v1/images/generations, and answerEdits /v1/images/edits. The colours of a picture
// depend on its prompt.
func answerImages(q *request, r simulation) (*answer, error) {
	return q.pictures(r, "image_generation")
}

func answerEdits(q *request, r simulation) (*answer, error) {
	if len(q.files)+len(q.Images) == 0 {
		return nil, missing("image")
	}
	return q.pictures(r, "image_edit")
}

func (q *request) pictures(r simulation, event string) (*answer, error) {
	n := cmp.Or(orZero(q.N), 1)
	if n < 1 || n > maxImages {
		return nil, invalid("n", "n: must be from 1 to %d.", maxImages)
	}
	size, quality := q.Size, q.Quality
	if size == "" || size == "auto" {
		size = "1024x1024"
	}
	if quality == "" || quality == "auto" {
		quality = "medium"
	}
	text := tokens(q.Prompt[0])
	pictures := imageTokens * (len(q.files) + len(q.Images))
	usage := func(images int) any {
		if r.noUsage {
			return absent
		}
		output := imageTokens*images + partialTokens*images*q.PartialImages
		return object{
			"input_tokens", text + pictures, "input_tokens_details", object{"text_tokens", text, "image_tokens", pictures},
			"output_tokens", output, "total_tokens", text + pictures + output,
		}
	}
	shape := object{"size", size, "quality", quality, "background", "opaque", "output_format", "png"}
	created := time.Now().Unix()
	if !q.Stream {
		data := make([]object, n)
		for i := range data {
			if q.ResponseFormat.Type == "url" {
				data[i] = object{"url", fmt.Sprintf("data:image/png;base64,%s", picture(q.Prompt[0], i))}
			} else {
				data[i] = object{"b64_json", picture(q.Prompt[0], i)}
			}
		}
		return &answer{whole: append(object{"created", created, "data", data, "usage", usage(n)}, shape...)}, nil
	}
	return &answer{pieces: n * (1 + q.PartialImages), events: func(s *sender) {
		for i := range n {
			for k := range q.PartialImages {
				s.piece(event+".partial_image", append(object{
					"type", event + ".partial_image", "b64_json", picture(q.Prompt[0], i+k+1), "created_at", created, "partial_image_index", k,
				}, shape...))
			}
			count := any(absent)
			if i == n-1 {
				count = usage(n)
			}
			s.piece(event+".completed", append(object{
				"type", event + ".completed", "b64_json", picture(q.Prompt[0], i), "created_at", created, "usage", count,
			}, shape...))
		}
	}}, nil
}

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// picture returns a PNG of 16 by 16 pixels in Base64.
func picture(prompt string, variant int) string {
	h := fnv.New32a()
	fmt.Fprint(h, prompt, variant)
	seed := h.Sum32()
	m := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for i := range 256 {
		m.Set(i%16, i/16, color.RGBA{uint8(seed) + uint8(i%16*8), uint8(seed>>8) + uint8(i/16*8), uint8(seed >> 16), 255})
	}
	var data bytes.Buffer
	_ = png.Encode(&data, m) // a bytes.Buffer returns no error
	return base64.StdEncoding.EncodeToString(data.Bytes())
}
