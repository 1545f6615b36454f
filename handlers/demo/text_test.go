package demo

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestPiecesHaveAboutTheLengthOfAWord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                      nil,
		"a":                     {"a"},
		"You said: hello there": {"You", " said:", " hello", " there"},
		"I am a model":          {"I am", " a model"},
		"internationalisation":  {"internat", "ionalisa", "tion"},
		"日本語のとても長い文章です": {"日本語のとても長", "い文章です"},
	} {
		if got := slices.Collect(pieces(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestATextCountsAtMostAThirdOfItsBytes checks the limit of the gateway: a backend
// must not report more tokens than a third of the bytes, rounded up.
func TestATextCountsAtMostAThirdOfItsBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		if got := strings.Join(slices.Collect(pieces(text)), ""); got != text {
			t.Fatalf("the pieces together are %q", got)
		}
		if n := tokens(text); n > (len(text)+2)/3 {
			t.Fatalf("%d tokens in %d bytes", n, len(text))
		}
		for p := range pieces(text) {
			if n := utf8.RuneCountInString(p); n < 1 || n > maxPiece {
				t.Fatalf("piece %q has %d characters", p, n)
			}
		}
	})
}

func TestTextEndsAtLimitsAndStopSequences(t *testing.T) {
	t.Parallel()
	const text = "one two three four" // "one", " two", " three", " four"
	for _, c := range []struct {
		limit int
		stops []string
		text  string
		end   ending
		stop  string
	}{
		{99, nil, text, finished, ""},
		{4, nil, text, finished, ""},
		{3, nil, "one two three", limited, ""},
		{0, nil, "", limited, ""},
		{99, []string{"five"}, text, finished, ""},
		{99, []string{" three"}, "one two", stopped, " three"},
		{99, []string{"four", "two"}, "one ", stopped, "two"},
		{99, []string{"two", "four"}, "one ", stopped, "two"},
		{99, []string{"one"}, "", stopped, "one"},
		{3, []string{"three"}, "one two ", stopped, "three"},
		{2, []string{"three"}, "one two", limited, ""},
		{2, []string{"two three"}, "one two", limited, ""},
	} {
		s := generate(text, c.limit, c.stops)
		if s.text() != c.text || s.end != c.end || s.stop != c.stop || s.size() != len(c.text) {
			t.Errorf("limit %d, stops %q: %+v", c.limit, c.stops, s)
		}
	}
}

func TestTextIsLimited(t *testing.T) {
	t.Parallel()
	if s := generate(strings.Repeat(" word", 2*maxPieces), 1<<40, nil); len(s.pieces) != maxPieces || s.end != limited {
		t.Errorf("%d pieces, ending %d", len(s.pieces), s.end)
	}
}
