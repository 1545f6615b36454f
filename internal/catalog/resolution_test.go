package catalog_test

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

func TestTheShorterSideNamesTheResolution(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		width, height int
		want          string
	}{
		{640, 360, "360P"}, {854, 480, "480P"}, {960, 540, "540P"}, {1280, 720, "720P"}, {720, 1280, "720P"}, {720, 720, "720P"}, {1366, 768, "768P"},
		{1920, 1080, "1080P"}, {1080, 1920, "1080P"}, {2560, 1440, "2K"}, {3840, 2160, "4K"}, {2160, 3840, "4K"},
		{2560, 1080, "1080P"}, {3440, 1440, "2K"}, {5120, 2160, "4K"}, {720, 1779, "720P"},
		{1780, 720, ""}, {720, 1780, ""}, {16384, 720, ""}, {16384, 2160, ""}, {1 << 62, 720, ""}, {1920, 1088, "1080P"}, {1280, 704, "720P"}, {1280, 699, "720P"}, {1280, 741, "720P"}, {1280, 746, "768P"}, {2000, 1112, "1080P"},
		{1280, 698, ""}, {1280, 742, ""}, {1280, 744, ""}, {1280, 745, "768P"}, {2000, 1113, ""}, {1024, 1024, ""}, {7680, 4320, ""}, {0, 0, ""}, {1280, 0, ""}, {-720, 720, ""},
	} {
		if got, ok := catalog.ResolutionOf(c.width, c.height); got != c.want || ok != (c.want != "") {
			t.Errorf("ResolutionOf(%d, %d) is %q, %v, want %q", c.width, c.height, got, ok, c.want)
		}
	}
}

func TestEverySizeHasAName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		width, height int
		want          string
		common        bool
	}{
		{1280, 704, "720P", true}, {2160, 3840, "4K", true}, {1066, 600, "600P", false}, {1024, 1024, "1024P", false}, {3700, 2082, "2082P", false},
		{16384, 720, "16384x720", false}, {720, 16384, "720x16384", false}, {2000, 600, "2000x600", false},
	} {
		if got := catalog.NameSize(c.width, c.height); got != c.want || catalog.CommonResolution(got) != c.common {
			t.Errorf("NameSize(%d, %d) is %q, and CommonResolution of it %v", c.width, c.height, got, catalog.CommonResolution(got))
		}
	}
	if !catalog.CommonResolution("4k") || catalog.CommonResolution("") {
		t.Error("CommonResolution is wrong for 4k or for an empty name")
	}
}
