package catalog_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestCheckModelAcceptsOnlyValidNames(t *testing.T) {
	t.Parallel()
	for _, kind := range []catalog.Kind{catalog.Video, catalog.Image} {
		prefix := string(kind)
		for _, name := range []string{"a-1", "kling-2.1", "vidu-q2-pro", "OS-2.0", "a_b-c.d", strings.Repeat("a", 248) + "-1"} {
			if refused := catalog.CheckModel(kind, prefix+"-"+name); refused != nil {
				t.Errorf("%s-%s: %v", prefix, name, refused)
			}
		}
		for _, model := range []string{
			"", prefix, prefix + "-", prefix + "-a", prefix + "-a-", prefix + "--1", prefix + "-a--1", prefix + "a-1-2", strings.ToUpper(prefix) + "-a-1", "audio-a-1", "a-1", " " + prefix + "-a-1",
			prefix + "-a-1 ", prefix + "-a b-1", prefix + "-a/b-1", prefix + "-ä-1", prefix + "-a-１", prefix + "-a-*", prefix + "-a-1\x00", prefix + "-" + strings.Repeat("a", 249) + "-1",
		} {
			refused := catalog.CheckModel(kind, model)
			if refused == nil || refused.Code != fault.InvalidModel || refused.Param != "model" || !strings.Contains(refused.Message, prefix+"-{model_name}-{version}") {
				t.Errorf("%q: the error is %v", model, refused)
			}
		}
	}
	if catalog.CheckModel(catalog.Video, "image-a-1") == nil || catalog.CheckModel(catalog.Image, "video-a-1") == nil {
		t.Error("a model of the other kind was accepted")
	}
}
