package pages

import (
	"strings"
	"testing"
)

func TestReasonsOfMismatchesAreTranslated(t *testing.T) {
	t.Parallel()
	english, chinese := messagesOf(t, "en"), messagesOf(t, "zh")
	l := &locale{messages: chinese}
	for _, row := range mismatchReasons {
		if english[row.key] != row.format {
			t.Errorf("%s is %q in English, want %q", row.key, english[row.key], row.format)
		}
		got := mismatchReason(l.text, strings.ReplaceAll(row.format, "%s", "USD"))
		if want := strings.ReplaceAll(chinese[row.key], "%s", "USD"); got != want {
			t.Errorf("%q is %q, want %q", row.format, got, want)
		}
	}
	for _, unknown := range []string{"", "the order is in", "a service words it so", "there is no such order, and so on"} {
		if got := mismatchReason(l.text, unknown); got != unknown {
			t.Errorf("%q becomes %q", unknown, got)
		}
	}
}
