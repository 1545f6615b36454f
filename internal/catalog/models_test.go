package catalog

import "testing"

func TestModelsFindTheMostSpecificPattern(t *testing.T) {
	t.Parallel()
	var m Models[string]
	for _, p := range []Pattern{"*", "video-*", "a-*", "image-a-*", "a-b-*", "a-b-1", "video-a-b-1", "video-image-x"} {
		if _, ok := m.Add(p, string(p)); !ok {
			t.Errorf("%s was found before it was added", p)
		}
	}
	for _, p := range []Pattern{"a-*", "video-a-b-1", "*"} {
		if before, ok := m.Add(p, "again"); ok || before != string(p) {
			t.Errorf("%s was added twice; the earlier value is %q", p, before)
		}
	}
	for _, c := range []struct {
		kind  Kind
		model string
		want  string
	}{
		{Video, "video-x-1", "video-*"},
		{Image, "image-x-1", "*"},
		{Video, "x-1", "video-*"},
		{Video, "video-a-1", "a-*"},
		{Image, "image-a-1", "image-a-*"},
		{Image, "a-1", "image-a-*"},
		{Video, "video-a-b-2", "a-b-*"},
		{Image, "image-a-b-2", "a-b-*"},
		{Video, "video-a-b-1", "video-a-b-1"},
		{Video, "a-b-1", "video-a-b-1"},
		{Image, "image-a-b-1", "a-b-1"},
		{Video, "video-image-x", "video-image-x"},
		{Image, "image-x", "*"},
	} {
		if got, ok := m.Find(c.kind, c.model); !ok || got != c.want {
			t.Errorf("%s %s: %q, %t, want %q", c.kind, c.model, got, ok, c.want)
		}
	}
	if _, ok := m.Find(Video, "video-a-b,c"); ok || !m.Bars(Video, "video-a-b,c") || m.Bars(Video, "video-a-b-1") {
		t.Error("a name with a comma is found, or is not barred")
	}
	var none Models[string]
	if got, ok := none.Find(Video, "video-x-1"); ok || none.Len() != 0 || m.Len() != 8 {
		t.Errorf("the empty set returned %q; the sets have %d and %d patterns", got, none.Len(), m.Len())
	}
}
