package catalog_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestTheNameOfAModelHasAForm(t *testing.T) {
	t.Parallel()
	for _, kind := range []catalog.Kind{catalog.Video, catalog.Image} {
		word := string(kind)
		for _, name := range []string{"a-1", "kling-2.1", "vidu-q2-pro", "OS-2.0", "a_b-c.d", strings.Repeat("a", 248) + "-1"} {
			if refused := catalog.CheckModel(kind, word+"-"+name); refused != nil {
				t.Errorf("%s-%s: %v", word, name, refused)
			}
		}
		for _, model := range []string{
			"", word, word + "-", word + "-a", word + "-a-", word + "--1", word + "-a--1", word + "a-1-2", strings.ToUpper(word) + "-a-1", "audio-a-1", "a-1", " " + word + "-a-1",
			word + "-a-1 ", word + "-a b-1", word + "-a/b-1", word + "-ä-1", word + "-a-１", word + "-a-*", word + "-a-1\x00", word + "-" + strings.Repeat("a", 249) + "-1",
		} {
			refused := catalog.CheckModel(kind, model)
			if refused == nil || refused.Code != fault.InvalidModel || refused.Param != "model" || !strings.Contains(refused.Message, word+"-{model_name}-{version}") {
				t.Errorf("%q was answered %v", model, refused)
			}
		}
	}
	if catalog.CheckModel(catalog.Video, "image-a-1") == nil || catalog.CheckModel(catalog.Image, "video-a-1") == nil {
		t.Error("a model of the other kind was taken")
	}
}
