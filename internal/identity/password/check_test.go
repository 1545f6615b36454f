package password

import (
	"strings"
	"testing"
)

func TestTheListOfCommonPasswordsCanMatch(t *testing.T) {
	t.Parallel()
	if n := strings.Count(common, "\n"); n < 300 {
		t.Errorf("the list has %d lines", n)
	}
	for line := range strings.Lines(strings.TrimPrefix(common, "\n")) {
		if line = strings.TrimSuffix(line, "\n"); len([]rune(line)) < minLength || line != strings.ToLower(line) {
			t.Errorf("%q can never match", line)
		}
	}
}
