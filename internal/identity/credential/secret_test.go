package credential

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"testing"
)

// forms are the classes of credentials. Every build must accept the known credential of
// each class, whose random digits are zeros.
var forms = map[string]struct {
	Form
	pattern string
	known   string
}{
	"API key":      {APIKey, `^sk-[0-9A-Za-z]{43}`, "sk-00000000000000000000000000000000000000000003P9rQy"},
	"access token": {AccessToken, `^mgat_[0-9A-Za-z]{43}`, "mgat_00000000000000000000000000000000000000000003Yk0Mf"},
}

func TestACredentialHasTheFormOfItsClass(t *testing.T) {
	t.Parallel()
	for name, class := range forms {
		pattern := regexp.MustCompile(class.pattern + `[0-9A-Za-z]{6}$`)
		seen := map[Secret]bool{}
		for range 200 {
			secret := class.Draw()
			if !pattern.MatchString(secret.Reveal()) {
				t.Fatalf("%s: %q is not of the form", name, secret.Reveal())
			}
			if _, ok := class.Hash(secret.Reveal()); !ok {
				t.Fatalf("%s: %q is refused", name, secret.Reveal())
			}
			if seen[secret] {
				t.Fatalf("%s: a credential was drawn twice", name)
			}
			seen[secret] = true
		}
	}
}

func TestAWrongCharacterIsRefused(t *testing.T) {
	t.Parallel()
	for name, class := range forms {
		known := class.known
		if _, ok := class.Hash(known); !ok {
			t.Fatalf("%s: the known credential is refused", name)
		}
		for i := range len(known) {
			for _, c := range []byte("0aZ- _\x00\xff") {
				if c == known[i] {
					continue
				}
				wrong := known[:i] + string([]byte{c}) + known[i+1:]
				if _, ok := class.Hash(wrong); ok {
					t.Errorf("%s: %q is accepted", name, wrong)
				}
			}
		}
		forged := strings.Repeat("x", len(class.Form)) + known[len(class.Form):len(known)-sumDigits]
		forged += string(appendSum62(nil, crc32.ChecksumIEEE([]byte(forged))))
		for _, wrong := range []string{"", string(class.Form), forged, known[1:], known + "0", " " + known, known + " ", strings.ToUpper(known)} {
			if _, ok := class.Hash(wrong); ok {
				t.Errorf("%s: %q is accepted", name, wrong)
			}
		}
	}
}

func TestFormsOfClassesAreDisjoint(t *testing.T) {
	t.Parallel()
	for name, class := range forms {
		for other, otherClass := range forms {
			if _, ok := otherClass.Hash(class.known); ok != (name == other) {
				t.Errorf("the %s has the form of the %s: %v", name, other, ok)
			}
		}
	}
}

func FuzzHash(f *testing.F) {
	for _, class := range forms {
		f.Add(class.known)
		f.Add(class.Draw().Reveal())
		f.Add(string(class.Form) + strings.Repeat("'", 49))
	}
	f.Add("")
	f.Fuzz(func(t *testing.T, secret string) {
		for name, class := range forms {
			_, ok := class.Hash(secret)
			body, sum, cut := secret, "", len(secret) > sumDigits
			if cut {
				body, sum = secret[:len(secret)-sumDigits], secret[len(secret)-sumDigits:]
			}
			want := cut && regexp.MustCompile(class.pattern+"$").MatchString(body) &&
				sum == string(appendSum62(nil, crc32.ChecksumIEEE([]byte(body))))
			if ok != want {
				t.Errorf("%q is accepted as %s: %v, want %v", secret, name, ok, want)
			}
		}
	})
}

func TestRandomDigitsAreUniform(t *testing.T) {
	t.Parallel()
	const draws = 62 * 2000
	var count [256]int
	for _, c := range appendRandom62(nil, draws) {
		count[c]++
	}
	for _, c := range []byte(base62) {
		// Six standard deviations: a fair draw exceeds them once in a billion.
		if count[c] < 2000-270 || count[c] > 2000+270 {
			t.Errorf("%c was drawn %d times of %d", c, count[c], draws)
		}
	}
}

func TestASecretPrintsAsRedacted(t *testing.T) {
	t.Parallel()
	secret := APIKey.Draw()
	asJSON, err := json.Marshal(map[string]any{"a": secret, "b": []Secret{secret}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		fmt.Sprint(secret), fmt.Sprintf("%s %v %+v %#v %q", secret, secret, secret, secret, secret),
		fmt.Sprintf("%v", struct{ S Secret }{secret}), string(asJSON),
	} {
		if strings.Contains(text, secret.Reveal()[3:]) || !strings.Contains(text, "REDACTED") {
			t.Errorf("printed %s", text)
		}
	}
}
