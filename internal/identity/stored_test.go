package identity

import (
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

func TestOnlyTheHashOfACredentialIsStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	key, secret := f.key(t, "ann", KeySpec{})
	token := f.token(t, "ann")
	if user, err := f.User(t.Context(), "ann"); err != nil || user.Token.Hint != token[:9]+"…"+token[len(token)-4:] {
		t.Errorf("the token's hint is %q (%v)", user.Token.Hint, err)
	}
	if key.Hint != secret[:7]+"…"+secret[len(secret)-4:] {
		t.Errorf("hint %q", key.Hint)
	}
	err := f.store.View(t.Context(), func(r storage.Reader) error {
		return r.Scan(nil, nil, func(k, v []byte) bool {
			if containsAny(string(k)+string(v), secret, secret[10:30], token, token[10:30]) {
				t.Errorf("a secret is in the store at %q", k)
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
