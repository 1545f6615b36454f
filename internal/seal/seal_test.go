package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// key returns the text of a master key, different for each n.
func key(n byte) string {
	secret := bytes.Repeat([]byte{n}, KeySize)
	secret[0]++
	return base64.StdEncoding.EncodeToString(secret)
}

func keyringOf(t testing.TB, texts ...string) *Keyring {
	t.Helper()
	k, err := FromTexts(texts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealed(t testing.TB, k *Keyring, purpose, id, text string) []byte {
	t.Helper()
	envelope, err := k.For(purpose).Seal(id, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return envelope
}

func TestASecretIsBoundToRecordPurposeAndKey(t *testing.T) {
	t.Parallel()
	k := keyringOf(t, key(1))
	envelope := sealed(t, k, "totp", "usr_1", "seed")
	if bytes.Contains(envelope, []byte("seed")) {
		t.Errorf("the envelope contains the text: %q", envelope)
	}
	for what, c := range map[string]struct {
		keyring     *Keyring
		purpose, id string
		want        error
	}{
		"its own":                {k, "totp", "usr_1", nil},
		"the same key again":     {keyringOf(t, key(1)), "totp", "usr_1", nil},
		"an old key":             {keyringOf(t, key(2), key(1)), "totp", "usr_1", nil},
		"another record":         {k, "totp", "usr_2", ErrInvalidEnvelope},
		"no record":              {k, "totp", "", ErrInvalidEnvelope},
		"another purpose":        {k, "backup", "usr_1", ErrInvalidEnvelope},
		"another key":            {keyringOf(t, key(2)), "totp", "usr_1", ErrNoKey},
		"no key":                 {nil, "totp", "usr_1", ErrNoKey},
		"a key that was dropped": {keyringOf(t, key(2), key(3)), "totp", "usr_1", ErrNoKey},
	} {
		text, err := c.keyring.For(c.purpose).Open(c.id, envelope)
		if !errors.Is(err, c.want) || c.want == nil && string(text) != "seed" || c.want != nil && text != nil {
			t.Errorf("%s: %q, %v; want %v", what, text, err, c.want)
		}
	}
	if _, err := (*Keyring)(nil).For("totp").Seal("usr_1", []byte("seed")); !errors.Is(err, ErrNoKey) {
		t.Errorf("sealed without a key: %v", err)
	}
}

func TestAModifiedEnvelopeIsRejected(t *testing.T) {
	t.Parallel()
	k := keyringOf(t, key(1))
	envelope := sealed(t, k, "totp", "usr_1", "seed")
	for i := range envelope {
		changed := bytes.Clone(envelope)
		changed[i] ^= 1
		if text, err := k.For("totp").Open("usr_1", changed); err == nil {
			t.Errorf("opened with byte %d changed: %q", i, text)
		}
	}
	for n := range envelope {
		if _, err := k.For("totp").Open("usr_1", envelope[:n]); !errors.Is(err, ErrInvalidEnvelope) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if other := sealed(t, k, "totp", "usr_1", "seed"); bytes.Equal(other, envelope) {
		t.Error("the same text has the same envelope twice")
	}
}

// TestTheEnvelopeIdentifiesItsKey checks the id of the key, which the tag must
// authenticate. Otherwise an envelope could be assigned to another key.
func TestTheEnvelopeIdentifiesItsKey(t *testing.T) {
	t.Parallel()
	a, b := keyringOf(t, key(1)), keyringOf(t, key(2))
	first, second := sealed(t, a, "p", "id", "x"), sealed(t, b, "p", "id", "x")
	if bytes.Equal(first[1:9], second[1:9]) {
		t.Error("two keys have the same id")
	}
	secret, _ := base64.StdEncoding.DecodeString(key(1))
	if bytes.Contains(secret, first[1:9]) {
		t.Error("the id is a part of the key")
	}
}

func TestResealUsesTheNewestKey(t *testing.T) {
	t.Parallel()
	old := keyringOf(t, key(1))
	envelope := sealed(t, old, "totp", "usr_1", "seed")
	both := keyringOf(t, key(2), key(1))
	fresh, changed, err := both.For("totp").Reseal("usr_1", envelope)
	if err != nil || !changed {
		t.Fatalf("%v, %v", changed, err)
	}
	if text, err := keyringOf(t, key(2)).For("totp").Open("usr_1", fresh); err != nil || string(text) != "seed" {
		t.Errorf("%q, %v", text, err)
	}
	if again, changed, err := both.For("totp").Reseal("usr_1", fresh); err != nil || changed || !bytes.Equal(again, fresh) {
		t.Errorf("an up-to-date envelope changed: %v, %v", changed, err)
	}
	if _, _, err := keyringOf(t, key(3)).For("totp").Reseal("usr_1", fresh); !errors.Is(err, ErrNoKey) {
		t.Errorf("resealed with another key: %v", err)
	}
}

func TestKeysOfTheConfiguration(t *testing.T) {
	t.Parallel()
	secret, _ := base64.StdEncoding.DecodeString(key(7))
	same := keyringOf(t, key(7))
	envelope := sealed(t, same, "p", "id", "x")
	for _, text := range []string{
		base64.RawStdEncoding.EncodeToString(secret), base64.URLEncoding.EncodeToString(secret),
		base64.RawURLEncoding.EncodeToString(secret), hex.EncodeToString(secret),
		strings.ToUpper(hex.EncodeToString(secret)), " " + key(7) + "\n",
	} {
		if _, err := keyringOf(t, text).For("p").Open("id", envelope); err != nil {
			t.Errorf("%q is not the same key: %v", text, err)
		}
	}
	for what, texts := range map[string][]string{
		"none":                     {},
		"an empty one":             {""},
		"spaces":                   {" \n"},
		"zeros":                    {strings.Repeat("0", 64)},
		"zeros in base64":          {base64.StdEncoding.EncodeToString(make([]byte, 32))},
		"one byte repeated":        {strings.Repeat("ab", 32)},
		"31 bytes":                 {hex.EncodeToString(secret[:31])},
		"33 bytes":                 {hex.EncodeToString(append(bytes.Clone(secret), 1))},
		"a password":               {"correct horse battery staple"},
		"words of 32 letters":      {"abcdefghijklmnopqrstuvwxyzabcdef"},
		"duplicates":               {key(1), key(2), hex.EncodeToString(secret), key(7)},
		"a valid and an empty one": {key(1), ""},
	} {
		k, err := FromTexts(texts...)
		if err == nil {
			t.Errorf("%s: accepted as a keyring of %d keys", what, k.Count())
			continue
		}
		for _, text := range texts {
			if len(strings.TrimSpace(text)) > 0 && strings.Contains(err.Error(), strings.TrimSpace(text)) {
				t.Errorf("%s: the error quotes the secret: %v", what, err)
			}
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	k := keyringOf(f, key(1), key(2))
	f.Add([]byte(nil), "id")
	f.Add(sealed(f, k, "p", "id", "text"), "id")
	f.Add(sealed(f, k, "p", "", ""), "")
	f.Fuzz(func(t *testing.T, envelope []byte, id string) {
		text, err := k.For("p").Open(id, envelope)
		if err != nil && !errors.Is(err, ErrNoKey) && !errors.Is(err, ErrInvalidEnvelope) {
			t.Fatalf("%q, %v", text, err)
		}
		// Any text that opens was encrypted by this package, and can be
		// encrypted and opened again.
		if err == nil {
			again := sealed(t, k, "p", id, string(text))
			if back, err := k.For("p").Open(id, again); err != nil || !bytes.Equal(back, text) {
				t.Fatalf("%q became %q, %v", text, back, err)
			}
		}
	})
}
