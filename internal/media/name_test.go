package media

import (
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestNamesAreRandom(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	var used [nameDigits]map[byte]bool
	for range 2000 {
		name := newName()
		if !IsName(name) || seen[name] {
			t.Fatalf("%q", name)
		}
		seen[name] = true
		for i := range nameDigits {
			if used[i] == nil {
				used[i] = make(map[byte]bool)
			}
			used[i][name[i]] = true
		}
	}
	bits := 0
	for _, characters := range used {
		for n := len(characters); n > 1; n /= 2 {
			bits++
		}
	}
	if bits != 128 {
		t.Errorf("a name has %d bits", bits)
	}
	for _, invalid := range []string{"", strings.Repeat("a", 25), strings.Repeat("a", 27), strings.Repeat("A", 26), strings.Repeat("1", 26), strings.Repeat("/", 26), strings.Repeat("a", 24) + "é"} {
		if IsName(invalid) {
			t.Errorf("%q counts as a name", invalid)
		}
	}
}

func TestMediaNames(t *testing.T) {
	t.Parallel()
	mp4, _ := kindOf("video/mp4")
	jpeg, _ := kindOf("image/jpeg")
	for _, row := range []struct {
		wanted string
		index  int
		kind   kind
		want   string
	}{
		{"", 0, mp4, "video-1.mp4"}, {"", 8, jpeg, "image-9.jpg"}, {"cats", 1, mp4, "cats"}, {"my film (1) 图.mp4", 0, mp4, "my film (1) 图.mp4"},
		{"...", 0, mp4, "..."}, {"%2F", 0, mp4, "%2F"}, {strings.Repeat("图", 64), 0, mp4, strings.Repeat("图", 64)},
		// Characters that change the order in which a name is displayed.
		{"film\u202e4pm.exe", 0, mp4, "video-1.mp4"}, {"a\u2066b", 0, mp4, "video-1.mp4"}, {"a\u200fb", 0, mp4, "video-1.mp4"}, {"a\u200bb", 0, mp4, "video-1.mp4"},
		{"a\u2028b", 0, mp4, "video-1.mp4"}, {"a\ufeffb", 0, mp4, "video-1.mp4"}, {"a\ue000b", 0, mp4, "video-1.mp4"}, {"e\u0301té سلام", 0, mp4, "e\u0301té سلام"},
		// Links do not contain names that a submission refuses.
		{".", 0, mp4, "video-1.mp4"}, {"..", 0, mp4, "video-1.mp4"}, {"a/b", 0, mp4, "video-1.mp4"}, {`a\b`, 0, mp4, "video-1.mp4"},
		{"a\r\nb", 0, mp4, "video-1.mp4"}, {"a\x00", 0, mp4, "video-1.mp4"}, {"a\u0085", 0, mp4, "video-1.mp4"}, {"\xff", 0, mp4, "video-1.mp4"}, {strings.Repeat("x", 257), 0, mp4, "video-1.mp4"},
	} {
		if got := mediaName(row.wanted, row.index, row.kind); got != row.want {
			t.Errorf("%q: got %q, want %q", row.wanted, got, row.want)
		}
	}
}

// FuzzLinks checks for any media name that the link has the path of a file, and that
// its last segment is the media name.
func FuzzLinks(f *testing.F) {
	for _, name := range []string{"", ".", "..", "a/b", `a\b`, "%2e%2e", "a?b#c", "a b+c", "图.mp4", "\x00", "\u202e", "a;b", "&=", "\xff", "a:b", "@"} {
		f.Add(name)
	}
	mp4, _ := kindOf("video/mp4")
	f.Fuzz(func(t *testing.T, wanted string) {
		name, given := newName(), mediaName(wanted, 0, mp4)
		if given == "" || given == "." || given == ".." || strings.ContainsAny(given, `/\`) || strings.ContainsFunc(given, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(given) {
			t.Fatalf("%q becomes the invalid media name %q", wanted, given)
		}
		if utf8.RuneCountInString(wanted) <= 64 && utf8.ValidString(wanted) && wanted == strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) {
				return r
			}
			return -1
		}, wanted) && wanted != "" && given != wanted {
			t.Errorf("%q becomes the media name %q", wanted, given)
		}
		text := link(baseURL, name, given)
		u, err := url.Parse(text)
		if err != nil || u.RawQuery != "" || u.Fragment != "" || u.Host != "gateway.example.com" || u.Path != Path+name+"/"+given {
			t.Fatalf("%q is parsed as %+v, %v", text, u, err)
		}
		if rest := strings.TrimPrefix(text, baseURL+Path); strings.Count(rest, "/") != 1 || u.JoinPath().String() != text {
			t.Errorf("%q has other segments", text)
		}
		for _, c := range []byte(text) {
			if c <= ' ' || c > '~' || c == '"' || c == '<' || c == '>' {
				t.Errorf("%q contains %q", text, c)
			}
		}
	})
}
