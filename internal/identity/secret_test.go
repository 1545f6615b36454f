package identity

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

func containsAny(text string, words ...string) bool {
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

func TestAKeyHasTheFormOfTheSecurityContract(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^sk-[0-9A-Za-z]{49}$`)
	seen := map[Secret]bool{}
	for range 200 {
		key := newKeySecret()
		if !form.MatchString(key.Reveal()) {
			t.Fatalf("%q is not of the form", key.Reveal())
		}
		if _, ok := hashKey(key.Reveal()); !ok {
			t.Fatalf("%q is refused", key.Reveal())
		}
		if seen[key] {
			t.Fatal("a key was drawn twice")
		}
		seen[key] = true
	}
}

// A key that must stay readable by every build: its random digits are zeros.
const knownKey = "sk-00000000000000000000000000000000000000000003P9rQy"

func TestOneWrongCharacterAnywhereIsRefused(t *testing.T) {
	t.Parallel()
	if _, ok := hashKey(knownKey); !ok {
		t.Fatal("a key of the first build is refused")
	}
	for i := range len(knownKey) {
		for _, c := range []byte("0aZ- _\x00\xff") {
			if c == knownKey[i] {
				continue
			}
			wrong := knownKey[:i] + string([]byte{c}) + knownKey[i+1:]
			if _, ok := hashKey(wrong); ok {
				t.Errorf("%q is taken for a key", wrong)
			}
		}
	}
	for _, wrong := range []string{"", "sk-", knownKey[1:], knownKey + "0", " " + knownKey, knownKey + " ", strings.ToUpper(knownKey)} {
		if _, ok := hashKey(wrong); ok {
			t.Errorf("%q is taken for a key", wrong)
		}
	}
}

func FuzzHashKey(f *testing.F) {
	f.Add(knownKey)
	f.Add(newKeySecret().Reveal())
	f.Add("sk-" + strings.Repeat("'", 49))
	f.Add("")
	f.Fuzz(func(t *testing.T, key string) {
		_, ok := hashKey(key)
		body, sum, cut := key, "", len(key) == keyLength
		if cut {
			body, sum = key[:keyLength-sumDigits], key[keyLength-sumDigits:]
		}
		want := cut && regexp.MustCompile(`^sk-[0-9A-Za-z]{43}$`).MatchString(body) &&
			sum == string(appendSum62(nil, crc32.ChecksumIEEE([]byte(body))))
		if ok != want {
			t.Errorf("%q is taken for a key: %v, want %v", key, ok, want)
		}
	})
}

func TestDigitsAreDrawnWithoutFavour(t *testing.T) {
	t.Parallel()
	const draws = 62 * 2000
	var count [256]int
	for _, c := range appendRandom62(nil, draws) {
		count[c]++
	}
	for _, c := range []byte(base62) {
		// Six deviations of a fair draw: one in a billion.
		if count[c] < 2000-270 || count[c] > 2000+270 {
			t.Errorf("%c was drawn %d times of %d", c, count[c], draws)
		}
	}
}

func TestASecretPrintsAsRedacted(t *testing.T) {
	t.Parallel()
	secret := newKeySecret()
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

func TestOnlyTheHashOfAKeyIsStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	key, secret := f.key(t, "ann", KeySpec{})
	if key.Hint != secret[:7]+"…"+secret[len(secret)-4:] {
		t.Errorf("hint %q", key.Hint)
	}
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		return r.Scan(nil, nil, func(k, v []byte) bool {
			if containsAny(string(k)+string(v), secret, secret[10:30]) {
				t.Errorf("the key stands in the store at %q", k)
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
